// The pages come back by themselves when the server does.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { Browser, Server, TEST_LIMIT_MS, eventually, screenshot } from "./harness.mjs";

for (const query of ["", "transport=long-polling"]) {
    test(`a chat goes on after the server was killed and started again (${query || "best transport"})`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const server = await Server.start(t);
        const browser = await Browser.start(t);
        const johanna = await Chatter.join(browser, server, "Johanna", { query });
        const caroline = await Chatter.join(browser, server, "Caroline", { query });
        await johanna.sees(["Caroline", "Johanna"]);
        await johanna.say("before");
        for (const chatter of [johanna, caroline]) {
            await chatter.receives("before");
        }

        await server.kill();
        for (const chatter of [johanna, caroline]) {
            await eventually(() => chatter.link(), "Reconnecting…");
        }
        await johanna.say("lost?");
        await johanna.page.getByText("Not sent: waiting for the connection.").waitFor();
        assert.equal(await johanna.page.getByLabel("Message", { exact: true }).inputValue(), "lost?");
        await screenshot(johanna.page, "chat-reconnecting");

        await Server.start(t, server.port);
        for (const chatter of [johanna, caroline]) {
            await chatter.connected();
            await chatter.sees(["Caroline", "Johanna"]);
        }
        await johanna.say("after");
        await caroline.receives("after");
        await caroline.say("Johanna::still private");
        // Once each: a second subscription or handler left over from the first session would double them.
        for (const chatter of [johanna, caroline]) {
            await chatter.receives("still private");
            assert.deepEqual(await chatter.messages(), ["before", "after", "still private"], chatter.name);
        }
    });
}

test("the start page goes on after the server was killed and started again", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await browser.open(server.url);
    await page.locator("#link[data-state=connected]").waitFor();
    await server.kill();
    await page.locator("#link[data-state=reconnecting]").waitFor();
    await Server.start(t, server.port);
    await page.locator("#link[data-state=connected]").waitFor();
    await page.locator("#text").fill("back");
    await page.locator("#text").press("Enter");
    await page.locator("#arrivals .own").waitFor();
    assert.equal(await page.locator("#arrivals li").count(), 1);
});
