// The presence page: who is here, who comes and goes, and what a reload, a break and a restart are not.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Browser, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";

test("each window sees who comes and goes", { timeout: TEST_LIMIT_MS }, async (t) => {
    // A short grace, so that the test need not wait for it.
    const server = await Server.start(t, undefined, { command: "demo", flags: ["--presence-grace-ms", "100", "--presence-interval-ms", "50"] });
    const browser = await Browser.start(t);
    const [ann, bob] = await annAndBob(browser, server);
    const nameless = await browser.open(`${server.url}/demo/presence`);
    await eventually(() => ann.locator("#anonymous").innerText(), "1");
    const carl = await visitor(browser, server, "Carl");
    for (const page of [ann, bob]) {
        await eventually(() => names(page), ["Ann", "Bob <b>", "Carl"]);
    }
    await looksRight(ann, "presence");
    await carl.close({ runBeforeUnload: true });
    await eventually(() => names(bob), ["Ann", "Bob <b>"]);
    await eventually(() => events(ann), ["Carl left", "Carl came", "Bob <b> came"]);
    await eventually(() => nameless.locator("#notices").innerText(), "");
    browser.assertNoComplaints();
});

test("a reload is neither a leave nor a join", { timeout: TEST_LIMIT_MS }, async (t) => {
    // A grace that no reload outlasts, however busy the machine.
    const server = await Server.start(t, undefined, { command: "demo", flags: ["--presence-grace-ms", "600000", "--presence-interval-ms", "50"] });
    const browser = await Browser.start(t);
    const [ann, bob] = await annAndBob(browser, server);
    await bob.reload();
    await eventually(() => names(bob), ["Ann", "Bob <b>"]);
    await visitor(browser, server, "Carl");
    await eventually(() => names(ann), ["Ann", "Bob <b>", "Carl"]);
    assert.deepEqual(await events(ann), ["Carl came", "Bob <b> came"]);
    browser.assertNoComplaints();
});

test("after a restart the list is that of the new server", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { command: "demo" });
    const browser = await Browser.start(t);
    const ann = await visitor(browser, server, "Ann");
    const bob = await visitor(browser, server, "Bob");
    await eventually(() => names(ann), ["Ann", "Bob"]);
    await server.kill();
    await ann.getByText("The page tries again by itself").waitFor();
    await bob.close();
    await Server.start(t, server.port, { command: "demo" });
    await eventually(() => names(ann), ["Ann"]);
    await eventually(() => ann.locator("#notices").innerText(), "");
    await ann.getByLabel("Your name").fill("Anna");
    await ann.getByRole("button", { name: "Come in" }).click();
    await eventually(async () => (await names(ann)).includes("Anna"), true);
});

test("a server that gives visitors no names says how it would", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await visitor(browser, server, "Ann");
    await page.getByText("This server does not take the names that visitors choose").waitFor();
    await eventually(() => page.locator("#anonymous").innerText(), "1");
    await looksRight(page, "presence-nameless");
    browser.assertNoComplaints();
});

test("a server without presence says how to switch it on", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { flags: ["--no-demo"] });
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/presence`);
    await page.getByText("This server announces no presence here.").waitFor();
    await looksRight(page, "presence-off");
});

/** Two visitors who see each other. */
async function annAndBob(browser, server) {
    const ann = await visitor(browser, server, "Ann");
    await eventually(() => names(ann), ["Ann"]);
    const bob = await visitor(browser, server, "Bob <b>", { viewport: PHONE });
    for (const page of [ann, bob]) {
        await eventually(() => names(page), ["Ann", "Bob <b>"]);
    }
    return [ann, bob];
}

async function visitor(browser, server, name, options) {
    const page = await browser.open(`${server.url}/demo/presence`, options);
    await page.locator("#link[data-state=connected]").waitFor();
    await page.getByLabel("Your name").fill(name);
    await page.getByRole("button", { name: "Come in" }).click();
    await page.locator("#link[data-state=connected]").waitFor();
    return page;
}

function names(page) {
    return page.locator("#members .name").allInnerTexts();
}

function events(page) {
    return page.locator("#events .event > span").allInnerTexts();
}
