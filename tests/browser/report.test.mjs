// The page of a load report: its charts zoom, and their values can be read, with a mouse and with a finger.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";

import { Browser, CLEAN_ENVIRONMENT, DESKTOP, PHONE, PROGRAM, Server, TEST_LIMIT_MS, eventually, screenshot } from "./harness.mjs";

const FOLDER = mkdtempSync(join(tmpdir(), "encke-report-"));
after(() => rmSync(FOLDER, { recursive: true }));
/** The report that the tests open. */
let report;

test("charts of a report zoom by a drag of the mouse and show values under it", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { page, chart, tip } = await openReport(t, { viewport: DESKTOP });
    const whole = await drawing(chart);
    await readAValue(chart, tip, (x, y) => page.mouse.move(x, y));
    const { x, y, width, height } = await chart.locator(".u-over").boundingBox();
    await page.mouse.move(x + 0.2 * width, y + 0.2 * height);
    await page.mouse.down();
    await page.mouse.move(x + 0.7 * width, y + 0.8 * height, { steps: 4 });
    await page.mouse.up();
    await eventually(async () => (await drawing(chart)) === whole, false);
    await page.mouse.dblclick(x + 0.5 * width, y + 0.5 * height);
    await eventually(async () => (await drawing(chart)) === whole, true);
    await screenshot(page, "report-desktop");
});

test("charts of a report zoom by a horizontal move of a finger and show values at a tap", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { page, chart, tip } = await openReport(t, { viewport: PHONE, hasTouch: true, isMobile: true });
    const whole = await drawing(chart);
    await readAValue(chart, tip, (x, y) => page.touchscreen.tap(x, y));
    const { x, y, width, height } = await chart.locator(".u-over").boundingBox();
    const finger = await page.context().newCDPSession(page);
    const move = async (dx, dy) => {
        const at = (step) => [{ x: x + (0.4 + dx * step) * width, y: y + (0.5 + dy * step) * height }];
        await finger.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: at(0) });
        for (const step of [0.25, 0.5, 0.75, 1]) {
            await finger.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: at(step) });
        }
        await finger.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
    };
    await move(0.4, 0);
    await eventually(async () => (await drawing(chart)) === whole, false);
    // The times say that it is a double tap, however long the machine takes for it.
    const tap = (type, timestamp) => finger.send("Input.dispatchTouchEvent", { type, timestamp, touchPoints: type === "touchEnd" ? [] : [{ x: x + 0.5 * width, y: y + 0.5 * height }] });
    const now = Date.now() / 1_000;
    await Promise.all([tap("touchStart", now), tap("touchEnd", now + 0.02), tap("touchStart", now + 0.1), tap("touchEnd", now + 0.12)]);
    await eventually(async () => (await drawing(chart)) === whole, true);
    const scrolled = await page.evaluate(() => scrollY);
    await move(0, -0.5);
    await eventually(async () => (await page.evaluate(() => scrollY)) > scrolled, true);
    assert.equal(await drawing(chart), whole, "a vertical move zooms");
    await screenshot(page, "report-phone");
});

/** Measures for a moment. */
async function measure(t) {
    const server = await Server.start(t);
    const file = join(FOLDER, "report.html");
    const load = ["bench", "broadcast", "--target", server.url, "--clients", "10", "--rate", "20", "--warm-up", "0s", "--duration", "3s"];
    // A busy machine may fail the run; its report is as good here.
    try {
        execFileSync(PROGRAM, [...load, "--quiet", "--html", file], { env: CLEAN_ENVIRONMENT, stdio: "ignore" });
    } catch {}
    return pathToFileURL(file);
}

/** Opens the report at its first chart. */
async function openReport(t, options) {
    report ??= await measure(t);
    const browser = await Browser.start(t);
    t.after(() => browser.assertNoComplaints());
    const page = await browser.open(String(report), options);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0, "the page is too wide");
    const chart = page.locator(".plot").first();
    await chart.scrollIntoViewIfNeeded();
    await page.evaluate(() => scrollTo(0, document.querySelector(".plot").getBoundingClientRect().top + scrollY - 100));
    return { page, chart, tip: chart.locator(".tip") };
}

/** Points at a grid of positions until a value is shown; all of its text is inside of the chart. */
async function readAValue(chart, tip, pointAt) {
    const { x, y, width, height } = await chart.locator(".u-over").boundingBox();
    // A tap becomes a move of the mouse some time later.
    const moves = await chart.locator(".u-over").evaluateHandle((over) => {
        const moves = { count: 0 };
        over.addEventListener("mousemove", () => (moves.count += 1));
        return moves;
    });
    for (let step = 0; step < 100 && !(await tip.isVisible()); step++) {
        await pointAt(x + ((step % 10) + 0.5) * 0.1 * width, y + (Math.floor(step / 10) + 0.5) * 0.1 * height);
        await eventually(async () => (await moves.jsonValue()).count > step, true);
    }
    assert.match(await tip.innerText(), /\S: [\d.,]+/);
    const cut = await tip.evaluate((element) => element.scrollWidth - element.clientWidth);
    assert.equal(cut, 0, "a part of the value is cut off");
}

/** The chart's picture; a cursor is not in it. */
function drawing(chart) {
    return chart.locator("canvas").evaluate((canvas) => canvas.toDataURL());
}
