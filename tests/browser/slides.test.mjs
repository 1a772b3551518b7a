// The slide show: viewers follow, look back, leave and come again.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BLUE, GREEN, RED } from "./screen.mjs";
import { looksRight } from "./looks.mjs";
import { Browser, DESKTOP, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";

test("viewers follow the slides of a presenter, look back, leave and come again", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const early = await watch(browser, server);
    await early.getByText("Nobody presents in the room “demo” yet").waitFor();
    const presenter = await present(browser, server, "Ann");
    await sees(early, RED, "Slide 1 of 3 · Ann");
    await presenter.getByLabel("Notes on this slide").fill("red <b>notes</b>");
    await presenter.keyboard.press("Tab");
    await early.locator("#notes", { hasText: "red <b>notes</b>" }).waitFor();
    await presenter.getByRole("button", { name: "Next slide" }).click();
    await sees(early, GREEN, "Slide 2 of 3 · Ann");
    assert.equal(await early.locator("#notes-part").isVisible(), false);

    await looksRight(presenter, "slides");

    // One who comes late sees the slide of now, and may look back.
    const late = await watch(browser, server, { viewport: PHONE });
    await sees(late, GREEN, "Slide 2 of 3 · Ann");
    await late.keyboard.press("ArrowLeft");
    await sees(late, RED, "Slide 1 of 3 · Ann");
    await late.locator("#notes", { hasText: "red <b>notes</b>" }).waitFor();
    await presenter.locator("#slide").click();
    await presenter.keyboard.press("ArrowRight");
    await sees(early, BLUE, "Slide 3 of 3 · Ann");
    await late.getByText("Ann shows slide 3.").waitFor();
    assert.deepEqual(await pixel(late), RED);
    await looksRight(late, "slides-watch");
    await late.getByRole("button", { name: "Follow again" }).click();
    await sees(late, BLUE, "Slide 3 of 3 · Ann");
    assert.equal(await late.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);

    // One who leaves and comes again is at the slide of now.
    await early.getByRole("button", { name: "Leave" }).click();
    await presenter.getByRole("button", { name: "Slide before" }).click();
    await early.getByRole("button", { name: "Join" }).click();
    await sees(early, GREEN, "Slide 2 of 3 · Ann");
    await presenter.getByRole("button", { name: "Stop presenting" }).click();
    await early.getByText("Ann has stopped.").waitFor();
    browser.assertNoComplaints();
});

test("a talk goes on after the server was killed and started again, and so does looking back", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const presenter = await present(browser, server, "Ann");
    const viewer = await watch(browser, server);
    await sees(viewer, RED, "Slide 1 of 3 · Ann");
    await server.kill();
    await viewer.getByText("The connection to the server is lost.").waitFor();
    await presenter.getByRole("button", { name: "Next slide" }).click();
    await Server.start(t, server.port);
    await sees(viewer, GREEN, "Slide 2 of 3 · Ann");
    // The new server has got the first slide again, for those who come now.
    const late = await watch(browser, server);
    await sees(late, GREEN, "Slide 2 of 3 · Ann");
    await late.getByRole("button", { name: "Slide before" }).click();
    await sees(late, RED, "Slide 1 of 3 · Ann");
});

test("the pages of a PDF are slides, and what is neither picture nor PDF is said so", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const viewer = await watch(browser, server);
    const presenter = await browser.open(`${server.url}/demo/slides`);
    const before = await presenter.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name));
    assert.equal(before.some((name) => name.includes("pdf")), false, "pdf.js is loaded when it is needed, not before");
    await presenter.getByLabel("Pictures or a PDF").setInputFiles([
        { name: "talk.pdf", mimeType: "application/pdf", buffer: pdf(["1 0 0", "0 1 0"]) },
        { name: "notes.html", mimeType: "text/html", buffer: Buffer.from("<script>hacked=1</script>") },
        { name: "broken.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF-1.7 nothing") },
    ]);
    await presenter.getByText("“notes.html” is not shown").waitFor();
    await presenter.getByText("“broken.pdf” is not shown").waitFor();
    await presenter.getByRole("button", { name: "Start presenting" }).click();
    await sees(viewer, RED, "Slide 1 of 2");
    await presenter.getByRole("button", { name: "Next slide" }).click();
    await sees(viewer, GREEN, "Slide 2 of 2");
});

test("a second presenter in a room reads that there is another one", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const ann = await present(browser, server, "Ann");
    const bob = await present(browser, server, "Bob");
    await ann.getByText("Bob presents in the room “demo”, too").waitFor();
    await ann.getByRole("button", { name: "Next slide" }).click();
    await bob.getByText("Ann presents in the room “demo”, too").waitFor();
    browser.assertNoComplaints();
});

async function watch(browser, server, options = {}) {
    const page = await browser.open(`${server.url}/demo/slides/watch`, { viewport: DESKTOP, ...options });
    await page.locator("#link[data-state=connected]").waitFor();
    return page;
}

/** Presents three slides: red, green, blue. */
async function present(browser, server, name) {
    const page = await browser.open(`${server.url}/demo/slides`);
    await page.getByLabel("Your name").fill(name);
    const files = await page.evaluate(async (colours) => Promise.all(colours.map(async ([red, green, blue]) => {
        const canvas = new OffscreenCanvas(640, 400);
        const context = canvas.getContext("2d");
        context.fillStyle = `rgb(${red} ${green} ${blue})`;
        context.fillRect(0, 0, 640, 400);
        return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
    })), [RED, GREEN, BLUE]);
    await page.getByLabel("Pictures or a PDF").setInputFiles(files.map((bytes, at) => ({ name: `${at + 1}.png`, mimeType: "image/png", buffer: Buffer.from(bytes) })));
    await page.locator("#position", { hasText: "Slide 1 of 3" }).waitFor();
    await page.getByRole("button", { name: "Start presenting" }).click();
    await page.locator("#link[data-state=connected]").waitFor();
    return page;
}

async function sees(page, colour, position) {
    const isNear = (found) => found?.every((value, at) => Math.abs(value - colour[at]) < 24);
    await eventually(async () => [await page.locator("#position").innerText(), isNear(await pixel(page)) || String(await pixel(page))], [position, true]);
}

function pixel(page) {
    return page.evaluate(() => {
        const canvas = document.querySelector("#slide");
        if (canvas.hidden) {
            return undefined;
        }
        const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, canvas.width / 2, canvas.height / 2, 1, 1, 0, 0, 1, 1);
        const near = [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        return near.map((value) => (value > 231 ? 255 : value < 24 ? 0 : value));
    });
}

/** A PDF with a page of each colour. */
function pdf(colours) {
    const pages = colours.map((_, at) => `${3 + 2 * at} 0 R`).join(" ");
    const objects = ["<< /Type /Catalog /Pages 2 0 R >>", `<< /Type /Pages /Kids [${pages}] /Count ${colours.length} >>`];
    colours.forEach((colour, at) => {
        const drawing = `${colour} rg 0 0 320 200 re f`;
        objects.push(`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 320 200] /Resources << >> /Contents ${4 + 2 * at} 0 R >>`);
        objects.push(`<< /Length ${drawing.length} >>\nstream\n${drawing}\nendstream`);
    });
    let text = "%PDF-1.4\n";
    const starts = objects.map((object, at) => {
        const start = text.length;
        text += `${at + 1} 0 obj\n${object}\nendobj\n`;
        return start;
    });
    const start = text.length;
    text += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${starts.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("")}`;
    return Buffer.from(`${text}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`);
}
