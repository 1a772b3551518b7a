// Measures Screenpush: a publisher's page whose screen of 1280 × 800 changes five times a second, and subscribers, one of which is a
// viewer's page. Prints the page docs/benchmarks/screenpush.md.
//
//   node bench-screenpush.mjs --seconds 300 --subscribers 50
//
//   ENCKE_BIN, CHROMIUM   as for the tests

import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { Browser, Server } from "./harness.mjs";
import { Publisher, Watcher } from "./screen.mjs";

const PUSHES_PER_SECOND = 5;
const WARM_UP_MS = 3_000;
/** A message has its time within these first bytes. */
const START_BYTES = 600;
const CHANNEL = "/demo/screenpush/demo";

/** The whole measurement. `after` stands for the end of a test, with which the parts of the harness clean up. */
async function measure() {
    const { values } = parseArgs({ options: { seconds: { type: "string", default: "300" }, subscribers: { type: "string", default: "50" } } });
    const [otherLoad] = loadavg();
    const [seconds, subscribers] = [Number(values.seconds), Number(values.subscribers)];
    const cleanups = [];
    const run = { after: (clean) => cleanups.unshift(clean) };
    try {
        const server = await Server.start(run);
        const [one, other] = [await Browser.start(run), await Browser.start(run)];
        const publisher = await Publisher.open(one, server, { name: "Bench" });
        await publisher.page.getByLabel("Push delay").fill("20");
        await publisher.page.getByLabel("Push delay").press("Tab");
        await publisher.page.evaluate(scrollingText, 1_000 / PUSHES_PER_SECOND);
        await publisher.share();
        const watcher = await Watcher.open(other, `${server.url}/demo/screenpush/watch`);
        await watcher.page.evaluate(readClock);
        const load = fork(process.argv[1], { env: { ...process.env, SCREENPUSH_TARGET: server.url, SCREENPUSH_SUBSCRIBERS: String(subscribers - 1) } });
        run.after(() => load.kill());
        await once(load, "message");
        await new Promise((resolve) => setTimeout(resolve, WARM_UP_MS));
        load.send("begin");
        await watcher.page.evaluate(() => (globalThis.seen = []));
        const [began, memory, cpuBefore] = [Date.now(), [], cpuMs(server.pid)];
        while (Date.now() - began < seconds * 1_000) {
            memory.push(rssBytes(server.pid));
            await new Promise((resolve) => setTimeout(resolve, 1_000));
        }
        const cpu = (cpuMs(server.pid) - cpuBefore) / (Date.now() - began);
        load.send("end");
        const [received] = await once(load, "message");
        const seen = await watcher.page.evaluate(() => globalThis.seen);
        print({ seconds, subscribers, received, seen, memory, cpu, otherLoad });
    } finally {
        for (const clean of cleanups) {
            await clean();
        }
    }
}

/** Subscribers without a page: they note the delay and the length of each message. */
async function subscribe(target, count) {
    const { hostname, port } = new URL(target);
    let [delays, bytes] = [[], 0];
    const note = (start, length) => {
        const sent = /"sent":([\d.]+)/.exec(start)?.[1];
        if (sent !== undefined) {
            delays.push(Date.now() - Number(sent));
            bytes += length;
        }
    };
    await Promise.all(Array.from({ length: count }, () => new Reader(hostname, port, note).subscribed));
    process.on("message", (message) => {
        if (message === "begin") {
            [delays, bytes] = [[], 0];
        } else {
            process.send({ delays, bytes });
        }
    });
    process.send("ready");
}

/** A subscriber over a WebSocket that looks at the first bytes of each message and skips the rest, so that the load costs little. */
class Reader {
    subscribed;
    #socket;
    #note;
    #ready;
    #clientId;
    #lastId = 0;
    #isOpen = false;
    /** Bytes that are not read yet: a head, or the start of a message. */
    #rest = Buffer.alloc(0);
    /** The message under way: its first bytes, its length, and the bytes that are still to come. */
    #message;

    constructor(host, port, note) {
        this.#note = note;
        this.subscribed = new Promise((resolve) => (this.#ready = resolve));
        this.#socket = connect(port, host, () => this.#socket.write([
            "GET /cometd HTTP/1.1", `Host: ${host}:${port}`, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", "",
        ].join("\r\n")));
        this.#socket.on("data", (bytes) => this.#read(bytes));
        this.#socket.on("error", () => undefined);
    }

    #read(bytes) {
        if (!this.#isOpen) {
            this.#rest = Buffer.concat([this.#rest, bytes]);
            const end = this.#rest.indexOf("\r\n\r\n");
            if (end < 0) {
                return;
            }
            bytes = this.#rest.subarray(end + 4);
            [this.#isOpen, this.#rest] = [true, Buffer.alloc(0)];
            this.#send({ channel: "/meta/handshake", version: "1.0", supportedConnectionTypes: ["websocket"] });
        }
        while (bytes.length > 0) {
            if (this.#message === undefined) {
                bytes = Buffer.concat([this.#rest, bytes]);
                const short = bytes[1];
                const head = short < 126 ? 2 : short === 126 ? 4 : 10;
                if (bytes.length < head) {
                    this.#rest = bytes;
                    return;
                }
                const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
                this.#message = { start: "", length, left: length };
                [this.#rest, bytes] = [Buffer.alloc(0), bytes.subarray(head)];
            }
            const message = this.#message;
            const part = bytes.subarray(0, message.left);
            if (message.start.length < START_BYTES) {
                message.start += part.toString("latin1", 0, START_BYTES);
            }
            message.left -= part.length;
            bytes = bytes.subarray(part.length);
            if (message.left === 0) {
                this.#message = undefined;
                this.#receive(message);
            }
        }
    }

    #receive({ start, length }) {
        if (start.includes('"screenpush"')) {
            this.#note(start, length);
        } else if (start.includes("/meta/handshake")) {
            this.#clientId = /"clientId":"([^"]+)"/.exec(start)[1];
            this.#send({ channel: "/meta/subscribe", subscription: `${CHANNEL}/**` });
            this.#connect();
        } else if (start.includes("/meta/subscribe")) {
            this.#ready();
        } else if (start.includes("/meta/connect")) {
            this.#connect();
        }
    }

    #connect() {
        this.#send({ channel: "/meta/connect", connectionType: "websocket" });
    }

    /** A text frame, masked with zeros. */
    #send(message) {
        const text = Buffer.from(JSON.stringify([{ ...message, id: `${++this.#lastId}`, clientId: this.#clientId }]));
        const head = text.length < 126 ? Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]) : Buffer.from([0x81, 0xfe, text.length >> 8, text.length & 0xff, 0, 0, 0, 0]);
        this.#socket.write(Buffer.concat([head, text]));
    }
}

function print({ seconds, subscribers, received, seen, memory, cpu, otherLoad }) {
    const pushes = received.delays.length / (subscribers - 1);
    const mb = (value) => (value / 1_000_000).toFixed(1);
    const part = Math.max(1, Math.floor(memory.length / 5));
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const row = (name, values) => `| ${name} | ${values.length} | ${[0.5, 0.95, 0.99, 1].map((share) => `${Math.round(quantile(values, share))} ms`).join(" | ")} |`;
    console.log(`# Screenpush

Made by \`make bench-screenpush\`. A publisher's page pushes a screen of 1280 × 800 pixels, text that scrolls, ${PUSHES_PER_SECOND} times a second as JPEG of
quality 70; ${subscribers} subscribers get it, one of them a viewer's page. Publisher, server, viewer and the other subscribers share one machine:
${cpus().length} cores of ${cpus()[0].model.trim()}. The two pages run in Chromium without a graphics card. ${seconds} seconds. The
load average of the machine before the run was ${otherLoad.toFixed(1)}; a machine without other work has less than 0.5.

| from … to … | times | median | p95 | p99 | longest |
| --- | ---: | ---: | ---: | ---: | ---: |
${row("push to each subscriber without a page", received.delays)}
${row("change on the screen to the picture in the viewer's page", seen)}

| | |
| --- | ---: |
| pushes per second | ${(pushes / seconds).toFixed(1)} |
| bytes of a push, mean | ${Math.round(received.bytes / received.delays.length).toLocaleString("en")} |
| delivered | ${mb(received.bytes / seconds)} MB/s |
| processor time of the server | ${(cpu * 100).toFixed(1)} % of a core |
| memory of the server, mean of the first fifth of the time | ${mb(mean(memory.slice(0, part)))} MB |
| memory of the server, mean of the last fifth | ${mb(mean(memory.slice(-part)))} MB |`);
    const isGood = quantile(seen, 0.95) < 300 && quantile(received.delays, 0.95) < 300;
    console.error(isGood ? "p95 is under 300 ms" : "p95 is not under 300 ms");
    process.exitCode = isGood ? 0 : 1;
}

function quantile(values, share) {
    const sorted = [...values].sort((one, other) => one - other);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}

function rssBytes(pid) {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) * 1_024;
}

/** Processor time so far; the system counts it in hundredths of a second. */
function cpuMs(pid) {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
    return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Runs in the publisher's page: text that scrolls, and the time of each change as black and white squares at the lower edge. */
function scrollingText(everyMs) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [1280, 800];
    const context = canvas.getContext("2d");
    const words = "comet push server channel session publish subscribe picture screen delivery message history position".split(" ");
    const colours = ["#123", "#0b7568", "#97560a", "#7a1fa2", "#1b4f9c"];
    let line = 0;
    const paint = () => {
        const now = Date.now();
        line += 3;
        context.fillStyle = "#fff";
        context.fillRect(0, 0, 1280, 800);
        context.font = "15px sans-serif";
        for (let row = 0; row < 40; row++) {
            context.fillStyle = colours[(line + row) % colours.length];
            const text = Array.from({ length: 18 }, (_, at) => words[((line + row) * 7 + at * 5) % words.length]).join(" ");
            context.fillText(text, 12, 20 + row * 19);
        }
        for (let bit = 0; bit < 20; bit++) {
            context.fillStyle = (Math.floor(now / 2 ** bit) & 1) === 1 ? "#000" : "#fff";
            context.fillRect(bit * 32, 768, 32, 32);
        }
        globalThis.track?.requestFrame();
    };
    navigator.mediaDevices.getDisplayMedia = async () => {
        const stream = canvas.captureStream(0);
        globalThis.track = stream.getVideoTracks()[0];
        setInterval(paint, everyMs);
        paint();
        return stream;
    };
}

/** Runs in the viewer's page: reads the time from each picture when it is there. */
function readClock() {
    globalThis.seen = [];
    const copy = new OffscreenCanvas(640, 32).getContext("2d", { willReadFrequently: true });
    const stage = document.querySelector("#stage");
    let shown = stage.dataset.pictures;
    new MutationObserver(() => {
        if (stage.dataset.pictures === shown) {
            return;
        }
        shown = stage.dataset.pictures;
        copy.drawImage(stage.querySelector("canvas"), 0, 768, 640, 32, 0, 0, 640, 32);
        let low = 0;
        for (let bit = 0; bit < 20; bit++) {
            low += copy.getImageData(bit * 32 + 16, 16, 1, 1).data[0] < 128 ? 2 ** bit : 0;
        }
        const now = Date.now();
        globalThis.seen.push((((now - low) % 2 ** 20) + 2 ** 20) % 2 ** 20);
    }).observe(stage, { attributes: true, attributeFilter: ["data-pictures"] });
}

if (process.env.SCREENPUSH_TARGET === undefined) {
    await measure();
} else {
    await subscribe(process.env.SCREENPUSH_TARGET, Number(process.env.SCREENPUSH_SUBSCRIBERS));
}
