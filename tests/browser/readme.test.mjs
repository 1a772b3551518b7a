// The pictures of the README, in target/browser/readme: `make pictures` copies them to docs/images.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Studio, film } from "./film.mjs";
import { Browser, DESKTOP, PHONE, SCREENSHOTS, Server, TEST_LIMIT_MS } from "./harness.mjs";
import { Watcher } from "./screen.mjs";

const FOLDER = join(SCREENSHOTS, "readme");
const FRAMES = 8;
const FRAME_MS = 500;
/** All pictures of the README together. */
const MAX_BYTES = 300_000;

test("the README shows quotes that Screenpush pushes to a phone, and the start page", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t, undefined, { command: "demo" });
    const browser = await Browser.start(t);
    const studio = await Studio.open(browser, server);
    const quotes = await browser.open(`${server.url}/demo/quotes#${SYMBOLS.join(",")}`, { viewport: DESKTOP });
    await quotes.locator("#link[data-state=connected]").waitFor();
    const publisher = await browser.open(`${server.url}/demo/screenpush`, { before: paintedScreen });
    await publisher.getByLabel("Your name").fill("Caroline");
    await publisher.getByRole("button", { name: "Share a screen" }).click();
    const watcher = await Watcher.open(browser, `${server.url}/demo/screenpush/watch`, { viewport: PHONE });

    const stills = [];
    for (let frame = -1; frame < FRAMES; frame++) {
        const png = await quotes.screenshot();
        await publisher.evaluate((base64) => globalThis.paintPicture(base64), png.toString("base64"));
        await quotes.waitForTimeout(FRAME_MS);
        // The first one lets the table and the picture fill.
        if (frame >= 0) {
            const phone = await watcher.page.screenshot();
            stills.push(await studio.picture(WIDTH, HEIGHT, [{ png, x: 12, y: 12, width: 608 }, { png: phone, x: 632, y: 12, width: 176 }], 0.55));
        }
    }
    const start = await browser.open(server.url);
    await start.locator("#link[data-state=connected]").waitFor();
    await start.waitForTimeout(4 * FRAME_MS);
    const still = await studio.picture(820, 1040, [{ png: await start.screenshot({ fullPage: true }), x: 0, y: 0, width: 820 }], 0.7);

    const pictures = { "demos.webp": film(stills, WIDTH, HEIGHT, FRAME_MS), "start.webp": still };
    mkdirSync(FOLDER, { recursive: true });
    for (const [name, bytes] of Object.entries(pictures)) {
        writeFileSync(join(FOLDER, name), bytes);
    }
    const bytes = Object.values(pictures).reduce((sum, { length }) => sum + length, 0);
    assert.ok(bytes <= MAX_BYTES, `the pictures take ${bytes} bytes`);
    // A browser takes the film for one, of the right size.
    const shown = await studio.sizeOf(pictures["demos.webp"]);
    assert.deepEqual(shown, { width: WIDTH, height: HEIGHT, frames: FRAMES });
});

/** Runs in the page before its own script: a screen that shows pictures. */
function paintedScreen() {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [1280, 800];
    const context = canvas.getContext("2d");
    context.fillRect(0, 0, 1280, 800);
    let track;
    globalThis.paintPicture = async (base64) => {
        const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
        context.drawImage(await createImageBitmap(new Blob([bytes])), 0, 0);
        track?.requestFrame();
    };
    navigator.mediaDevices.getDisplayMedia = async () => {
        const stream = canvas.captureStream(0);
        track = stream.getVideoTracks()[0];
        track.requestFrame();
        return stream;
    };
}

const WIDTH = 820;
const HEIGHT = 404;
const SYMBOLS = ["S0001", "S0042", "S0137", "S0314", "S0577", "S0815", "S1024", "S1729", "S2718", "S2999"];
