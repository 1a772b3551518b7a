// The page of streams: chunks as they arrive, several streams, a server that restarts, the charts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Browser, DESKTOP, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";

test("two pages show the chunks of their streams as they arrive", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, browser, page } = await openStream(t, { viewport: DESKTOP });
    const other = await browser.open(`${server.url}/demo/stream`, { viewport: PHONE, before: noteChunks });
    await page.getByLabel("A chunk every").selectOption("250");
    await page.getByRole("button", { name: "Open a stream" }).click();
    await eventually(async () => (await allChunks(page, 2)).slice(0, 4), ["Welcome! Your Id: 2", "Chunk 1 for Id: 2", "Chunk 2 for Id: 2", "Chunk 3 for Id: 2"]);
    for (const one of [page, other]) {
        await eventually(async () => (await allChunks(one, 1)).slice(0, 2), ["Welcome! Your Id: 1", "Chunk 1 for Id: 1"]);
    }
    assert.equal(await page.locator("#link").innerText(), "2 streams");
    await eventually(() => streams(server), 3);
    await eventually(async () => /^\+\d\.\d\d s$/.test(await page.locator("[aria-labelledby=stream-2] .gap").first().innerText()), true);

    // The charts have their lines, and the table both kinds of server.
    assert.equal(await page.locator(".plot canvas").count(), 2);
    assert.match(await page.locator("#runs").innerText(), /one thread for all\s.*MiB.*\s*a thread for each\s.*MiB/);
    await looksRight(page, "stream");
    browser.assertNoComplaints();

    await page.getByRole("button", { name: "Close stream 1" }).click();
    await eventually(() => streams(server), 2);
    await other.close();
    await eventually(() => streams(server), 1);
});

test("a fifth stream is refused by the page, which says what to do", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { page } = await openStream(t, { viewport: PHONE });
    for (let opened = 1; opened < 5; opened += 1) {
        await page.getByRole("button", { name: "Open a stream" }).click();
    }
    await page.getByText("so this page opens 4 streams at most. Close one first.").waitFor();
    await looksRight(page, "stream-many");
    await page.getByRole("button", { name: "Close stream 4" }).click();
    await eventually(() => page.locator("#notices p").count(), 0);
});

test("a stream goes on after the server was killed and started again", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, page } = await openStream(t, { viewport: DESKTOP });
    await server.kill();
    await page.getByText("The stream has ended, because the server stops or is gone. The page asks again by itself.").waitFor();
    await eventually(() => page.locator("#link").innerText(), "Reconnecting…");
    await Server.start(t, server.port);
    await page.locator("#link[data-state=connected]").waitFor();
    await eventually(async () => (await allChunks(page, 1)).join("; ").includes("the stream broke; Welcome! Your Id: 1"), true);
    await eventually(() => page.locator("#notices p").count(), 0);
});

async function openStream(t, options) {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/stream`, { before: noteChunks, ...options });
    await page.locator("#link[data-state=connected]").waitFor();
    return { server, browser, page };
}

/** The chunks of a stream that the page has shown, oldest first. It shows the last ones only. */
function allChunks(page, id) {
    return page.evaluate((id) => globalThis.allChunks[id] ?? [], `stream-${id}`);
}

/** Runs in the page before its own script: notes all chunks that are shown. */
function noteChunks() {
    const all = (globalThis.allChunks = {});
    new MutationObserver((changes) => {
        for (const line of changes.flatMap(({ addedNodes }) => [...addedNodes])) {
            const id = line.parentElement?.closest("[aria-labelledby]")?.getAttribute("aria-labelledby");
            if (line.localName === "li" && id) {
                (all[id] ??= []).push(line.querySelector(".text").innerText);
            }
        }
    }).observe(document, { subtree: true, childList: true });
}

/** The streams that the server has open. */
function streams(server) {
    return server.metric("encke_demo_streams");
}
