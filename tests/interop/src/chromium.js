// The client environment of a browser: headless Chromium, a fresh context per scenario.

import {build} from "esbuild";
import {fileURLToPath} from "node:url";
import {chromium} from "playwright-core";
import {CHROMIUM, CHROMIUM_OPTIONS, CHROMIUM_START_MS} from "../../chromium.mjs";
import {WAIT_MS} from "./client.js";
import {suite} from "./suite.js";

/** Declares the scenarios for one transport in Chromium. */
export function chromiumSuite(type) {
    let ready;
    const prepare = () => ready ??= Promise.all([
        chromium.launch({executablePath: CHROMIUM, args: CHROMIUM_OPTIONS, timeout: CHROMIUM_START_MS}),
        bundle()
    ]);
    suite(`cometd in Chromium over ${type}`, async (name, server) => {
        const [browser, script] = await prepare();
        // The bundle is not the page's own, so the page's policy must not stop it.
        const context = await browser.newContext({bypassCSP: true});
        context.setDefaultTimeout(WAIT_MS);
        try {
            const page = await context.newPage();
            const texts = collectJsonp(page);
            await page.exposeFunction("interopControl", command => server.control(...command));
            await page.exposeFunction("interopRawTexts", () => Promise.all(texts));
            await page.goto(server.origin + "/");
            await page.addScriptTag({content: script});
            await page.evaluate(([n, t, s]) => window.interopRun(n, t, s), [name, type, server.set]);
        } finally {
            await context.close();
        }
    }, async () => {
        if (ready) {
            await (await ready)[0].close();
        }
    });
}

/** The texts of the page's callback-polling responses, as promises. */
function collectJsonp(page) {
    const texts = [];
    page.on("response", response => {
        if (response.url().includes("jsonp=")) {
            texts.push(response.text().catch(() => ""));
        }
    });
    return texts;
}

/** The scenarios as one script for the browser. */
async function bundle() {
    const result = await build({
        entryPoints: [fileURLToPath(new URL("page.js", import.meta.url))],
        bundle: true,
        write: false,
        format: "iife",
        target: "chrome120"
    });
    return result.outputFiles[0].text;
}
