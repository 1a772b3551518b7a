// Streams carry the chat, by an EventSource and by a streaming fetch: to pages that only follow it, and as a transport of a session.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { Browser, Server, TEST_LIMIT_MS, eventually, screenshot } from "./harness.mjs";

const LOBBY = "/demo/chat/lobby";

for (const [name, type, follow] of [["an EventSource", "eventsource", followByEvents], ["a streaming fetch", "json-stream", followByLines]]) {
    test(`a page follows the chat by ${name}`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const server = await Server.start(t);
        const browser = await Browser.start(t);
        const johanna = await Chatter.join(browser, server, "Johanna");
        const page = await browser.open(`${server.url}/healthz`);
        await page.evaluate(follow, `/stream${LOBBY}`);
        await page.waitForFunction(() => window.isOpen);
        const said = ["hello", "ünïcode ☄ 彗星 & \"quotes\"", "line\u2028end", "bye"];
        for (const text of said) {
            await johanna.say(text);
        }
        await eventually(() => page.evaluate(() => window.messages.filter(({ data }) => data.chat).map(({ data }) => data.chat)), said);
        assert.equal(await page.evaluate((lobby) => window.messages.every(({ channel }) => channel === lobby), LOBBY), true);
    });

    test(`a session chats by ${name}`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const server = await Server.start(t);
        const browser = await Browser.start(t);
        const johanna = await Chatter.join(browser, server, "Johanna");
        const page = await browser.open(`${server.url}/healthz`);
        const send = (message) => page.evaluate(post, message);
        const [{ clientId }] = await send({ channel: "/meta/handshake", version: "1.0", supportedConnectionTypes: [type] });
        await page.evaluate(follow, `/cometd/${clientId}`);
        await page.waitForFunction(() => window.isOpen);
        const connect = { channel: "/meta/connect", clientId, connectionType: type };
        assert.deepEqual(await send({ ...connect, advice: { timeout: 0 } }), [], "the reply to a connect comes on the stream");
        await page.waitForFunction(() => window.messages.flat()[0]?.successful);
        await send(connect);
        await send({ channel: "/meta/subscribe", clientId, subscription: LOBBY });
        await send({ channel: "/service/demo/members", clientId, data: { user: "Caroline", room: LOBBY } });
        await johanna.sees(["Caroline", "Johanna"]);
        const said = [];
        for (const text of ["ping", "ünïcode ☄ 彗星 & \"quotes\"", "line\u2028end"]) {
            await johanna.say(text);
            await send({ channel: LOBBY, clientId, data: { user: "Caroline", chat: `${text}, too` } });
            await johanna.receives(`${text}, too`);
            said.push(text, `${text}, too`);
        }
        const read = () => window.messages.flat().filter(({ data }) => data?.chat).map(({ data }) => data.chat);
        await eventually(() => page.evaluate(read), said);
        await screenshot(johanna.page, `chat-by-${type}`);
        await send({ channel: "/meta/disconnect", clientId });
        await johanna.sees(["Johanna"]);
    });
}

/** Runs in the page: sends a Bayeux message. */
async function post(message) {
    const headers = { "content-type": "application/json" };
    return (await fetch("/cometd", { method: "POST", headers, body: JSON.stringify([message]) })).json();
}

/** Runs in the page. */
function followByEvents(url) {
    window.messages = [];
    const source = new EventSource(url);
    source.onopen = () => (window.isOpen = true);
    source.onmessage = (event) => window.messages.push(JSON.parse(event.data));
}

/** Runs in the page. */
async function followByLines(url) {
    window.messages = [];
    const response = await fetch(url, { headers: { accept: "application/x-ndjson" } });
    window.isOpen = response.ok;
    void (async () => {
        let text = "";
        for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
            const lines = (text + part).split("\n");
            text = lines.pop();
            window.messages.push(...lines.filter(Boolean).map((line) => JSON.parse(line)));
        }
    })();
}
