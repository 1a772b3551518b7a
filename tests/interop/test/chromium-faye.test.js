// Faye's client in a browser without WebSocket: it gets messages by an EventSource, and sends requests beside it.

import assert from "node:assert/strict";
import {createRequire} from "node:module";
import {test} from "node:test";

import {chromium} from "playwright-core";

import {CHROMIUM, CHROMIUM_OPTIONS, CHROMIUM_START_MS} from "../../chromium.mjs";
import {WAIT_MS} from "../src/client.js";
import {Server} from "../src/server.js";

const FAYE = createRequire(import.meta.url).resolve("faye/client/faye-browser.js");

for (const [name, set] of [["uses an EventSource", {}], ["opens another when its stream ends", {stream_max_ms: "300"}]]) {
    test(`Faye's client without WebSocket ${name}`, async context => {
        const server = new Server(set);
        await server.start();
        const browser = await chromium.launch({executablePath: CHROMIUM, args: CHROMIUM_OPTIONS, timeout: CHROMIUM_START_MS});
        context.after(async () => {
            await browser.close();
            await server.dispose();
        });
        const page = await (await browser.newContext({bypassCSP: true})).newPage();
        page.setDefaultTimeout(WAIT_MS);
        const streams = [];
        page.on("request", request => request.resourceType() === "eventsource" && streams.push(request.url()));
        await page.goto(server.origin + "/healthz");
        await page.addScriptTag({path: FAYE});
        await page.evaluate(async () => {
            window.client = new Faye.Client("/faye", {timeout: 20});
            window.client.disable("websocket");
            window.arrived = [];
            await window.client.subscribe("/news/*", data => window.arrived.push(data.number));
        });
        await page.waitForFunction(() => window.client._dispatcher.connectionType === "eventsource");
        await page.evaluate(() => void (window.publisher = new Faye.Client("/faye")));
        for (let number = 1; number <= 20; number++) {
            await page.evaluate(number => window.publisher.publish("/news/today", {number}), number);
            await page.waitForFunction(number => window.arrived.includes(number), number);
            // A stream ends meanwhile.
            await page.waitForTimeout(set.stream_max_ms ? 100 : 0);
        }
        const arrived = await page.evaluate(() => window.arrived);
        assert.deepEqual(arrived, Array.from({length: 20}, (_, at) => at + 1));
        assert.ok(streams.length >= (set.stream_max_ms ? 2 : 1), `${streams.length} streams`);
        const [, id] = streams[0].split("/faye/");
        assert.match(id, /^[0-9a-z]{32}$/);
    });
}
