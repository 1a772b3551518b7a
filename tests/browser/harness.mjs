// Starts the program and the browser, and cleans up after each test. The tests of a file share one browser: starting one costs more than
// most tests.
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
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { CHROMIUM, CHROMIUM_OPTIONS, CHROMIUM_START_MS } from "../chromium.mjs";
import { freePort } from "../free-port.mjs";

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };

// Upper bounds. A working test is far faster, also on a machine that has a lot to do; a hanging one fails here with a message, not
// silently in the runner.
const START_LIMIT_MS = 90_000;
const WAIT_LIMIT_MS = 90_000;
export const TEST_LIMIT_MS = 300_000;

export const SCREENSHOTS = fileURLToPath(new URL("../../target/browser", import.meta.url));
export const PROGRAM = process.env.ENCKE_BIN ?? fileURLToPath(new URL("../../target/release/encke", import.meta.url));

// Variables called ENCKE_… are settings of the program. The caller's own must not reach the program under test.
export const CLEAN_ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ENCKE_")));

/** The flags of a server with TLS: scripts/browser.sh makes this certificate, which the browsers and Node trust. */
const CERTIFICATE = process.env.BROWSER_TLS;
export const TLS = ["--tls-cert", `${CERTIFICATE}.pem`, "--tls-key", `${CERTIFICATE}.key`];

/** A running `encke serve`, or `encke demo`. */
export class Server {
    #process;
    #config;
    url;

    /** `flags` are further ones of the command, `config` is the text of its configuration file. */
    static async start(test, port = undefined, { command = "serve", flags = [], config } = {}) {
        const server = new Server();
        port ??= await freePort();
        const file = config === undefined ? [] : ["--config", server.#write(test, config)];
        server.#process = spawn(PROGRAM, [command, "--port", String(port), "--log", "warn", ...file, ...flags], { stdio: ["ignore", "pipe", "inherit"], env: CLEAN_ENVIRONMENT });
        test.after(() => server.kill());
        server.url = await server.#listening();
        return server;
    }

    get port() {
        return Number(new URL(this.url).port);
    }

    /** The value of one of its metrics, the sum over all labels. */
    async metric(name) {
        const lines = (await (await fetch(`${this.url}/metrics`)).text()).split("\n");
        return lines.filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`)).reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
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
                const url = /^encke listening on (https?:\/\/\S+)$/.exec(line)?.[1];
                if (url !== undefined) {
                    clearTimeout(timer);
                    resolve(url);
                }
            });
        });
    }
}

/** True in a file that `node --test` runs. Its tests share one browser. */
const isShared = process.env.NODE_TEST_CONTEXT !== undefined;
let shared;

function launch(options) {
    return chromium.launch({ executablePath: CHROMIUM, headless: true, args: [...CHROMIUM_OPTIONS, ...options], timeout: CHROMIUM_START_MS });
}

if (isShared) {
    after(async () => (await shared)?.close());
}

/** Windows of one test. `complaints` collects the errors and warnings of their consoles, such as a refused script or style. */
export class Browser {
    #browser;
    #contexts = [];
    complaints = [];

    /** With `options` the test has a browser to itself. */
    static async start(test, options = []) {
        const browser = new Browser();
        const isAlone = !isShared || options.length > 0;
        browser.#browser = await (isAlone ? launch(options) : (shared ??= launch([])));
        test.after(() => (isAlone ? browser.#browser.close() : Promise.all(browser.#contexts.map((context) => context.close()))));
        return browser;
    }

    /** A separate window, which shares no cookies with the others; or a tab `beside` a page, in its window. */
    async open(url, { viewport = DESKTOP, before, beside, ...options } = {}) {
        const context = beside?.context() ?? (await this.#browser.newContext({ viewport, ...options }));
        this.#contexts.push(context);
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

    /** Ends a browser that the test has to itself. */
    close() {
        return this.#browser.close();
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
        const args = [...CHROMIUM_OPTIONS, `--disable-extensions-except=${folder}`, `--load-extension=${folder}`];
        browser.#context = await chromium.launchPersistentContext("", { executablePath: CHROMIUM, headless: true, viewport: DESKTOP, args, timeout: CHROMIUM_START_MS });
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
    for (let pauseMs = 10; ; pauseMs = Math.min(2 * pauseMs, 100)) {
        const value = await read();
        try {
            assert.deepEqual(value, wanted);
            return;
        } catch (difference) {
            if (performance.now() > end) {
                throw difference;
            }
        }
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
}

/** A picture of the page as it stands now, for people to look at. */
export async function screenshot(page, name) {
    mkdirSync(SCREENSHOTS, { recursive: true });
    await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}
