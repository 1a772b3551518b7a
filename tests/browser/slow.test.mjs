// Every demo on a slow line: the page loads, connects, and does what it is for.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { Browser, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { SlowLine } from "./screen.mjs";

/** About a mobile phone's line of 2005. */
const BYTES_PER_SECOND = 40_000;

/** The steps of a visitor on each page. */
const VISITS = {
    orders: async (page) => {
        await page.getByRole("button", { name: "Send 50 at once" }).click();
        await eventually(() => page.locator("#answer").innerText(), "50");
    },
    mail: async (page) => eventually(async () => (await page.locator("main").innerText()).includes("since the last mail"), true),
    game: async (page) => {
        await page.getByLabel("Your name").fill("Ann");
        await page.getByRole("button", { name: "Play white" }).click();
        await page.locator("#seat-white").getByText("Ann (you)").waitFor();
    },
    presence: async (page) => {
        await page.getByLabel("Your name").fill("Ann");
        await page.getByRole("button", { name: "Come in" }).click();
        await page.locator("main").getByText("Ann").first().waitFor();
    },
    "slides/watch": async () => {},
};

for (const [name, visit] of Object.entries(VISITS)) {
    test(`${name} works on a slow line`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const server = await Server.start(t, undefined, { command: "demo" });
        const browser = await Browser.start(t);
        const line = await SlowLine.open(t, server, BYTES_PER_SECOND);
        const page = await browser.open(`${line.url}/demo/${name}`, { viewport: PHONE });
        await page.locator("#link[data-state=connected]").waitFor();
        await visit(page);
        assert.equal(await page.locator("#notices p").count(), 0, "it complains");
        browser.assertNoComplaints();
    });
}

test("two chat on slow lines", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const line = await SlowLine.open(t, server, BYTES_PER_SECOND);
    const ann = await Chatter.join(browser, line, "Ann", { viewport: PHONE });
    const bob = await Chatter.join(browser, line, "Bob");
    await ann.say("slowly");
    await bob.receives("slowly");
    browser.assertNoComplaints();
});

test("a stream comes over a slow line chunk by chunk", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { command: "demo" });
    const browser = await Browser.start(t);
    const line = await SlowLine.open(t, server, BYTES_PER_SECOND);
    const page = await browser.open(`${line.url}/demo/stream`, { viewport: PHONE });
    await page.getByLabel("A chunk every").selectOption("250");
    await page.getByRole("button", { name: "Open a stream" }).click();
    await page.getByText("Chunk 3 for Id: 1").waitFor();
    browser.assertNoComplaints();
});
