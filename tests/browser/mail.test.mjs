// The mail notifier: a real source, both ways to wait, a source that is off, a server that restarts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Browser, DESKTOP, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";
import { Mailbox } from "./mailbox.mjs";

test("a new mail comes by the held request and by the subscription of two pages", { timeout: TEST_LIMIT_MS }, async (t) => {
    const mailbox = await Mailbox.start(t);
    const { server, browser, page } = await openMail(t, { viewport: DESKTOP }, mailbox.source("home"));
    const other = await browser.open(`${server.url}/demo/mail?transport=long-polling`, { viewport: PHONE });
    await eventually(() => page.locator("#accounts").innerText(), "home");
    for (const one of [page, other]) {
        await bothWait(one);
    }
    // The requests of both pages, and the connect of the second one.
    await eventually(() => server.metric("encke_held_requests"), 3);
    // Mails that are there before the first look are not new.
    await eventually(() => mailbox.looks > 0, true);
    mailbox.put("Ann <ann@example.org>", "<b>Comet</b> tonight");
    for (const one of [page, other]) {
        for (const way of ["held", "subscribed"]) {
            await eventually(() => subjects(one, way), ["<b>Comet</b> tonight"]);
            assert.match(await one.locator(`#${way} .sender`).innerText(), /^Ann to home$/);
            await eventually(async () => /^waited \d+\.\d s, [\d.,]+ (bytes|kB) since the last mail$/.test(await one.locator(`#${way} .price`).innerText()), true);
            await eventually(async () => (await one.locator(`#${way} .received`).innerText()) === "0 bytes", false);
        }
    }
    // Each mail takes a request; the WebSocket stays.
    assert.equal(await page.locator("#subscribed .requests").innerText(), "1");
    await looksRight(page, "mail");
    browser.assertNoComplaints();
});

test("while no source looks for mails the page says how to switch one on, and test mails come both ways", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, page } = await openMail(t, { viewport: PHONE }, "");
    await page.getByText("No source looks for mails on this server;").waitFor();
    assert.match(await page.locator("#notices pre").innerText(), /^\[\[source\]\]\nkind = "mail"/);
    await bothWait(page);
    await eventually(() => server.metric("encke_held_requests"), 1);
    await page.getByRole("button", { name: "Send a test mail" }).click();
    for (const way of ["held", "subscribed"]) {
        await eventually(async () => (await subjects(page, way)).length, 1);
    }
    await looksRight(page, "mail-off");
    await server.reload((await Mailbox.start(t)).source("office"));
    await eventually(() => page.locator("#accounts").innerText(), "office");
    await eventually(() => page.locator("#notices p").count(), 0);
});

test("both ways wait again after the server was killed and started again", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, page } = await openMail(t, { viewport: DESKTOP }, "");
    await bothWait(page);
    await eventually(() => server.metric("encke_held_requests"), 1);
    await server.kill();
    await page.getByText("The server does not answer the request. The page tries again by itself.").waitFor();
    await page.getByText("The connection to the server is lost. The page tries again by itself;").waitFor();
    const again = await Server.start(t, server.port);
    await bothWait(page);
    await eventually(() => page.locator("#notices [data-key=hold], #notices [data-key=link]").count(), 0);
    await eventually(() => again.metric("encke_held_requests"), 1);
    await page.getByRole("button", { name: "Send a test mail" }).click();
    for (const way of ["held", "subscribed"]) {
        await eventually(async () => (await subjects(page, way)).length, 1);
    }
});

async function openMail(t, options, config) {
    const server = await Server.start(t, undefined, { config });
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/mail`, options);
    return { server, browser, page };
}

async function bothWait(page) {
    await page.locator("#link[data-state=connected]").waitFor();
    for (const way of ["held", "subscribed"]) {
        await page.locator(`#${way} .state[data-waits=true]`).waitFor();
    }
}

function subjects(page, way) {
    return page.locator(`#${way} .subject`).allInnerTexts();
}
