// The real server, proxies in front of it that break things, and clients that count what they get.
//
//   ENCKE_BIN   the program to test (default: the release build)

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectTcp, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { freePort } from "../../../tests/free-port.mjs";
import { connect } from "encke";

export { connect };
export const PROGRAM = process.env.ENCKE_BIN ?? fileURLToPath(new URL("../../../target/release/encke", import.meta.url));
/** Longer than any event takes on a busy machine. */
export const EVENT_MS = Number(process.env.EVENT_MS ?? 60_000);

// Variables called ENCKE_… are settings of the program. The caller's own must not reach the program under test.
const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ENCKE_")));

/** Histories everywhere but below `/plain`; members on `/room/*`. */
export const RULES = `
[[channels]]
pattern = "/plain/**"

[[channels]]
pattern = "/room/*"
presence = true

[[channels]]
pattern = "/**"
history_messages = 100000
`;

/** `encke serve`. */
export class Server {
    #process;
    #arguments;

    /** `config` is the text of its configuration file; `data`: it has a directory. */
    static async start(test, config = RULES, { data = false } = {}) {
        const server = new Server();
        const folder = mkdtempSync(join(tmpdir(), "encke-js-"));
        test.after(() => rmSync(folder, { recursive: true, force: true }));
        writeFileSync(join(folder, "encke.toml"), config);
        server.port = await freePort();
        server.url = `http://127.0.0.1:${server.port}`;
        server.#arguments = ["serve", "--no-demo", "--shards", "1", "--log", "error", "--port", String(server.port), "--config", join(folder, "encke.toml"), ...(data ? ["--data", join(folder, "data")] : [])];
        test.after(() => server.stop("SIGKILL"));
        await server.start();
        return server;
    }

    async start() {
        this.#process = spawn(PROGRAM, this.#arguments, { stdio: ["ignore", "pipe", "inherit"], env: environment });
        await new Promise((resolve, reject) => {
            this.#process.once("exit", (code) => reject(new Error(`${PROGRAM} ended with ${code}`)));
            this.#process.once("error", reject);
            createInterface({ input: this.#process.stdout }).on("line", (line) => line.startsWith("encke listening on ") && resolve());
        });
    }

    /** The number of sessions. */
    async sessions() {
        const text = await (await fetch(`${this.url}/metrics`)).text();
        return Number(/^encke_sessions (\d+)$/m.exec(text)?.[1]);
    }

    async stop(signal) {
        if (this.#process.exitCode === null && this.#process.signalCode === null) {
            const gone = once(this.#process, "exit");
            this.#process.kill(signal);
            await gone;
        }
    }
}

/** A proxy that looks at the head of each connection. `swallow`: the client gets nothing. `buffer`: it gets nothing before the end. */
export class Proxy {
    #sockets = new Set();
    isOffline = false;
    heads = [];

    static async start(test, port, { swallow = /^$/, buffer = /^$/, refuse = /^$/ } = {}) {
        const proxy = new Proxy();
        const server = createServer((client) => proxy.#pass(client, port, { swallow, buffer, refuse }));
        await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
        test.after(() => {
            proxy.cut();
            server.close();
        });
        proxy.url = `http://127.0.0.1:${server.address().port}`;
        return proxy;
    }

    /** All connections break. */
    cut() {
        this.#sockets.forEach((socket) => socket.resetAndDestroy());
        this.#sockets.clear();
    }

    /** Connections stay, and nothing passes any more. */
    freeze() {
        this.#sockets.forEach((socket) => socket.pause().unpipe());
    }

    #pass(client, port, { swallow, buffer, refuse }) {
        client.on("error", () => undefined);
        if (this.isOffline) {
            client.resetAndDestroy();
            return;
        }
        this.#sockets.add(client);
        client.once("data", (bytes) => {
            const head = bytes.toString("latin1");
            this.heads.push(head.split("\r\n")[0]);
            if (swallow.test(head)) {
                return;
            }
            if (refuse.test(head)) {
                client.end("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                return;
            }
            const server = connectTcp(port, "127.0.0.1");
            this.#sockets.add(server);
            server.on("error", () => client.destroy());
            server.on("close", () => client.destroy());
            client.on("close", () => server.destroy());
            server.write(bytes);
            client.pipe(server);
            if (!buffer.test(head)) {
                server.pipe(client);
            } else {
                server.resume();
            }
        });
    }
}

/** Resolves when the check is true. */
export async function until(what, check) {
    for (const end = performance.now() + EVENT_MS; !(await check()); ) {
        assert.ok(performance.now() < end, `gave up waiting: ${typeof what === "function" ? what() : what}`);
        await pause(5);
    }
}

export function pause(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
}

/** A client that ends with its test. */
export function client(test, url, options) {
    const one = connect(url, options);
    test.after(() => one.close());
    return one;
}

/** Counts the numbers of a subscription: each one of a channel has to be above the one before. */
export class Counter {
    got = new Map();
    gaps = [];
    wrong = [];

    receive = ({ channel, data: { n } }) => {
        const last = this.got.get(channel)?.at(-1) ?? 0;
        if (n <= last) {
            this.wrong.push(`${n} of ${channel} came after ${last}`);
        }
        this.got.set(channel, [...(this.got.get(channel) ?? []), n]);
    };

    onGap = (gap) => this.gaps.push(gap);

    count() {
        return [...this.got.values()].reduce((sum, { length }) => sum + length, 0);
    }

    /** Each channel has all numbers up to its last one, once and in order. */
    check(channels, last) {
        assert.deepEqual(this.wrong, [], "doubled or out of order");
        const lost = channels.filter((channel) => this.got.get(channel)?.length !== last);
        assert.deepEqual(lost.map((channel) => [channel, this.got.get(channel)?.length]), [], "lost");
    }
}

/** A store of texts, as `sessionStorage` is one. */
export function storeOf() {
    const texts = new Map();
    return { getItem: (name) => texts.get(name) ?? null, setItem: (name, text) => void texts.set(name, text), removeItem: (name) => void texts.delete(name) };
}

/** The events of a page, which Node has none of. */
export const page = new EventTarget();
globalThis.addEventListener = page.addEventListener.bind(page);
