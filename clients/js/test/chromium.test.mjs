// The client in Chromium: pages, reloads, tabs that share a connection, workers, a network that goes away.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { chromium } from "playwright-core";
import { CHROMIUM, CHROMIUM_OPTIONS, CHROMIUM_START_MS } from "../../../tests/chromium.mjs";
import { EVENT_MS, Proxy, Server, client, pause, until } from "./harness.mjs";
import { pages } from "./pages/folder.mjs";
import { counted, follow, goOnOverReloads, untilCount } from "./pages/follow.mjs";

const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: CHROMIUM_OPTIONS, timeout: CHROMIUM_START_MS });
after(() => browser.close());
const config = await pages();

/** A window of a browser, whose pages are tabs. `errors` collects the uncaught ones. */
async function windowOf(test, origin) {
    const context = await browser.newContext();
    test.after(() => context.close());
    context.setDefaultTimeout(EVENT_MS);
    const errors = [];
    const open = async (path = "/blank.html") => {
        const page = await context.newPage();
        page.on("pageerror", (error) => errors.push(String(error)));
        await page.goto(origin + path);
        return page;
    };
    return { context, errors, open };
}

for (const transport of ["websocket", "eventsource", "long-polling"]) {
    test(`a page follows channels by ${transport}`, async (t) => {
        const server = await Server.start(t, config());
        const { open, errors } = await windowOf(t, server.url);
        const page = await open();
        assert.equal(await page.evaluate(follow("/stock/*", { transports: [transport] })), transport);
        for (let n = 1; n <= 20; n++) {
            await page.evaluate(`client.publish("/stock/a", { n: ${n} })`);
        }
        await untilCount(page, 20);
        (await counted(page)).check(["/stock/a"], 20);
        assert.deepEqual(errors, []);
    });
}

for (const [name, kind] of [["prices", "without a bundler"], ["react", "with hooks for React"], ["svelte", "with stores for Svelte"]]) {
    test(`a page ${kind} shows prices`, async (t) => {
        const server = await Server.start(t, config());
        const writer = client(t, server.url);
        const { open, errors } = await windowOf(t, server.url);
        const page = await open(`/${name}.html`);
        await page.getByText("connected").waitFor();
        for (let price = 2; price <= 5; price++) {
            await writer.publish("/stock/a", { price });
            await page.getByText(`/stock/a: ${price}`).waitFor();
        }
        assert.deepEqual(errors, []);
    });
}

test("3,000 channels go on over reloads of a page", async (t) => {
    const server = await Server.start(t, config());
    const { open, errors } = await windowOf(t, server.url);
    await goOnOverReloads(t, server, await open(), 3);
    assert.deepEqual(errors, []);
});

test("a page without a network is offline, and goes on when it is back", async (t) => {
    const server = await Server.start(t, config());
    const { context, open } = await windowOf(t, server.url);
    const page = await open();
    await page.evaluate(follow("/stock/a"));
    const writer = client(t, server.url, { backoffMaxMs: 300 });
    await writer.publish("/stock/a", { n: 1 });
    // Chromium lets open WebSockets live, and reports the event: a ping shows that this one still works.
    await context.setOffline(true);
    await writer.publish("/stock/a", { n: 2 });
    await context.setOffline(false);
    await writer.publish("/stock/a", { n: 3 });
    await untilCount(page, 3);
    assert.deepEqual(await page.evaluate("states"), ["connected"]);
    await context.setOffline(true);
    await server.stop("SIGKILL");
    await page.waitForFunction(() => window.client.state.name === "offline");
    await server.start();
    await context.setOffline(false);
    await page.waitForFunction(() => window.client.state.name === "connected");
    (await counted(page)).check(["/stock/a"], 3);
});

test("a proxy that eats upgrades is remembered for the next page", async (t) => {
    const server = await Server.start(t, config());
    const proxy = await Proxy.start(t, server.port, { swallow: /upgrade: websocket/i });
    const { open } = await windowOf(t, proxy.url);
    const page = await open();
    // On a machine that is slower than this, the client takes the network for slow, and remembers nothing.
    const options = { fallbackMs: 6_000 };
    assert.equal(await page.evaluate(follow("/stock/a", options)), "eventsource");
    // The stream has shown a moment later that it works.
    await page.waitForFunction(() => localStorage.length > 0);
    const tried = proxy.heads.filter((head) => head === "GET /cometd HTTP/1.1").length;
    await page.reload();
    assert.equal(await page.evaluate(follow("/stock/a", options)), "eventsource");
    assert.equal(proxy.heads.filter((head) => head === "GET /cometd HTTP/1.1").length, tried);
});

for (const [sharing, kind] of [["tabs", "that of one of them"], ["worker", "in a SharedWorker"]]) {
    test(`tabs share one connection, ${kind}, and lose nothing when the first goes`, async (t) => {
        const server = await Server.start(t, config());
        const { open, errors } = await windowOf(t, server.url);
        const first = await open();
        await first.evaluate(follow("/other/a", { sharing }));
        const second = await open();
        await second.evaluate(follow("/stock/a", { sharing }));
        assert.equal(await server.sessions(), 1);
        const writer = client(t, server.url);
        for (let n = 1; n <= 60; n++) {
            await writer.publish("/stock/a", { n });
            if (n === 20) {
                await untilCount(second, 20);
                await first.close();
            }
            await pause(10);
        }
        await untilCount(second, 60);
        await second.evaluate('client.publish("/stock/a", { n: 61 })');
        await untilCount(second, 61);
        const counter = await counted(second);
        assert.deepEqual(counter.gaps, []);
        counter.check(["/stock/a"], 61);
        assert.deepEqual(errors, []);
    });
}

test("a worker has a client, too", async (t) => {
    const server = await Server.start(t, config());
    const { open } = await windowOf(t, server.url);
    const page = await open();
    let got;
    void page.evaluate(() => new Promise((resolve) => (new Worker("/thread.js", { type: "module" }).onmessage = ({ data }) => resolve(data)))).then((data) => (got = data));
    const writer = client(t, server.url);
    while (got === undefined) {
        await writer.publish("/stock/a", "hello");
        await pause(50);
    }
    assert.equal(got, "hello");
});
