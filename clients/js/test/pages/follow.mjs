// Runs a client in a page, and reads what it got. A page is one with `evaluate(expression)`.

import assert from "node:assert/strict";
import { Counter, EVENT_MS, client, until } from "../harness.mjs";

/** An expression that subscribes, and collects what comes, over reloads. `sharing` is `tabs` or `worker`. */
export function follow(name, options = {}) {
    return `(async () => {
        const { connect } = await import("/encke.js");
        const { persist } = await import("/persist.js");
        const { sharedWorker, tabs } = await import("/shared.js");
        const { persists, sharing, ...options } = ${JSON.stringify(options)};
        const shared = { tabs, worker: sharedWorker("/worker.js") }[sharing];
        globalThis.client = connect("/cometd", { ...options, ...(shared && { shared }), ...(persists && { persist: persist() }) });
        globalThis.got = JSON.parse(sessionStorage.getItem("got") ?? "[]");
        globalThis.states = [];
        client.on("state", ({ name }) => states.push(name));
        addEventListener("pagehide", () => sessionStorage.setItem("got", JSON.stringify(got)));
        await client.subscribe(${JSON.stringify(name)}, { onGap: (gap) => got.push(gap) }, ({ channel, data }) => got.push({ channel, data })).ready;
        return client.state.transport;
    })()`;
}

/** Resolves when the page has so many messages and gaps. */
export async function untilCount(page, count) {
    let last = 0;
    const poll = async () => {
        while (last < count) {
            last = await page.evaluate("got.length");
        }
    };
    let failure;
    poll().catch((error) => (failure = error));
    await until(() => failure ?? `${last} of ${count} messages`, () => failure === undefined && last >= count);
}

/** The messages and gaps of a page. */
export async function counted(page) {
    const counter = new Counter();
    const got = JSON.parse(await page.evaluate("JSON.stringify(got)"));
    got.filter(({ cause }) => cause !== undefined).forEach(counter.onGap);
    got.filter(({ cause }) => cause === undefined).forEach(counter.receive);
    return counter;
}

/** Reloads a page of a server, which follows 3,000 channels, so many times while they are published to: it gets each message once. */
export async function goOnOverReloads(test, server, page, reloads) {
    const channels = Array.from({ length: 3_000 }, (_, number) => `/quote/channel-${number}`);
    const writer = client(test, server.url, { pendingMax: 4_000 });
    const publish = (n) => Promise.all(channels.map((channel) => writer.publish(channel, { n }, { timeoutMs: EVENT_MS })));
    await page.evaluate(follow("/quote/*", { persists: true }));
    await publish(1);
    await untilCount(page, 3_000);
    for (let reload = 1; reload <= reloads; reload++) {
        const published = publish(reload + 1);
        await page.reload();
        await page.evaluate(follow("/quote/*", { persists: true }));
        await published;
        await untilCount(page, 3_000 * (reload + 1));
    }
    const counter = await counted(page);
    assert.deepEqual(counter.gaps, []);
    counter.check(channels, reloads + 1);
}
