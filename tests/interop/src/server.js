// The server under test: a program that is driven over its stdin and stdout.

import {spawn} from "node:child_process";
import {once} from "node:events";
import {createInterface} from "node:readline";
import {fileURLToPath} from "node:url";
import {freePort} from "../../free-port.mjs";

/** Path of the program; the reference server obeys the same contract. */
const PROGRAM = process.env.INTEROP_SERVER
    ?? fileURLToPath(new URL("../../../target/release/examples/interop_server", import.meta.url));

/** True if the program is CometD itself. It fails the scenarios that are marked for it. */
export const IS_COMETD = process.env.INTEROP_COMETD === "1";

/** The files of the server's certificate without their endings, if it speaks TLS. */
const CERTIFICATE = process.env.INTEROP_TLS;

/** The scheme of its addresses. */
export const SCHEME = CERTIFICATE ? "https" : "http";

/** No session expires while a busy machine keeps its client waiting. */
const DEFAULTS = {timeout_ms: "10000", max_interval_ms: "300000"};

/** The limit of the time to start, to stop or to answer. A JVM on a busy machine takes seconds. */
const ANSWER_LIMIT_MS = 90000;

/** One server on one port, through its starts and stops. */
export class Server {
    /** Options given with `--set`. */
    set;
    #port;
    #process = null;
    #answers = [];

    constructor(set = {}) {
        this.set = {...DEFAULTS, ...(CERTIFICATE ? {tls_cert: `${CERTIFICATE}.pem`, tls_key: `${CERTIFICATE}.key`} : {}), ...set};
    }

    get origin() {
        return `${SCHEME}://127.0.0.1:${this.#port}`;
    }

    /** Starts it, on the same port as the last time. */
    async start() {
        this.#port ??= await freePort();
        const args = ["--port", String(this.#port)];
        for (const [name, value] of Object.entries(this.set)) {
            args.push("--set", `${name}=${value}`);
        }
        this.#process = spawn(PROGRAM, args, {stdio: ["pipe", "pipe", "inherit"]});
        this.#process.stdin.on("error", () => undefined);
        createInterface({input: this.#process.stdout}).on("line", line => this.#answers.shift()?.(line));
        const first = await this.#answer("listening line");
        if (first !== "listening on " + this.origin) {
            throw new Error("unexpected first line: " + first);
        }
    }

    /** Runs a scenario's command and resolves to its answer. */
    async control(command, ...args) {
        switch (command) {
            case "start":
                return this.start();
            case "kill":
                return this.#end(() => this.#process.kill("SIGKILL"));
            case "stop":
                return this.#end(() => this.#process.stdin.end("quit\n"));
            default:
                this.#process.stdin.write([command, ...args].join(" ") + "\n");
                return this.#answer(command);
        }
    }

    /** Ends the program in any case. */
    async dispose() {
        if (this.#process && this.#process.exitCode === null && this.#process.signalCode === null) {
            await this.control("kill");
        }
    }

    /** Ends the program by `how`; resolves to its exit code, null when killed. */
    async #end(how) {
        const child = this.#process;
        const exit = once(child, "exit");
        how();
        const timer = setTimeout(() => child.kill("SIGKILL"), ANSWER_LIMIT_MS);
        const [code] = await exit;
        clearTimeout(timer);
        return code;
    }

    #answer(what) {
        return new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new Error(`server under test: no answer to ${what}`)), ANSWER_LIMIT_MS);
            const failed = error => reject(new Error(`server under test: ${error.message}`));
            this.#process.once("error", failed);
            this.#answers.push(line => {
                clearTimeout(timer);
                this.#process.removeListener("error", failed);
                resolve(line);
            });
        });
    }
}
