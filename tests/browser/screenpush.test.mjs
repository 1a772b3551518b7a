// Screenpush: pictures go from the publisher's page to the viewers, whatever happens on the way.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { BLUE, GREEN, Publisher, RED, RED_PNG, SlowLine, Watcher, colour, hugePng, noisePng, programOf } from "./screen.mjs";
import { looksRight } from "./looks.mjs";
import { Browser, PHONE, Server, TEST_LIMIT_MS, eventually, screenshot } from "./harness.mjs";

const CHANNEL = "/demo/screenpush/demo";

test("viewers see what is shared, a late one at once, and changed tiles where they belong", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const early = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    await early.page.getByText(`Nobody publishes on ${CHANNEL} yet`).waitFor();
    const publisher = await Publisher.open(browser, server, { name: "Ann" });
    await publisher.share();
    await early.sees(640, 400, RED);
    await publisher.paint(colour(GREEN), [100, 100, 200, 150]);
    await early.sees(200, 150, GREEN);
    await early.sees(640, 400, RED);
    await publisher.page.locator("#last", { hasText: "changed tiles" }).waitFor();

    await looksRight(publisher.page, "screenpush");
    await looksRight(early.page, "screenpush-watch");

    // Nothing moves any more, and still the next viewer sees all of it.
    const late = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`, { viewport: PHONE });
    await late.sees(200, 150, GREEN);
    await late.sees(640, 400, RED);
    assert.deepEqual(await late.publishers(), ["Ann"]);
    assert.equal(await late.page.locator("#size").innerText(), "1280 × 800");
    assert.match(await early.page.locator("#delay").innerText(), /^\d+ m?s$/);
    assert.equal(await late.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);

    await publisher.page.getByRole("button", { name: "Stop sharing" }).click();
    await late.page.getByText("Ann has stopped sharing.").waitFor();
    await late.sees(200, 150, GREEN);
    browser.assertNoComplaints();
});

test("sharing and watching go on after the server was killed and started again", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const publisher = await Publisher.open(browser, server, { name: "Ann" });
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    await publisher.share();
    await watcher.sees(640, 400, RED);

    await server.kill();
    await publisher.page.locator("#link[data-state=reconnecting]").waitFor();
    await publisher.page.getByText("The connection to the server is lost.").waitFor();
    await watcher.page.getByText("The connection to the server is lost.").waitFor();
    await screenshot(watcher.page, "screenpush-watch-reconnecting");
    await publisher.paint(colour(BLUE));

    await Server.start(t, server.port);
    await watcher.sees(640, 400, BLUE);
    await eventually(() => publisher.problem(), "");
    assert.deepEqual(await watcher.publishers(), ["Ann"]);
});

test("a picture that the server does not take is refused with its size and what to change", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { flags: ["--message-bytes-max", "200000"] });
    const browser = await Browser.start(t);
    const publisher = await Publisher.open(browser, server, { name: "Ann" });
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    await publisher.share();
    await watcher.sees(640, 400, RED);
    await publisher.choose("Type", "image/png");
    await publisher.noise();
    await eventually(async () => /^Not pushed: the picture needs \d\.\d+ MB\. The server takes 200 kB \(message_bytes_max\)\. Choose JPEG/.test(await publisher.problem()), true);
    await screenshot(publisher.page, "screenpush-too-large");
    // The connection has not suffered, and the next picture that fits is shown.
    await publisher.paint(colour(GREEN));
    await watcher.sees(640, 400, GREEN);
    await eventually(() => publisher.problem(), "");
    browser.assertNoComplaints();
});

test("without the demo's services a picture that is too large costs a reconnect and the same sentence", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { flags: ["--message-bytes-max", "200000", "--no-demo"] });
    const browser = await Browser.start(t);
    const publisher = await Publisher.open(browser, server, { name: "Ann" });
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    await publisher.choose("Type", "image/png");
    await publisher.share();
    await watcher.sees(640, 400, RED);
    await publisher.noise();
    await eventually(async () => /^Not pushed: the picture needs .* That is more than the server takes\. Choose JPEG/.test(await publisher.problem()), true);
    await publisher.paint(colour(GREEN));
    await watcher.sees(640, 400, GREEN);
});

test("two publishers on one channel are both named, and the visitor chooses", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const ann = await Publisher.open(browser, server, { name: "Ann" });
    await ann.share();
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    await watcher.sees(640, 400, RED);
    const bob = await Publisher.open(browser, server, { name: "Bob" });
    await bob.share();
    await bob.paint(colour(BLUE));
    await watcher.page.getByText("Several publish on this channel. Press a name").waitFor();
    await eventually(async () => (await watcher.publishers()).sort(), ["Ann", "Bob"]);
    await watcher.sees(640, 400, RED);
    await watcher.page.getByRole("button", { name: "Bob" }).click();
    await watcher.sees(640, 400, BLUE);
    await screenshot(watcher.page, "screenpush-two");
    // One who closes the tab in the middle is gone, and the other one stays.
    await ann.page.close();
    await eventually(() => watcher.publishers(), ["Bob"]);
    browser.assertNoComplaints();
});

test("a publisher who refuses, loses or ends the sharing reads what to do", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { flags: ["--set", 'channels=[{pattern="/closed/**",publishers="server"}]'] });
    const browser = await Browser.start(t);
    const publisher = await Publisher.open(browser, server, { channel: "/closed/screen" });
    const original = await publisher.page.evaluateHandle(() => navigator.mediaDevices.getDisplayMedia);
    await publisher.page.evaluate(() => {
        navigator.mediaDevices.getDisplayMedia = () => Promise.reject(new DOMException("no", "NotAllowedError"));
    });
    await publisher.page.getByRole("button", { name: "Share a screen" }).click();
    await publisher.page.getByText("Nothing is shared: you chose no screen").waitFor();
    await publisher.page.evaluate((original) => {
        navigator.mediaDevices.getDisplayMedia = original;
    }, original);
    await publisher.share();
    await publisher.page.getByText("Not pushed: the server does not allow the channel /closed/screen").waitFor();
    // As the browser does when the screen is locked, and when the visitor presses its own button.
    await publisher.page.evaluate(() => globalThis.track.dispatchEvent(new Event("mute")));
    await publisher.page.getByText("the screen is locked, or the window is minimised").waitFor();
    await publisher.page.evaluate(() => {
        globalThis.track.dispatchEvent(new Event("unmute"));
        globalThis.track.dispatchEvent(new Event("ended"));
    });
    await publisher.page.getByText("The sharing has ended.").waitFor();
    await publisher.page.getByRole("button", { name: "Share a screen" }).waitFor();
    browser.assertNoComplaints();
});

test("what is no picture is said to be none, and nothing of it runs", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    const publish = await programOf(server);
    await publish({ dataUrl: `data:image/png;base64,${RED_PNG}` });
    await watcher.sees(0, 0, RED);
    const svg = btoa('<svg xmlns="http://www.w3.org/2000/svg" onload="parent.hacked=1"><script>parent.hacked=1</script></svg>');
    for (const [data, words] of [
        [{ type: "image/svg+xml", data: svg }, "The picture is of the type image/svg+xml. Only JPEG, PNG and WebP are shown."],
        [{ dataUrl: `data:text/html;base64,${btoa("<script>hacked=1</script>")}` }, "The picture is of the type text/html."],
        [{ type: "image/png", data: svg }, "it is not of the type image/png"],
        [{ type: "image/png", data: "%%%" }, "its data is not base64"],
        [{ type: "image/png", data: RED_PNG.slice(0, 60) }, "The picture is broken"],
        [{ type: "image/png", data: RED_PNG, width: 9, height: 9 }, "The message says that its picture has 9 × 9 pixels. It has 1 × 1."],
        [{ type: "image/png", data: hugePng() }, "which is too large to show"],
        [{ type: "<img src=x onerror=hacked=1>", data: RED_PNG }, "The picture is of the type <img src=x onerror=hacked=1>."],
        [["<b>"], "The message has no picture."],
        [{ whole: 1, tiles: [0, 1, 2], side: 64, columns: 1, type: "image/png", data: RED_PNG }, "The tiles are not all in the picture"],
    ]) {
        await publish(data);
        await watcher.page.locator("#broken", { hasText: words }).waitFor();
        assert.deepEqual(await watcher.pixel(0, 0), RED, words);
    }
    await screenshot(watcher.page, "screenpush-broken");
    await publish({ type: "image/png", data: RED_PNG, name: "A program" });
    await watcher.page.locator("#broken").waitFor({ state: "hidden" });
    assert.equal(await watcher.page.evaluate(() => globalThis.hacked), undefined);
    browser.assertNoComplaints();
});

test("pictures of each type are shown, and pushed as the settings say", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const publisher = await Publisher.open(browser, server, { name: "Ann" });
    await publisher.page.getByLabel("Largest width").fill("640");
    await publisher.share();
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    await watcher.sees(320, 200, RED);
    for (const [type, words, one] of [["image/png", "PNG", GREEN], ["image/webp", "WebP", BLUE], ["image/jpeg", "JPEG", RED]]) {
        await publisher.choose("Type", type);
        await publisher.paint(colour(one));
        await watcher.sees(320, 200, one);
        await eventually(async () => (await watcher.page.locator("#bytes").innerText()).endsWith(words), true);
        assert.equal(await watcher.page.locator("#size").innerText(), "640 × 400");
    }
    // The forms of WebP that the page itself does not write: without loss, and with transparency.
    const publish = await programOf(server, "/demo/screenpush/other");
    const other = await Watcher.open(browser, `${server.url}/demo/screenpush/watch?channel=/demo/screenpush/other`);
    for (const [colours, quality] of [["#00f", 1], ["#0f08", 0.5]]) {
        await publish({ type: "image/webp", data: await other.page.evaluate(webp, [colours, quality]), sent: Date.now() });
        await eventually(async () => (await other.page.locator("#size").innerText()), quality === 1 ? "30 × 20" : "15 × 10");
        assert.equal(await other.page.locator("#broken").isVisible(), false);
    }
    browser.assertNoComplaints();
});

test("a channel on which hundreds have published lately can still be watched", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const publish = await programOf(server);
    for (let number = 100; number < 360; number++) {
        await publish({ type: "image/png", data: RED_PNG }, `/demo/screenpush/demo/p${number}`);
    }
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    // The last by its name, too, in whose order stored channels come: the page forgets no other after it.
    await watcher.page.getByRole("button", { name: "publisher p359" }).waitFor();
    const publisher = await Publisher.open(browser, server, { name: "Ann" });
    await publisher.share();
    // Which of the stored pictures the page shows by itself depends on the order in which they are decoded.
    await watcher.page.getByRole("button", { name: "Ann", exact: true }).click();
    await watcher.sees(640, 400, RED);
    browser.assertNoComplaints();
});

test("on a slow line the viewer gets the latest picture, and no queue of old ones", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const line = await SlowLine.open(t, server, 150_000);
    const publish = await programOf(server);
    const watcher = await Watcher.open(browser, `${line.url}/demo/screenpush/watch`);
    // The line takes one a second.
    const picture = await watcher.page.evaluate(noisePng);
    await publish({ type: "image/png", data: picture, sent: Date.now() });
    await watcher.page.locator("#stage[data-pictures]").waitFor();
    let number = 0;
    const isSkipping = watcher.page.locator("#skipped", { hasText: "older pictures are skipped" });
    while (number < 20 || !(await isSkipping.isVisible())) {
        await publish({ type: "image/png", data: picture, number: ++number, sent: Date.now() });
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await publish({ type: "image/png", data: RED_PNG, number: ++number, sent: Date.now() });
    await watcher.sees(0, 0, RED);
    const shown = Number(await watcher.page.locator("#stage").getAttribute("data-pictures"));
    assert.ok(shown < number * 0.7, `${shown} of ${number} pictures came over the line`);
    browser.assertNoComplaints();
});

test("the viewer works from another origin and from a file on disk, where the server allows them", { timeout: TEST_LIMIT_MS }, async (t) => {
    const folder = await mkdtemp(join(tmpdir(), "encke-viewer-"));
    t.after(() => rm(folder, { recursive: true }));
    const file = join(folder, "viewer.html");
    await promisify(execFile)(process.execPath, [fileURLToPath(new URL("../../web/viewer.mjs", import.meta.url)), file]);
    const other = await Server.start(t, undefined, { flags: ["--files", folder] });
    const server = await Server.start(t, undefined, { flags: ["--allowed-origins", "*"] });
    const browser = await Browser.start(t);
    const publish = await programOf(server);
    await publish({ type: "image/png", data: RED_PNG });
    for (const page of [`${other.url}/demo/screenpush/watch`, `${other.url}/viewer.html`, pathToFileURL(file)]) {
        const watcher = await Watcher.open(browser, `${page}?server=${server.url}`);
        await watcher.sees(0, 0, RED);
    }
    browser.assertNoComplaints();
    // Another server does not allow them, and the page says what to do.
    const refused = await browser.open(`${pathToFileURL(file)}?server=${other.url}`);
    await refused.getByText('allowed_origins = ["*"], which pages from a disk need').waitFor();
});

test("a real tab is captured, with no stand-in for the browser's own capture", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t, ["--auto-select-tab-capture-source-by-title=Encke target"]);
    const publisher = await browser.open(`${server.url}/demo/screenpush`);
    const target = await publisher.context().newPage();
    await target.goto(`${server.url}/healthz`);
    await target.evaluate((colour) => {
        document.title = "Encke target";
        document.documentElement.style.cssText = `height: 100%; background: ${colour}`;
    }, colour(RED));
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`);
    // The browser's main process chooses the tab by a title that it learns later than the tab itself.
    const main = await publisher.context().browser().newBrowserCDPSession();
    await eventually(async () => {
        const { targetInfos } = await main.send("Target.getTargets");
        return targetInfos.some(({ title }) => title === "Encke target");
    }, true);
    await publisher.getByRole("button", { name: "Share a screen" }).click();
    await watcher.sees(300, 300, RED);
    await target.evaluate((colour) => {
        document.documentElement.style.background = colour;
    }, colour(BLUE));
    await watcher.sees(300, 300, BLUE);
    // The tab that is shared is closed in the middle.
    await target.close();
    await publisher.getByText("The sharing has ended.").waitFor();
    await watcher.page.getByText("has stopped sharing.").waitFor();
    browser.assertNoComplaints();
});

/** Runs in a page: a WebP of this colour. */
async function webp([colour, quality]) {
    const canvas = quality === 1 ? new OffscreenCanvas(30, 20) : new OffscreenCanvas(15, 10);
    const context = canvas.getContext("2d");
    context.fillStyle = colour;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
    return btoa(String.fromCharCode(...bytes));
}
