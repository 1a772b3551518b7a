// The client in Chromium: pages, reloads, tabs that share a connection, workers, a network that goes away.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { chromium } from "playwright-core";
import { CHROMIUM, CHROMIUM_OPTIONS, CHROMIUM_START_MS } from "../../../tests/chromium.mjs";
import { Counter, EVENT_MS, Proxy, Server, client, pause, until } from "./harness.mjs";
import { pages } from "./pages/folder.mjs";

const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: CHROMIUM_OPTIONS, timeout: CHROMIUM_START_MS });
after(() => browser.close());

const config = await pages();

/** A window of a browser, in which `got` and `states` collect what its pages report, over reloads. */
async function windowOf(test, origin) {
    const context = await browser.newContext();
    test.after(() => context.close());
    context.setDefaultTimeout(EVENT_MS);
    const counter = new Counter();
    const states = [];
    await context.exposeFunction("report", (messages) => messages.forEach(counter.receive));
    await context.exposeFunction("reportGap", counter.onGap);
    await context.exposeFunction("reportState", (state) => states.push(state));
    const open = async (path = "/blank.html") => {
        const page = await context.newPage();
        page.on("pageerror", (error) => counter.wrong.push(String(error)));
        await page.goto(origin + path);
        return page;
    };
    return { context, counter, states, open };
}

/** Runs in a page: subscribes, and reports everything. Resolves when it is granted. */
async function follow({ name, options = {}, sharing }) {
    const { connect } = await import("/encke.js");
    const { persist } = await import("/persist.js");
    const { sharedWorker, tabs } = await import("/shared.js");
    const shared = sharing === "tabs" ? { shared: tabs } : sharing === "worker" ? { shared: sharedWorker("/worker.js") } : {};
    const { persists, ...rest } = options;
    window.client = connect("/cometd", { ...rest, ...shared, ...(persists && { persist: persist() }) });
    window.client.on("state", ({ name }) => window.reportState(name));
    // One message of the browser for all that come together.
    let messages = [];
    const subscription = window.client.subscribe(name, { onGap: window.reportGap }, ({ channel, data }) => {
        if (messages.push({ channel, data }) === 1) {
            queueMicrotask(() => {
                window.report(messages);
                messages = [];
            });
        }
    });
    await subscription.ready;
    return window.client.state.transport;
}

for (const transport of ["websocket", "eventsource", "long-polling"]) {
    test(`a page follows channels by ${transport}`, async (t) => {
        const server = await Server.start(t, config());
        const { open, counter } = await windowOf(t, server.url);
        const page = await open();
        assert.equal(await page.evaluate(follow, { name: "/stock/*", options: { transports: [transport] } }), transport);
        for (let n = 1; n <= 20; n++) {
            await page.evaluate((n) => window.client.publish("/stock/a", { n }), n);
        }
        await until("the messages", () => counter.count() === 20);
        counter.check(["/stock/a"], 20);
    });
}

for (const [page, kind] of [["prices", "of 20 lines"], ["react", "with hooks for React"], ["svelte", "with stores for Svelte"]]) {
    test(`a page ${kind} shows prices`, async (t) => {
        const server = await Server.start(t, config());
        await client(t, server.url).publish("/stock/a", { price: 1 });
        const { open, counter } = await windowOf(t, server.url);
        const shown = await open(`/${page}.html`);
        await shown.getByText("connected").waitFor();
        const writer = client(t, server.url);
        for (let price = 2; price <= 5; price++) {
            await writer.publish("/stock/a", { price });
            await shown.getByText(`/stock/a: ${price}`).waitFor();
        }
        assert.deepEqual(counter.wrong, []);
    });
}

test("3,000 channels go on over reloads of a page", async (t) => {
    const server = await Server.start(t, config());
    const channels = Array.from({ length: 3_000 }, (_, number) => `/quote/channel-${number}`);
    const writer = client(t, server.url, { pendingMax: 4_000 });
    const publish = (n) => Promise.all(channels.map((channel) => writer.publish(channel, { n }, { timeoutMs: EVENT_MS })));
    const { open, counter } = await windowOf(t, server.url);
    const page = await open();
    const options = { persists: true };
    await page.evaluate(follow, { name: "/quote/*", options });
    await publish(1);
    await until(() => `${counter.count()} of 3,000`, () => counter.count() === 3_000);
    for (let reload = 1; reload <= 3; reload++) {
        const published = publish(reload + 1);
        await page.reload();
        await page.evaluate(follow, { name: "/quote/*", options });
        await published;
        await until(() => `${counter.count()} of ${3_000 * (reload + 1)}`, () => counter.count() >= 3_000 * (reload + 1));
    }
    counter.check(channels, 4);
    assert.deepEqual(counter.gaps, []);
});

test("a page without a network is offline, and goes on when it is back", async (t) => {
    const server = await Server.start(t, config("max_interval_ms = 300\n"));
    const { context, open, counter, states } = await windowOf(t, server.url);
    const page = await open();
    await page.evaluate(follow, { name: "/stock/a" });
    const writer = client(t, server.url);
    await writer.publish("/stock/a", { n: 1 });
    await until("a message", () => counter.count() === 1);
    const proxy = await page.evaluate(() => window.client.state.transport);
    assert.equal(proxy, "websocket");
    await context.setOffline(true);
    // Chromium lets open WebSockets live, and reports the event: a ping shows that this one still works.
    await writer.publish("/stock/a", { n: 2 });
    await until("the second message", () => counter.count() === 2);
    await context.setOffline(false);
    await writer.publish("/stock/a", { n: 3 });
    await until("the third message", () => counter.count() === 3);
    counter.check(["/stock/a"], 3);
    assert.deepEqual(states, ["connected"]);
    await server.stop("SIGKILL");
    await context.setOffline(true);
    await until("the state", () => states.at(-1) === "offline");
    await server.start();
    await context.setOffline(false);
    await until("the connection", () => states.at(-1) === "connected");
});

test("a proxy that eats upgrades is remembered for the next page", async (t) => {
    const server = await Server.start(t, config());
    const proxy = await Proxy.start(t, server.port, { swallow: /upgrade: websocket/i });
    const { open } = await windowOf(t, proxy.url);
    const page = await open();
    assert.equal(await page.evaluate(follow, { name: "/stock/a" }), "eventsource");
    const begin = performance.now();
    await page.reload();
    assert.equal(await page.evaluate(follow, { name: "/stock/a" }), "eventsource");
    assert.ok(performance.now() - begin < 800 + EVENT_MS);
});

for (const sharing of ["tabs", "worker"]) {
    test(`tabs share one connection, ${sharing === "tabs" ? "that of the first" : "in a SharedWorker"}, and lose nothing when that one goes`, async (t) => {
        const server = await Server.start(t, config());
        const { open, counter, states } = await windowOf(t, server.url);
        const first = await open();
        await first.evaluate(follow, { name: "/other/a", sharing });
        const second = await open();
        await second.evaluate(follow, { name: "/stock/a", sharing });
        await until("both states", () => states.filter((name) => name === "connected").length >= 2);
        assert.equal(await sessions(server), 1);
        const writer = client(t, server.url);
        for (let n = 1; n <= 60; n++) {
            await writer.publish("/stock/a", { n });
            if (n === 20) {
                await until("the first messages", () => counter.got.get("/stock/a")?.length === 20);
                await first.close();
            }
            await pause(10);
        }
        await until(() => `${counter.count()} of 60`, () => counter.got.get("/stock/a")?.length >= 60);
        counter.check(["/stock/a"], 60);
        await second.evaluate(() => window.client.publish("/stock/a", { n: 61 }));
        await until("the last message", () => counter.count() === 61);
        assert.deepEqual(counter.gaps, []);
    });
}

test("a worker has a client, too", async (t) => {
    const server = await Server.start(t, config());
    const { open } = await windowOf(t, server.url);
    const page = await open();
    const received = page.evaluate(() => new Promise((resolve) => (new Worker("/thread.js", { type: "module" }).onmessage = ({ data }) => resolve(data))));
    const writer = client(t, server.url);
    let isDone = false;
    void received.finally(() => (isDone = true));
    while (!isDone) {
        await writer.publish("/stock/a", "hello");
        await pause(50);
    }
    assert.equal(await received, "hello");
});

/** The number of sessions beside those of programs in this process. */
async function sessions({ url }) {
    const text = await (await fetch(`${url}/metrics`)).text();
    return Number(/^encke_sessions (\d+)$/m.exec(text)?.[1]);
}
