// Every transport a browser has carries the pages: those of CometD's client the chat, those of the package `encke` the start page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { Browser, Server, TEST_LIMIT_MS } from "./harness.mjs";

for (const [transport, words] of [["websocket", "WebSocket"], ["long-polling", "long-polling"], ["callback-polling", "callback-polling"]]) {
    test(`two pages chat over ${transport}`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const server = await Server.start(t);
        const browser = await Browser.start(t);
        await chatOver(browser, server, words, { query: `transport=${transport}` });
        browser.assertNoComplaints();
    });
}

for (const [transport, words] of [["websocket", "WebSocket"], ["eventsource", "event stream"], ["long-polling", "long-polling"]]) {
    test(`the start page works over ${transport}`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const server = await Server.start(t);
        const browser = await Browser.start(t);
        const page = await browser.open(`${server.url}/?transport=${transport}`);
        await page.locator("#link[data-state=connected]").waitFor();
        await page.locator("#text").fill("hello");
        await page.locator("#text").press("Enter");
        await page.locator("#arrivals .own").waitFor();
        assert.equal(await page.locator("#transport").innerText(), words);
        browser.assertNoComplaints();
    });
}

test("where no WebSocket can be opened the pages fall back to long-polling", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    await chatOver(browser, server, "long-polling", { before: breakWebSocket });
});

async function chatOver(browser, server, words, options) {
    const johanna = await Chatter.join(browser, server, "Johanna", options);
    const caroline = await Chatter.join(browser, server, "Caroline", options);
    assert.equal(await johanna.link(), `Connected · ${words}`);
    await johanna.sees(["Caroline", "Johanna"]);
    for (let i = 0; i < 5; i++) {
        await johanna.say(`ping ${i}`);
        await caroline.receives(`ping ${i}`);
        await caroline.say(`pong ${i}`);
        await johanna.receives(`pong ${i}`);
    }
    await caroline.say("Johanna::ünïcode ☄ 彗星 & \"quotes\"");
    await johanna.receives("ünïcode ☄ 彗星 & \"quotes\"");
    assert.equal((await johanna.messages()).length, 11);
    await caroline.leave();
    await johanna.sees(["Johanna"]);
}

/** Runs in the page: a proxy that eats WebSockets. */
function breakWebSocket() {
    window.WebSocket = class {
        constructor() {
            setTimeout(() => this.onclose?.({ code: 1006, reason: "" }));
        }

        close() {}
    };
}
