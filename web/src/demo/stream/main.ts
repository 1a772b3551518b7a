/** The page of streams: chunks of endless responses as they arrive, and the chart of threads beside one thread. */

import { byId, element } from "../../dom";
import { notice } from "../../notices";
import { drawCharts } from "./chart";
import { Stream, type Chunk, type StreamState } from "./stream";
import { Strip } from "./strip";

/** A stream and its part of the page. */
class Panel {
    readonly #stream: Stream;
    readonly #strip: Strip;
    readonly #part = element("section", "card stream");
    readonly #state = element("p", "state", "Opening…");
    readonly #facts = element("p", "facts note", "no chunk yet");
    readonly #log = element("ol", "log");
    #chunks = 0;
    #bytes = 0;
    #last: number | undefined;
    state: StreamState = "opening";
    why: string | undefined;

    constructor(id: string, everyMs: number) {
        const title = element("h2", "", `Stream ${id}`);
        title.id = `stream-${id}`;
        this.#part.setAttribute("aria-labelledby", title.id);
        const close = element("button", "small", "Close");
        close.setAttribute("type", "button");
        close.setAttribute("aria-label", `Close stream ${id}`);
        close.addEventListener("click", () => this.close());
        const head = element("div", "stream-head");
        head.append(title, this.#state, close);
        const canvas = document.createElement("canvas");
        canvas.className = "strip";
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `A dot for each chunk of stream ${id} in the last half minute`);
        this.#strip = new Strip(canvas);
        this.#part.append(head, canvas, this.#facts, this.#log);
        byId("streams").append(this.#part);
        this.#stream = new Stream(id, everyMs, { chunk: (chunk) => this.#take(chunk), changed: (state, why) => this.#become(state, why) });
    }

    draw(now: number): void {
        this.#strip.draw(now);
    }

    close(): void {
        panels.delete(this);
        this.#part.remove();
        this.#stream.close();
        byId("open").focus();
    }

    #take(chunk: Chunk): void {
        this.#strip.add(chunk);
        this.#chunks += 1;
        this.#bytes += chunk.bytes;
        const gap = this.#last === undefined ? "" : `+${((chunk.at - this.#last) / 1_000).toFixed(2)} s`;
        this.#last = chunk.at;
        this.#show("chunk", chunk.text, gap);
        this.#facts.textContent = `${this.#chunks.toLocaleString("en")} chunks, ${this.#bytes.toLocaleString("en")} bytes, one request`;
    }

    #show(kind: "chunk" | "break", text: string, gap = ""): void {
        const line = element("li", kind);
        line.append(element("span", "text", text), element("span", "gap", gap));
        this.#log.prepend(line);
        while (this.#log.children.length > MAX_SHOWN_LINES) {
            this.#log.lastElementChild?.remove();
        }
    }

    #become(state: StreamState, why?: string): void {
        [this.state, this.why] = [state, why];
        this.#part.dataset.state = state;
        this.#state.textContent = STATES[state];
        if (state === "waiting" && this.#last !== undefined) {
            this.#last = undefined;
            this.#show("break", "the stream broke");
        }
        showState();
    }
}

const panels = new Set<Panel>();
let lastId = 0;

function open(): void {
    if (panels.size >= MAX_STREAMS) {
        notice("many", `A browser opens ${BROWSER_CONNECTIONS} connections to a server, so this page opens ${MAX_STREAMS} streams at most. Close one first.`);
        return;
    }
    lastId += 1;
    panels.add(new Panel(String(lastId), Number(byId<HTMLSelectElement>("every").value)));
}

/** Says in #link and in one sentence how the streams are. */
function showState(): void {
    const states = [...panels].map(({ state }) => state);
    const link = byId("link");
    const isBroken = states.includes("waiting");
    const openCount = states.filter((state) => state === "open").length;
    link.dataset.state = isBroken ? "reconnecting" : openCount > 0 ? "connected" : "closed";
    link.textContent = isBroken ? "Reconnecting…" : openCount === 0 ? "No stream" : openCount === 1 ? "1 stream" : `${openCount} streams`;
    const why = [...panels].find(({ why }) => why !== undefined)?.why;
    if (why === undefined) {
        notice("stream");
    } else {
        notice("stream", why);
    }
    if (panels.size < MAX_STREAMS) {
        notice("many");
    }
}

function drawStrips(now: number): void {
    panels.forEach((panel) => panel.draw(now));
    requestAnimationFrame(drawStrips);
}

function start(): void {
    byId("open").addEventListener("click", open);
    for (const origin of document.querySelectorAll(".origin")) {
        origin.textContent = location.origin;
    }
    drawCharts();
    requestAnimationFrame(drawStrips);
    addEventListener("pagehide", () => [...panels].forEach((panel) => panel.close()));
    // Not sooner: a response that goes on would keep the page loading.
    addEventListener("load", () => setTimeout(open));
}

const STATES: Record<StreamState, string> = { opening: "Opening…", open: "Open", waiting: "Waits to ask again", closed: "Closed" };
const MAX_SHOWN_LINES = 6;
/** A browser's limit for one server (HTTP/1.1); the other two are for everything else. */
const BROWSER_CONNECTIONS = 6;
const MAX_STREAMS = 4;

start();
