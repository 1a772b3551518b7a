// The start page: its live example, its snippets, how it is served.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
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
    await eventually(() => clientId !== undefined, true);
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

test("the request of the snippet for curl waits for the next message", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [page, run] = await pageWithShell(t);
    const answer = run(await page.locator("#hold").innerText());
    let isAnswered = false;
    answer.finally(() => (isAnswered = true));
    // The request may still be on its way when the first messages pass.
    while (!isAnswered) {
        await publish(page, "for all who wait");
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.match(await answer, /"for all who wait"/);
});

for (const [id, command, text] of [["node", "node --input-type=module", "hi from Node"], ["python", "python3 -", "hi from Python"]]) {
    test(`the snippet for ${id} does what it says`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const [page] = await pageWithShell(t);
        // Here are the packages that the page names.
        const program = spawn("bash", ["-c", command], { cwd: fileURLToPath(new URL(".", import.meta.url)), env: CLEAN_ENVIRONMENT, stdio: ["pipe", "ignore", "inherit"] });
        t.after(() => program.kill());
        program.stdin.end(await page.locator(`#${id}`).innerText());
        await eventually(async () => (await arrivals(page)).includes(`${text} from a program`), true);
    });
}

test("the snippet for a page does what it says", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [page] = await pageWithShell(t);
    const { build } = await import(new URL("../../web/node_modules/esbuild/lib/main.js", import.meta.url));
    const contents = await page.locator("#page").innerText();
    const bundle = await build({ stdin: { contents, resolveDir: fileURLToPath(new URL("../../web", import.meta.url)) }, bundle: true, write: false, logLevel: "error" });
    // A page of one's own has no policy.
    const other = await page.context().newPage();
    await other.goto(new URL("/healthz", page.url()).href);
    const printed = other.waitForEvent("console", (message) => message.text() === "hi from a page");
    await other.evaluate(bundle.outputFiles[0].text);
    await printed;
    await eventually(async () => (await arrivals(page)).includes("hi from a page from a program"), true);
});

test("the snippets in Rust and Java are those that are compiled elsewhere", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await openStart(browser, server);
    for (const [id, file] of [["rust", "crates/encke-client/examples/hello.rs"], ["java", "tests/java/src/test/java/encke/interop/Hello.java"]]) {
        const compiled = lines(await readFile(new URL(`../../${file}`, import.meta.url), "utf8"));
        const shown = lines((await page.locator(`#${id}`).innerText()).replaceAll(server.url, "http://127.0.0.1:8080"));
        const from = compiled.indexOf(shown[0]);
        assert.deepEqual(compiled.slice(from, from + shown.length), shown, id);
    }
});

test("the links of the page lead somewhere", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await openStart(browser, server);
    const links = await page.locator("a[href^='/']").evaluateAll((all) => [...new Set(all.map((link) => link.href))]);
    assert.equal(links.filter((link) => link.includes("/demo/")).length, 9);
    for (const link of links) {
        assert.equal((await fetch(link)).status, 200, link);
    }
});

test("the menu has every demo, and closes by the keyboard", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/chat`);
    await page.getByText("Chat", { exact: true }).first().press("Enter");
    const menu = page.getByRole("navigation", { name: "Demos" });
    assert.equal(await menu.getByRole("link").count(), 9);
    assert.equal(await menu.locator("[aria-current=page]").innerText(), "Chat");
    await looksRight(page, "menu");
    await page.keyboard.press("Escape");
    await menu.waitFor({ state: "hidden" });
    browser.assertNoComplaints();
});

test("the pictures show what happens on the channels of the demos", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { command: "demo" });
    const browser = await Browser.start(t);
    const page = await openStart(browser, server);
    const line = page.locator("#quotes-picture path").first();
    const before = await line.getAttribute("d");
    await eventually(async () => (await line.getAttribute("d")) !== before, true);
    const game = await browser.open(`${server.url}/demo/game`);
    await game.locator("#link[data-state=connected]").waitFor();
    const pieces = () => page.locator("#game-picture i").evaluateAll((cells) => cells.map((cell) => (cell.firstElementChild === null ? "." : "x")).join(""));
    for (const side of ["white", "black"]) {
        await game.evaluate(() => sessionStorage.clear());
        await game.reload();
        await game.getByLabel("Your name").fill(side);
        await game.getByRole("button", { name: `Play ${side}` }).click();
        await game.locator(`#seat-${side}`).getByText("(you)").waitFor();
    }
    await page.getByText("white against black.").waitFor();
    const rank = "xxxxxxxx";
    await eventually(pieces, `${rank}${rank}${".".repeat(32)}${rank}${rank}`);
    await looksRight(page, "start-live");
    browser.assertNoComplaints();
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

/** The messages that arrived, and whence, newest first, without the time of day. */
function arrivals(page) {
    return page.locator("#arrivals li").evaluateAll((items) => items.map((item) => `${item.children[0].textContent} ${item.children[1].textContent}`));
}

function withoutTime(text) {
    return text.replace(/\d+\.\d ms/, "N ms");
}

/** The lines of a text without their indentation. */
function lines(text) {
    return text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}
