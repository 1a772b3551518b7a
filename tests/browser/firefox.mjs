// Firefox, driven by WebDriver BiDi (W3C), which it speaks itself. Playwright has no way to drive Debian's.
//
//   FIREFOX   the browser (default: Debian's)

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PROGRAM = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const START_LIMIT_MS = 60_000;

export class Firefox {
    #socket;
    #waiting = new Map();
    #lastId = 0;

    static isThere() {
        return existsSync(PROGRAM) && typeof WebSocket !== "undefined";
    }

    /** Starts it with a new profile. `uuids` are the hosts of the pages of extensions, which Firefox otherwise makes at random. */
    static async start(test, uuids = {}) {
        const profile = await mkdtemp(join(tmpdir(), "encke-firefox-"));
        await writeFile(join(profile, "user.js"), `user_pref("extensions.webextensions.uuids", ${JSON.stringify(JSON.stringify(uuids))});\n`);
        const options = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0", "--remote-allow-system-access", "about:blank"];
        const program = spawn(PROGRAM, options, { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, HOME: profile } });
        test.after(async () => {
            const gone = new Promise((resolve) => program.once("exit", resolve));
            program.kill("SIGKILL");
            await gone;
            await rm(profile, { recursive: true, force: true, maxRetries: 5 });
        });
        const url = await new Promise((resolve, reject) => {
            let output = "";
            program.stderr.on("data", (bytes) => {
                output += bytes;
                const found = /WebDriver BiDi listening on (ws:\/\/\S+)/.exec(output);
                found !== null && resolve(`${found[1]}/session`);
            });
            program.once("exit", () => reject(new Error(`${PROGRAM} ended: ${output}`)));
            setTimeout(() => reject(new Error(`${PROGRAM} did not start: ${output}`)), START_LIMIT_MS).unref();
        });
        const firefox = new Firefox();
        firefox.#socket = new WebSocket(url);
        await new Promise((resolve, reject) => {
            firefox.#socket.onopen = resolve;
            firefox.#socket.onerror = reject;
        });
        firefox.#socket.onmessage = ({ data }) => {
            const reply = JSON.parse(data);
            firefox.#waiting.get(reply.id)?.(reply);
        };
        test.after(() => firefox.#socket.close());
        // It can only import authorities. The certificate of the tests is none; Chromium checks it.
        await firefox.call("session.new", { capabilities: { alwaysMatch: { acceptInsecureCerts: true } } });
        return firefox;
    }

    async call(method, params) {
        const id = ++this.#lastId;
        const reply = new Promise((resolve) => this.#waiting.set(id, resolve));
        this.#socket.send(JSON.stringify({ id, method, params }));
        const { result, error, message } = await reply;
        assert.equal(error, undefined, `${method}: ${message}`);
        return result;
    }

    install(folder) {
        return this.call("webExtension.install", { extensionData: { type: "path", path: folder } });
    }

    /** Opens a page, in front, in a new tab or a new window. */
    async open(url, type = "tab") {
        const { context } = await this.call("browsingContext.create", { type });
        await this.call("browsingContext.navigate", { context, url, wait: "complete" });
        return new Page(this, context);
    }
}

/** An open page. Its user sees roles and names, clicks, and types. */
class Page {
    #firefox;
    #context;

    constructor(firefox, context) {
        this.#firefox = firefox;
        this.#context = context;
    }

    async evaluate(expression) {
        const { result, exceptionDetails } = await this.#call("script.evaluate", { expression, target: { context: this.#context }, awaitPromise: true });
        assert.equal(exceptionDetails, undefined, exceptionDetails?.text);
        return result.value;
    }

    /** The words of all elements that match a selector. */
    async texts(selector) {
        return JSON.parse(await this.evaluate(`JSON.stringify([...document.querySelectorAll(${JSON.stringify(selector)})].map((one) => one.innerText))`));
    }

    async click(role, name) {
        const { nodes } = await this.#call("browsingContext.locateNodes", { locator: { type: "accessibility", value: { role, name } } });
        assert.equal(nodes.length, 1, `${role} ${name}`);
        const origin = { type: "element", element: { sharedId: nodes[0].sharedId } };
        const actions = [{ type: "pointerMove", x: 0, y: 0, origin }, { type: "pointerDown", button: 0 }, { type: "pointerUp", button: 0 }];
        await this.#call("input.performActions", { actions: [{ type: "pointer", id: "mouse", actions }] });
    }

    async type(text) {
        const actions = [...text].flatMap((value) => [{ type: "keyDown", value }, { type: "keyUp", value }]);
        await this.#call("input.performActions", { actions: [{ type: "key", id: "keyboard", actions }] });
    }

    /** A picture of the page as PNG. */
    async picture() {
        return Buffer.from((await this.#call("browsingContext.captureScreenshot", {})).data, "base64");
    }

    async reload() {
        await this.#call("browsingContext.reload", { wait: "complete" });
    }

    async close() {
        await this.#call("browsingContext.close", {});
    }

    #call(method, params) {
        return this.#firefox.call(method, { context: this.#context, ...params });
    }
}
