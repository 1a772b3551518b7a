// HTTP/2 over TLS: one connection carries the pages and the WebSockets of a browser (RFC 8441).

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { Browser, Server, TEST_LIMIT_MS, TLS } from "./harness.mjs";

for (const [transport, words] of [["websocket", "WebSocket"], ["long-polling", "long-polling"]]) {
    test(`two tabs chat over ${transport} and one HTTP/2 connection`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const folder = mkdtempSync(join(tmpdir(), "encke-net-log-"));
        t.after(() => rmSync(folder, { recursive: true }));
        const log = join(folder, "net.json");
        const server = await Server.start(t, undefined, { flags: TLS });
        const browser = await Browser.start(t, [`--log-net-log=${log}`]);
        const query = `transport=${transport}`;
        const johanna = await Chatter.join(browser, server, "Johanna", { query });
        const caroline = await Chatter.join(browser, server, "Caroline", { query, beside: johanna.page });
        assert.equal(await johanna.link(), `Connected · ${words}`);
        for (let i = 0; i < 5; i++) {
            await johanna.say(`ping ${i}`);
            await caroline.receives(`ping ${i}`);
            await caroline.say(`pong ${i}`);
            await johanna.receives(`pong ${i}`);
        }
        browser.assertNoComplaints();
        await browser.close();

        const requests = http2Requests(log).filter(({ headers }) => headers[":authority"] === new URL(server.url).host);
        const pages = requests.filter(({ headers }) => headers[":path"].startsWith("/demo/chat?"));
        const sockets = requests.filter(({ headers }) => headers[":method"] === "CONNECT");
        assert.equal(pages.length, 2);
        assert.deepEqual(sockets.map(({ headers }) => headers[":protocol"]), transport === "websocket" ? ["websocket", "websocket"] : []);
        assert.equal(new Set(requests.map(({ connection }) => connection)).size, 1, "connections");
    });
}

/** The requests that Chromium has sent over HTTP/2, by its own log: the number of their connection, and their headers. */
function http2Requests(log) {
    const { constants, events } = JSON.parse(readFileSync(log, "utf8"));
    return events
        .filter(({ type }) => type === constants.logEventTypes.HTTP2_SESSION_SEND_HEADERS)
        .map(({ source, params }) => ({
            connection: source.id,
            headers: Object.fromEntries(params.headers.map((line) => /^(:?[^:]*): (.*)$/.exec(line).slice(1))),
        }));
}
