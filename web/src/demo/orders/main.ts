/** The page of orders: requests with replies, the latency of each, and a histogram. */

import { openWithPage } from "../../connection";
import { byId, element, showLink, type LinkState } from "../../dom";
import { linkNotice, notice } from "../../notices";
import { OrderClient, type Ask, type End, type Order } from "./client";
import { BOUNDS_MS, Latencies, inWords } from "./latencies";

const client = new OrderClient({ ended, changed: showState });
const latencies = new Latencies();
const totals: Record<End["outcome"], number> = { answer: 0, refused: 0, late: 0, lost: 0 };
const lines = new Map<Order, HTMLElement>();
let bars: HTMLElement[] = [];
let isScheduled = false;
let repeating: ReturnType<typeof setTimeout> | undefined;

function send(count: number): void {
    const room = Math.max(0, MAX_IN_FLIGHT - client.inFlight);
    if (count > room) {
        notice("many", `${MAX_IN_FLIGHT} orders wait for their replies, which is all that this page sends. Wait for some, or ask for a shorter delay.`);
    } else {
        notice("many");
    }
    if (client.isConnected) {
        client.send(Array.from({ length: Math.min(count, room) }, ask), 1_000 * setting("timeout")).forEach(show);
        redraw();
    }
}

/** The answer that the next order requests, by the settings of the page. */
function ask(): Ask {
    const chance = 100 * Math.random();
    const never = chance < setting("never");
    return { delay_ms: setting("delay"), fails: !never && chance < setting("never") + setting("fails"), never };
}

/** A number of the form, within its bounds. */
function setting(id: string): number {
    const input = byId<HTMLInputElement>(id);
    const number = Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : Number(input.defaultValue);
    return Math.min(Math.max(number, Number(input.min)), Number(input.max));
}

/** Sends an order every 50 to 250 ms, as the clients of "Scaling Node.js" (2012) do. */
function repeat(isOn: boolean): void {
    clearTimeout(repeating);
    repeating = undefined;
    if (isOn) {
        send(1);
        repeating = setTimeout(() => repeat(true), 50 + 200 * Math.random());
    }
    byId("repeat").textContent = isOn ? "Stop sending" : "Keep sending";
}

function show(order: Order): void {
    const line = element("tr", "order");
    line.dataset.state = "waiting";
    const name = element("th", "number", String(order.request));
    name.setAttribute("scope", "row");
    line.append(name, element("td", "state", "waiting…"), element("td", "number", "–"), element("td", "words", asked(order)));
    lines.set(order, line);
    byId("orders").prepend(line);
    while (byId("orders").children.length > MAX_SHOWN_ORDERS) {
        byId("orders").lastElementChild?.remove();
    }
    byId("nothing").hidden = true;
}

function asked({ shares, ask }: Order): string {
    const request = ask.never ? ", asks for no answer" : ask.fails ? ", asks for a refusal" : ask.delay_ms > 0 ? `, asks for ${ask.delay_ms} ms` : "";
    return `${shares} shares${request}`;
}

function ended(order: Order, { outcome, words, ms }: End): void {
    totals[outcome] += 1;
    if (outcome === "answer") {
        latencies.add(ms);
    }
    const line = lines.get(order);
    lines.delete(order);
    if (line !== undefined) {
        line.dataset.state = outcome;
        const [, state, latency, text] = line.children;
        state!.textContent = STATES[outcome];
        latency!.textContent = inWords(ms);
        text!.textContent = words;
    }
    redraw();
}

/** Draws figures and histogram in the next frame. */
function redraw(): void {
    if (!isScheduled) {
        isScheduled = true;
        requestAnimationFrame(draw);
    }
}

function draw(): void {
    isScheduled = false;
    byId("in-flight").textContent = String(client.inFlight);
    for (const outcome of ["answer", "refused", "late", "lost"] as const) {
        byId(outcome).textContent = totals[outcome].toLocaleString("en");
    }
    for (const [id, share] of [["half", 0.5], ["most", 0.95], ["worst", 0.99]] as const) {
        const ms = latencies.quantile(share);
        byId(id).textContent = ms === undefined ? "–" : inWords(ms);
    }
    const highest = Math.max(1, ...latencies.counts);
    bars.forEach((bar, index) => {
        const count = latencies.counts[index] ?? 0;
        bar.querySelector<HTMLElement>(".fill")!.style.setProperty("--share", String(count / highest));
        bar.querySelector(".count")!.textContent = count === 0 ? "" : count.toLocaleString("en");
    });
}

/** The bars of the histogram, one for each range. */
function makeBars(): HTMLElement[] {
    const bound = (ms: number) => (ms < 1_000 ? `${ms}` : `${ms / 1_000} s`);
    const name = (index: number) => (index < BOUNDS_MS.length ? `< ${bound(BOUNDS_MS[index]!)}` : `≥ ${bound(BOUNDS_MS.at(-1)!)}`);
    return [...BOUNDS_MS, Infinity].map((_, index) => {
        const bar = element("li", "range");
        const column = element("span", "column");
        column.append(element("span", "count"), element("span", "fill"));
        bar.append(column, element("span", "bound", name(index)));
        return bar;
    });
}

function showState(state: LinkState): void {
    showLink(state, client.transport);
    linkNotice(state, "nobody knows if the server took the orders that waited.", () => client.open());
    for (const id of ["send-1", "send-50", "repeat"]) {
        byId<HTMLButtonElement>(id).disabled = state !== "connected";
    }
    if (state !== "connected") {
        repeat(false);
    }
}

function start(): void {
    bars = makeBars();
    byId("histogram").append(...bars);
    byId("send-50").addEventListener("click", () => send(50));
    byId("repeat").addEventListener("click", () => repeat(repeating === undefined));
    byId("ask").addEventListener("submit", (event) => {
        event.preventDefault();
        send(1);
    });
    openWithPage(() => client.open(), () => client.close());
}

const STATES: Record<End["outcome"], string> = { answer: "answered", refused: "refused", late: "timed out", lost: "lost" };
/** More than the server lets one session wait for (`calls_waiting_per_session_max`), so that its refusal can be seen. */
const MAX_IN_FLIGHT = 200;
const MAX_SHOWN_ORDERS = 100;

start();
