// The start page: its live example, its snippets, how it is served.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { looksRight } from "./looks.mjs";
import { Browser, CLEAN_ENVIRONMENT, DESKTOP, PHONE, PROGRAM, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";

test("what one window publishes arrives in every window", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const one = await openStart(browser, server, { viewport: DESKTOP });
    const other = await openStart(browser, server, { viewport: PHONE });
    await publish(one, "hello from <i>one</i>");
    await eventually(() => arrivals(other), ["hello from <i>one</i> from another window"]);
    await publish(other, "and back");
    await eventually(async () => (await arrivals(one)).map(withoutTime), ["and back from another window", "hello from <i>one</i> from this window, N ms"]);
    assert.match(await one.locator("#round-trip").innerText(), /^\d+\.\d ms$/);
    assert.equal(await one.locator("#transport").innerText(), "WebSocket");

    await looksRight(one, "start");
    browser.assertNoComplaints();
});

test("the page never shows its session id", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const context = await browser.open("about:blank");
    let clientId;
    context.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => {
        clientId ??= /"clientId":"([^"]+)"/.exec(String(payload))?.[1];
    }));
    await context.goto(server.url);
    await context.locator("#link[data-state=connected]").waitFor();
    assert.ok(clientId, "no session id seen on the wire");
    assert.equal((await context.content()).includes(clientId), false);
});

test("the snippet for curl does what it says", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [page, run] = await pageWithShell(t);
    assert.match(await run(await page.locator("#curl").innerText()), /"successful":true/);
    await eventually(() => arrivals(page), ["hi from a program"]);
});

test("the snippet for the shell does what it says", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [page, run] = await pageWithShell(t);
    const snippet = await page.locator("#shell").innerText();
    assert.match(snippet, /^encke subscribe \/demo\/hello$/m);
    const once = snippet.replace("encke subscribe", "encke subscribe --count 1");
    // The subscriber waits for the message of a second publisher, started beside it and repeated until the message arrives.
    const received = run(`${once} & wanted=$!; while kill -0 $wanted 2>/dev/null; do encke publish /demo/hello '"again"' >/dev/null; done; wait $wanted`);
    assert.match(await received, /again/);
    await eventually(async () => (await arrivals(page)).includes("again from a program"), true);
});

test("the links of the page lead somewhere", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await openStart(browser, server);
    const links = await page.locator("a[href^='/']").evaluateAll((all) => [...new Set(all.map((link) => link.href))]);
    assert.equal(links.length, 4);
    for (const link of links) {
        assert.equal((await fetch(link)).status, 200, link);
    }
});

test("every page is served compressed, with a policy that forbids inline scripts and other hosts", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    for (const [path, type] of [["/", "text/html"], ["/demo/chat", "text/html"], ["/demo/chat/", "text/html"], ["/assets/chat.js", "text/javascript"], ["/assets/timer.js", "text/javascript"], ["/assets/encke.css", "text/css"], ["/assets/comet.svg", "image/svg+xml"]]) {
        const reply = await fetch(server.url + path);
        assert.equal(reply.status, 200, path);
        assert.equal(reply.headers.get("content-type")?.split(";")[0], type, path);
        assert.equal(reply.headers.get("x-content-type-options"), "nosniff", path);
        if (type === "text/html") {
            const policy = reply.headers.get("content-security-policy") ?? "";
            assert.match(policy, /default-src 'self'/, path);
            assert.doesNotMatch(policy, /unsafe/, path);
        }
        const form = (coding) => fetch(server.url + path, { headers: { "accept-encoding": coding } });
        const plain = await (await form("identity")).text();
        for (const coding of path === "/assets/timer.js" ? [] : ["br", "gzip"]) {
            const packed = await form(coding);
            assert.equal(packed.headers.get("content-encoding"), coding, path);
            assert.equal(await packed.text(), plain, path);
        }
    }
});

async function openStart(browser, server, options) {
    const page = await browser.open(server.url, options);
    await page.locator("#link[data-state=connected]").waitFor();
    return page;
}

/** The start page, and a way to run what it shows in a shell that knows the program as `encke`. */
async function pageWithShell(t) {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await openStart(browser, server);
    const cwd = await mkdtemp(join(tmpdir(), "encke-snippet-"));
    t.after(() => rm(cwd, { recursive: true }));
    const run = async (script) => {
        const withProgram = `encke() { '${PROGRAM}' "$@"; }\n${script}`;
        const { stdout } = await promisify(execFile)("bash", ["-c", withProgram], { cwd, env: CLEAN_ENVIRONMENT, timeout: TEST_LIMIT_MS / 2 });
        return stdout;
    };
    return [page, run];
}

async function publish(page, text) {
    await page.getByLabel("Message to publish on /demo/hello").fill(text);
    await page.getByRole("button", { name: "Publish" }).click();
}

/** What arrived and whence, newest first, without the time of day. */
function arrivals(page) {
    return page.locator("#arrivals li").evaluateAll((items) => items.map((item) => `${item.children[0].textContent} ${item.children[1].textContent}`));
}

function withoutTime(text) {
    return text.replace(/\d+\.\d ms/, "N ms");
}
