// The page of quotes: the choice of symbols, prices that move, a source that is off, a server that restarts, a slow line.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Browser, DESKTOP, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";

/** `more`: further lines for the source, which has 3,000 symbols and two rounds a second otherwise. */
const configWith = (more) => `
[[source]]
kind = "quotes"
${more}

[[channels]]
pattern = "/stock/**"
slow_consumer = "keep-latest"
slow_consumer_bytes = 16384
`;

/** Fewer symbols: a page gets the quotes of all of them until it knows their names. */
const FEW = configWith("symbols = 300");

test("two pages show the latest prices of the symbols that each has chosen", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, browser, page } = await openQuotes(t, { viewport: DESKTOP }, configWith("interval_ms = 1000"));
    await eventually(() => text(page, "count"), "20 of 3,000");
    await eventually(() => symbols(page), Array.from({ length: 20 }, (_, index) => `S00${String(index).padStart(2, "0")}`));

    // By the keyboard alone.
    await page.getByRole("combobox", { name: "Symbol to add" }).fill("2999");
    await page.getByRole("option", { name: "S2999" }).waitFor();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await eventually(async () => (await symbols(page)).at(-1), "S2999");
    await page.getByRole("button", { name: "Remove S0003" }).click();
    await eventually(async () => (await symbols(page)).includes("S0003"), false);
    await eventually(() => text(page, "count"), "20 of 3,000");

    // The address is the choice.
    const other = await browser.open(page.url(), { viewport: PHONE });
    await eventually(() => symbols(other), await symbols(page));
    for (const one of [page, other]) {
        await pricesMove(one, "S0000");
    }
    assert.match(await row(page, "S0000").innerText(), /^S0000\s+\d+\.\d\d\s+\d+\.\d\d\s+\d+\.\d\d\s+(▲ \+|▼ −|= )\d+\.\d\d %/);
    await eventually(async () => (await row(page, "S0000").locator("[data-move=up], [data-move=down]").count()) > 0, true);
    await eventually(async () => /^\d+ ms$/.test(await text(page, "pace")), true);

    await looksRight(page, "quotes");
    browser.assertNoComplaints();
    assert.equal((await fetch(`${server.url}/demo/quotes/`)).status, 200);
});

test("of 200 symbols only the rows in view are drawn, and the others when they come into view", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { page } = await openQuotes(t, { viewport: DESKTOP }, FEW);
    await eventually(() => text(page, "count"), "20 of 300");
    await page.getByRole("button", { name: "Remove all" }).click();
    await page.getByText("No symbol is chosen.").waitFor();
    await page.getByRole("button", { name: "Add 200" }).click();
    await eventually(() => text(page, "count"), "200 of 300");
    await pricesMove(page, "S0000");

    // Five rounds of 200 quotes: a row's frame changes some cells of the rows in view, and nothing else.
    const drawn = await page.evaluate(() => new Promise((resolve) => {
        const [rows, frames, rounds] = [new Set(), new Set(), new Set()];
        let frame = 0;
        const count = () => {
            frame += 1;
            requestAnimationFrame(count);
        };
        requestAnimationFrame(count);
        new MutationObserver((changes) => {
            for (const { target } of changes) {
                const row = (target.nodeType === Node.TEXT_NODE ? target.parentElement : target).closest("tr");
                rows.add(row.dataset.symbol);
                rounds.add(row.dataset.loop);
                frames.add(frame);
            }
            if (rounds.size > 5) {
                resolve({ rows: rows.size, frames: frames.size, rounds: rounds.size });
            }
        }).observe(document.getElementById("rows"), { subtree: true, childList: true, characterData: true });
    }));
    t.diagnostic(JSON.stringify(drawn));
    assert.ok(drawn.rows < 60, `${drawn.rows} of 200 rows were drawn`);

    await row(page, "S0199").scrollIntoViewIfNeeded();
    await pricesMove(page, "S0199");
});

test("while no source publishes quotes the page says how to switch one on, and notices it", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, page } = await openQuotes(t, { viewport: PHONE }, "");
    await page.getByText("No source publishes quotes on this server.").waitFor();
    const lines = await page.locator("#notices pre").innerText();
    await looksRight(page, "quotes-off");
    await server.reload(lines);
    await eventually(() => text(page, "count"), "20 of 3,000");
    await pricesMove(page, "S0000");
    await eventually(() => page.locator("#notices p").count(), 0);
});

test("prices go on after the server was killed and started again", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { server, page } = await openQuotes(t, { viewport: DESKTOP }, FEW);
    await pricesMove(page, "S0000");
    await page.getByRole("button", { name: "Remove S0001" }).click();
    const chosen = await symbols(page);
    await server.kill();
    await page.getByText("The connection to the server is lost. The page tries again by itself;").waitFor();
    await Server.start(t, server.port, { config: FEW });
    await page.locator("#link[data-state=connected]").waitFor();
    await pricesMove(page, "S0000");
    assert.deepEqual(await symbols(page), chosen);
    await eventually(() => page.locator("#notices p").count(), 0);
});

test("a page on a slow line skips old prices, and does not fall behind more and more", { timeout: TEST_LIMIT_MS }, async (t) => {
    const fast = configWith("symbols = 200\ninterval_ms = 100");
    const { server, browser, page } = await openQuotes(t, { viewport: DESKTOP, query: "?transport=long-polling" }, fast);
    await eventually(() => text(page, "count"), "20 of 200");
    await page.getByRole("button", { name: "Add 200" }).click();
    await eventually(() => text(page, "count"), "200 of 200");
    const other = await browser.open(`${server.url}/demo/quotes`);
    await pricesMove(other, "S0000");
    const network = await page.context().newCDPSession(page);
    await network.send("Network.enable");
    // A fifth of what all prices would take: a page that skips nothing is always four fifths of the rounds late.
    await network.send("Network.emulateNetworkConditions", { offline: false, latency: 20, downloadThroughput: 50_000, uploadThroughput: 50_000 });
    const first = await lastRound(other);
    await eventually(async () => {
        const [late, now] = [await lastRound(page), await lastRound(other)];
        return now - first > 50 && now - late < (now - first) / 2 ? "a moment late" : `${now - late} rounds late after ${now - first}`;
    }, "a moment late");
    await eventually(async () => Number((await text(page, "passed-over")).replaceAll(",", "")) > 0, true);
});

async function openQuotes(t, { query = "", ...options }, config) {
    const server = await Server.start(t, undefined, { config });
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/quotes${query}`, options);
    await page.locator("#link[data-state=connected]").waitFor();
    return { server, browser, page };
}

function text(page, id) {
    return page.locator(`#${id}`).innerText();
}

function symbols(page) {
    return page.locator("#rows .symbol").allInnerTexts();
}

function row(page, symbol) {
    return page.locator(`tr[data-symbol=${symbol}]`);
}

/** The number of the last round that the page has seen. */
async function lastRound(page) {
    return Number((await text(page, "round")).replaceAll(",", ""));
}

/** Waits until the quote of a symbol, and its price, is another one. */
async function pricesMove(page, symbol) {
    await row(page, symbol).and(page.locator("[data-loop]")).waitFor();
    const [loop, before] = [await row(page, symbol).getAttribute("data-loop"), await row(page, symbol).innerText()];
    await eventually(async () => (await row(page, symbol).getAttribute("data-loop")) !== loop, true);
    await eventually(async () => (await row(page, symbol).innerText()) !== before, true);
}
