// Firefox with an unpacked extension, driven by WebDriver BiDi (W3C), which it speaks itself.
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
    static async start(test, uuids) {
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
        await firefox.call("session.new", { capabilities: {} });
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

    /** Opens a tab, in front, and returns a function that evaluates an expression there. */
    async open(url) {
        const { context } = await this.call("browsingContext.create", { type: "tab" });
        await this.call("browsingContext.navigate", { context, url, wait: "complete" });
        return async (expression) => {
            const { result, exceptionDetails } = await this.call("script.evaluate", { expression, target: { context }, awaitPromise: true });
            assert.equal(exceptionDetails, undefined, exceptionDetails?.text);
            return result.value;
        };
    }
}
