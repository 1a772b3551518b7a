// The chat in Firefox: two windows, over every transport that a browser has.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Firefox } from "./firefox.mjs";
import { SCREENSHOTS, Server, TEST_LIMIT_MS, TLS, eventually } from "./harness.mjs";

const LINES = ["Did you see the comet tonight?", "Low in the west, just after sunset.", "ünïcode ☄ 彗星 & \"quotes\"", "<b>markup</b>", "Clear skies!"];

test("two windows of Firefox chat", { timeout: TEST_LIMIT_MS, skip: !Firefox.isThere() && "there is no Firefox" }, async (t) => {
    const firefox = await Firefox.start(t);
    for (const transport of ["websocket", "long-polling", "callback-polling"]) {
        await t.test(`over ${transport}`, async (t) => {
            await chat(t, firefox, await Server.start(t), transport);
        });
    }
    await t.test("over websocket, with TLS", async (t) => {
        const [johanna] = await chat(t, firefox, await Server.start(t, undefined, { flags: TLS }), "websocket");
        assert.equal(await johanna.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol"), "h2");
    });
});

async function chat(t, firefox, server, transport) {
    const johanna = await visit(t, firefox, server, transport, "Johanna");
    const caroline = await visit(t, firefox, server, transport, "Caroline");
    for (const page of [johanna, caroline]) {
        await eventually(async () => (await page.texts("#members .member")).sort(), ["Caroline", "Johanna"]);
        assert.deepEqual(await page.texts("#link"), [`Connected · ${transport === "websocket" ? "WebSocket" : transport}`]);
    }
    for (const [i, line] of LINES.entries()) {
        const writer = i % 2 === 0 ? johanna : caroline;
        await writer.click("textbox", "Message");
        await writer.type(line);
        await writer.click("button", "Send");
        for (const page of [johanna, caroline]) {
            await eventually(() => page.texts("#log .words"), LINES.slice(0, i + 1));
        }
    }
    mkdirSync(SCREENSHOTS, { recursive: true });
    writeFileSync(join(SCREENSHOTS, `chat-firefox-${transport}.png`), await caroline.picture());
    return [johanna, caroline];
}

/** Opens the page in a new window and joins. */
async function visit(t, firefox, server, transport, name) {
    const page = await firefox.open(`${server.url}/demo/chat?transport=${transport}`, "window");
    t.after(() => page.close());
    await page.click("textbox", "Your name");
    await page.type(name);
    await page.click("button", "Join");
    await eventually(() => page.evaluate("document.querySelector('#link').dataset.state"), "connected");
    return page;
}
