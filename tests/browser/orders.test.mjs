// The page of orders: replies, refusals, time-outs, a server that restarts while orders wait.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Browser, DESKTOP, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";

test("fifty orders of each page are in flight at the same time, and each gets its reply", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, browser, page } = await openOrders(t, { viewport: DESKTOP });
    const other = await browser.open(`${server.url}/demo/orders`, { viewport: PHONE });
    await page.getByRole("button", { name: "Send an order" }).click();
    await eventually(() => text(page, "answer"), "1");
    assert.match(await orders(page).first().innerText(), /^1\s+answered\s+[\d.]+ m?s\s+order 1, \d+ shares$/);

    for (const one of [page, other]) {
        await one.getByLabel("Delay of the service").fill("3000");
        await one.getByLabel("This page waits").fill("40");
        const most = await mostInFlight(one);
        await one.getByRole("button", { name: "Send 50 at once" }).click();
        await eventually(() => most.jsonValue().then(({ count }) => count), 50);
    }
    await eventually(() => text(page, "answer"), "51");
    await eventually(() => text(other, "answer"), "50");
    // The service has counted the orders of both.
    const numbers = await Promise.all([page, other].map((one) => one.locator("#orders .words").allInnerTexts()));
    assert.equal(new Set(numbers.flat().map((words) => /^order (\d+),/.exec(words)?.[1])).size, 101);
    assert.equal(await histogram(page), 51);
    await eventually(() => barsAreTrue(page), true);
    assert.match(await text(page, "half"), /^\d+\.\d\d s$/);
    await looksRight(page, "orders");
    browser.assertNoComplaints();
});

test("refusals and time-outs are shown with their reasons", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { page } = await openOrders(t, { viewport: PHONE });
    await page.getByLabel("Refused").fill("100");
    await page.getByRole("button", { name: "Send an order" }).click();
    await eventually(() => text(page, "refused"), "1");
    await orders(page).getByText("the order was refused, as asked for").waitFor();

    await page.getByLabel("Refused").fill("0");
    await page.getByLabel("Never answered").fill("100");
    await page.getByLabel("This page waits").fill("2");
    await page.getByRole("button", { name: "Send an order" }).click();
    await eventually(() => text(page, "late"), "1");
    await orders(page).getByText("no answer within 2 s").waitFor();

    // One session may wait for 100 calls; one waits already, although the page no longer does.
    await page.getByLabel("This page waits").fill("40");
    for (let sent = 0; sent < 150; sent += 50) {
        await page.getByRole("button", { name: "Send 50 at once" }).click();
    }
    await eventually(async () => Number(await text(page, "refused")) > 1, true);
    await eventually(() => text(page, "in-flight"), "99");
    await page.getByRole("button", { name: "Send 50 at once" }).click();
    await page.getByRole("button", { name: "Send 50 at once" }).click();
    await looksRight(page, "orders-refused");
    // A service that never answers does not disturb others.
    await page.locator("#link[data-state=connected]").waitFor();
});

test("orders that wait while the server is killed are lost, and later ones are answered", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, page } = await openOrders(t, { viewport: DESKTOP });
    await page.getByLabel("Delay of the service").fill("20000");
    await page.getByLabel("This page waits").fill("40");
    await page.getByRole("button", { name: "Send 50 at once" }).click();
    await eventually(() => text(page, "in-flight"), "50");
    await server.kill();
    await page.getByText("The connection to the server is lost. The page tries again by itself;").waitFor();
    assert.equal(await page.getByRole("button", { name: "Send an order" }).isDisabled(), true);
    await looksRight(page, "orders-lost");

    await Server.start(t, server.port);
    await page.locator("#link[data-state=connected]").waitFor();
    await eventually(() => text(page, "lost"), "50");
    await page.getByLabel("Delay of the service").fill("0");
    await page.getByRole("button", { name: "Keep sending" }).click();
    await eventually(async () => Number(await text(page, "answer")) >= 3, true);
    await page.getByRole("button", { name: "Stop sending" }).click();
    await eventually(() => text(page, "in-flight"), "0");
    await eventually(() => page.locator("#notices p").count(), 0);
});

async function openOrders(t, options) {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/orders`, options);
    await page.locator("#link[data-state=connected]").waitFor();
    return { server, browser, page };
}

function text(page, id) {
    return page.locator(`#${id}`).innerText();
}

function orders(page) {
    return page.locator("#orders tr");
}

/** Notes in the page the highest number of orders in flight that it shows, which may be gone when somebody looks. */
function mostInFlight(page) {
    return page.evaluateHandle(() => {
        const shown = document.getElementById("in-flight");
        const most = { count: 0 };
        new MutationObserver(() => (most.count = Math.max(most.count, Number(shown.textContent)))).observe(shown, { childList: true });
        return most;
    });
}

/** The sum of all counts of the histogram. */
async function histogram(page) {
    return (await page.locator("#histogram .count").allInnerTexts()).reduce((sum, count) => sum + Number(count), 0);
}

/** True if the bars are as high as their counts say. */
async function barsAreTrue(page) {
    const bars = await page.locator(".range").evaluateAll((all) => all.map((bar) => [Number(bar.querySelector(".count").textContent), bar.querySelector(".fill").offsetHeight]));
    const [most, full] = bars.reduce((one, other) => (other[0] > one[0] ? other : one));
    return full > 50 && bars.every(([count, height]) => Math.abs(height - (full * count) / most) <= 1);
}
