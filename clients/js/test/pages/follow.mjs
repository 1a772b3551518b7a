// Runs a client in a page, and reads what it got. A page is one with `evaluate(expression)`.

import { Counter, until } from "../harness.mjs";

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
