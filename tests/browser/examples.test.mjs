// The page of examples/pages: CometD's client as npm has it, without a bundler.

import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Browser, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";

const REPOSITORY = fileURLToPath(new URL("../..", import.meta.url));
const API_KEY = "test-key-0123456789";

test("the page with CometD's client shows all prices, also those of before and of while the server was away", { timeout: TEST_LIMIT_MS }, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "encke-example-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const files = join(folder, "files");
    mkdirSync(files);
    cpSync(join(REPOSITORY, "examples/pages/cometd.html"), join(files, "index.html"));
    cpSync(join(REPOSITORY, "docs/clients/replay-extension.js"), join(files, "lib/replay-extension.js"));
    cpSync(join(REPOSITORY, "tests/browser/node_modules/cometd"), join(files, "lib"), { recursive: true });
    cpSync(join(REPOSITORY, "web/src/assets/comet.svg"), join(files, "favicon.ico"));
    const config = `
        files = "${files}"
        data = "${folder}/data"
        [[channels]]
        pattern = "/stock/**"
        history_messages = 10
        [[api_keys]]
        name = "test"
        key = "${API_KEY}"
        scopes = ["publish"]
    `;
    let server = await Server.start(t, undefined, { config });
    await publish(server, "GOOG", 198);
    const browser = await Browser.start(t);
    const page = await browser.open(server.url);
    await eventually(() => prices(page), ["/stock/GOOG: 198"]);
    await publish(server, "GOOG", 199);
    await publish(server, "IBM", 301);
    await eventually(() => prices(page), ["/stock/GOOG: 199", "/stock/IBM: 301"]);
    await looksRight(page, "example-cometd");
    browser.assertNoComplaints();

    await server.kill();
    await page.getByText("broken").waitFor();
    server = await Server.start(t, server.port, { config });
    await publish(server, "GOOG", 200);
    await eventually(() => prices(page), ["/stock/GOOG: 200", "/stock/IBM: 301"]);
    await page.getByText("connected").waitFor();
});

async function publish(server, symbol, price) {
    const { status } = await fetch(`${server.url}/api/v1/publish`, {
        method: "POST",
        headers: { "x-api-key": API_KEY, "content-type": "application/json" },
        body: JSON.stringify({ channel: `/stock/${symbol}`, data: { price } }),
    });
    assert.equal(status, 200);
}

function prices(page) {
    return page.locator("li").allInnerTexts();
}
