// HTTP/2 over TLS: one connection carries the pages and the WebSockets of a browser (RFC 8441).

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { Browser, Server, TEST_LIMIT_MS } from "./harness.mjs";

for (const [transport, words] of [["websocket", "WebSocket"], ["long-polling", "long-polling"]]) {
    test(`two pages chat over ${transport} and HTTP/2`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const folder = mkdtempSync(join(tmpdir(), "encke-net-log-"));
        t.after(() => rmSync(folder, { recursive: true }));
        const log = join(folder, "net.json");
        const server = await Server.start(t, undefined, { flags: ["--dev-tls"] });
        const browser = await Browser.start(t, [`--log-net-log=${log}`]);
        const options = { query: `transport=${transport}`, ignoreHTTPSErrors: true };
        const johanna = await Chatter.join(browser, server, "Johanna", options);
        const caroline = await Chatter.join(browser, server, "Caroline", options);
        assert.equal(await johanna.link(), `Connected · ${words}`);
        for (let i = 0; i < 5; i++) {
            await johanna.say(`ping ${i}`);
            await caroline.receives(`ping ${i}`);
            await caroline.say(`pong ${i}`);
            await johanna.receives(`pong ${i}`);
        }
        browser.assertNoComplaints();
        await browser.close();
        const text = readFileSync(log, "utf8");
        const connects = text.split(":protocol: websocket").length - 1;
        assert.ok(text.includes("HTTP2_SESSION_SEND_HEADERS"), "the net log has no HTTP/2");
        // Chromium logs no header of a WebSocket over HTTP/1.1 this way.
        assert.equal(connects >= 2, transport === "websocket", `${connects} extended CONNECTs`);
    });
}
