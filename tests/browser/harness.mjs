// Starts the program and the browser, and cleans both up after each test.
//
//   ENCKE_BIN   the program to test (default: the release build)
//   CHROMIUM    the browser (default: Debian's)

import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

// Upper bounds. A working test is far faster; a hanging one fails here with a message, not silently in the runner.
const START_LIMIT_MS = 10_000;
const WAIT_LIMIT_MS = 15_000;
export const TEST_LIMIT_MS = 90_000;

export const SCREENSHOTS = fileURLToPath(new URL("../../target/browser", import.meta.url));
export const PROGRAM = process.env.ENCKE_BIN ?? fileURLToPath(new URL("../../target/release/encke", import.meta.url));
const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
const BROWSER_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
];

// Variables called ENCKE_… are settings of the program. The caller's own must not reach the program under test.
export const CLEAN_ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ENCKE_")));

/** A running `encke serve`, or `encke demo`. */
export class Server {
    #process;
    #config;
    url;

    /** `flags` are further ones of the command, `config` is the text of its configuration file. */
    static async start(test, port = 0, { command = "serve", flags = [], config } = {}) {
        const server = new Server();
        const file = config === undefined ? [] : ["--config", server.#write(test, config)];
        server.#process = spawn(PROGRAM, [command, "--port", String(port), "--log", "warn", ...file, ...flags], { stdio: ["ignore", "pipe", "inherit"], env: CLEAN_ENVIRONMENT });
        test.after(() => server.kill());
        server.url = await server.#listening();
        return server;
    }

    get port() {
        return Number(new URL(this.url).port);
    }

    /** Replaces the configuration file, and lets the program read it again. */
    async reload(config) {
        writeFileSync(this.#config, config);
        this.#process.kill("SIGHUP");
    }

    /** The program's process. */
    get pid() {
        return this.#process.pid;
    }

    /** Ends the program at once, as a crash does. */
    async kill() {
        if (this.#process.exitCode === null && this.#process.signalCode === null) {
            const gone = once(this.#process, "exit");
            this.#process.kill("SIGKILL");
            await gone;
        }
    }

    #write(test, config) {
        const folder = mkdtempSync(join(tmpdir(), "encke-config-"));
        test.after(() => rmSync(folder, { recursive: true }));
        this.#config = join(folder, "encke.toml");
        writeFileSync(this.#config, config);
        return this.#config;
    }

    #listening() {
        return new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new Error(`${PROGRAM} did not say that it listens`)), START_LIMIT_MS);
            this.#process.once("error", reject);
            this.#process.once("exit", (code) => reject(new Error(`${PROGRAM} ended with ${code} before it listened`)));
            // The reader stays attached for the whole life of the program, so its output never fills the pipe.
            createInterface({ input: this.#process.stdout }).on("line", (line) => {
                const url = /^encke listening on (http:\/\/\S+)$/.exec(line)?.[1];
                if (url !== undefined) {
                    clearTimeout(timer);
                    resolve(url);
                }
            });
        });
    }
}

/** Windows of one browser. `complaints` collects the errors and warnings of their consoles, such as a refused script or style. */
export class Browser {
    #browser;
    complaints = [];

    static async start(test, options = []) {
        const browser = new Browser();
        browser.#browser = await chromium.launch({ executablePath: BROWSER, headless: true, args: [...BROWSER_OPTIONS, ...options] });
        test.after(() => browser.#browser.close());
        return browser;
    }

    /** A separate window, which shares no cookies with the others. */
    async open(url, { viewport = DESKTOP, before, ...options } = {}) {
        const context = await this.#browser.newContext({ viewport, ...options });
        context.setDefaultTimeout(WAIT_LIMIT_MS);
        const page = await context.newPage();
        page.on("console", (message) => ["error", "warning"].includes(message.type()) && this.complaints.push(message.text()));
        page.on("pageerror", (error) => this.complaints.push(String(error)));
        if (before !== undefined) {
            await page.addInitScript(before);
        }
        await page.goto(url);
        return page;
    }

    assertNoComplaints() {
        assert.deepEqual(this.complaints, [], "the console of a page has errors or warnings");
    }
}

/** A browser with an unpacked extension. Its windows share one profile, so it is not a [`Browser`]. */
export class ExtendedBrowser {
    #context;
    complaints = [];
    /** The extension's service worker. */
    worker;

    static async start(test, folder) {
        const browser = new ExtendedBrowser();
        const args = [...BROWSER_OPTIONS, `--disable-extensions-except=${folder}`, `--load-extension=${folder}`];
        browser.#context = await chromium.launchPersistentContext("", { executablePath: BROWSER, headless: true, viewport: DESKTOP, args });
        test.after(() => browser.#context.close());
        browser.#context.setDefaultTimeout(WAIT_LIMIT_MS);
        browser.worker = browser.#context.serviceWorkers()[0] ?? (await browser.#context.waitForEvent("serviceworker"));
        return browser;
    }

    async open(url) {
        const page = await this.#context.newPage();
        page.on("console", (message) => ["error", "warning"].includes(message.type()) && this.complaints.push(message.text()));
        page.on("pageerror", (error) => this.complaints.push(String(error)));
        await page.goto(url);
        return page;
    }

    /** Stores options of the extension, as its settings page does. */
    async store(options) {
        await this.worker.evaluate((options) => chrome.storage.local.set({ options }), options);
    }

    async stored() {
        return this.worker.evaluate(async () => (await chrome.storage.local.get("options")).options ?? {});
    }

    /** The mark on its button, and its title. */
    mark() {
        return this.worker.evaluate(() => Promise.all([chrome.action.getBadgeText({}), chrome.action.getTitle({})]));
    }

    assertNoComplaints() {
        assert.deepEqual(this.complaints, [], "the console of a page has errors or warnings");
    }
}

/** Waits until `read` returns `wanted`; a failure shows the last value. */
export async function eventually(read, wanted) {
    const end = performance.now() + WAIT_LIMIT_MS;
    for (;;) {
        const value = await read();
        try {
            assert.deepEqual(value, wanted);
            return;
        } catch (difference) {
            if (performance.now() > end) {
                throw difference;
            }
        }
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
}

/** A picture of the page as it stands now, for people to look at. */
export async function screenshot(page, name) {
    mkdirSync(SCREENSHOTS, { recursive: true });
    await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}
