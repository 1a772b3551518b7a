/** The start page: one channel, to publish on and to watch. */

import type { Client } from "encke";
import { Connection, openWithPage } from "./connection";
import { byId, element, showLink, timeOfDay, type LinkState } from "./dom";
import { goRound } from "./orbit";
import { showBoard, subscribePictures } from "./pictures";

/** The data that this page publishes. Programs may publish anything else; it is shown as its JSON. */
interface Hello {
    text: string;
    /** The window that sent it: a random name, of no use for anything else. */
    window: string;
    /** The window's own count of what it sent, to tell how long the way there and back took. */
    count: number;
}

const connection = new Connection({ opened, changed: showState });
const windowName = crypto.getRandomValues(new Uint32Array(2)).join("-");
/** When each message still under way was sent, in milliseconds of the page's clock. */
const sentAt = new Map<number, number>();
let count = 0;

function opened(client: Client): void {
    client.subscribe(CHANNEL, ({ data }) => arrived(data));
    subscribePictures(client);
}

function publish(event: SubmitEvent): void {
    event.preventDefault();
    const input = byId<HTMLInputElement>("text");
    const text = input.value.trim();
    if (text === "" || connection.state !== "connected") {
        return;
    }
    input.value = "";
    const hello: Hello = { text, window: windowName, count: ++count };
    sentAt.set(hello.count, performance.now());
    connection.client?.publish(CHANNEL, hello).catch(() => {
        sentAt.delete(hello.count);
        show(text, "not accepted", "failed");
    });
}

function arrived(data: unknown): void {
    goRound();
    if (!isHello(data)) {
        show(typeof data === "string" ? data : JSON.stringify(data), "from a program", "other");
        return;
    }
    const sent = data.window === windowName ? sentAt.get(data.count) : undefined;
    if (sent === undefined) {
        show(data.text, "from another window", "other");
        return;
    }
    sentAt.delete(data.count);
    const roundTrip = `${(performance.now() - sent).toFixed(1)} ms`;
    byId("round-trip").textContent = roundTrip;
    show(data.text, `from this window, ${roundTrip}`, "own");
}

function show(text: string, origin: string, kind: "own" | "other" | "failed"): void {
    const item = element("li", kind);
    item.append(element("span", "what", text), element("span", "origin-note", origin), timeOfDay());
    const list = byId("arrivals");
    list.prepend(item);
    while (list.children.length > MAX_SHOWN_ARRIVALS) {
        list.lastElementChild?.remove();
    }
    byId("nothing").hidden = true;
}

function showState(state: LinkState): void {
    showLink(state, connection.transport);
    byId("transport").textContent = state === "connected" ? connection.transport : "–";
    byId("again").hidden = state !== "ended";
}

function isHello(data: unknown): data is Hello {
    const hello = data as Partial<Hello> | null;
    return typeof hello === "object" && typeof hello?.text === "string" && typeof hello.window === "string" && typeof hello.count === "number";
}

/** A button that copies the code of a figure. Browsers allow it to pages of this machine, or with TLS. */
function addCopy(figure: HTMLElement): void {
    if (!isSecureContext) {
        return;
    }
    const name = figure.querySelector("figcaption")!.firstChild!.textContent!.trim();
    const button = element("button", "small", "Copy");
    button.setAttribute("type", "button");
    button.setAttribute("aria-label", `Copy the code: ${name}`);
    button.addEventListener("click", async () => {
        const done = await navigator.clipboard.writeText(figure.querySelector("pre")!.innerText).then(() => "Copied", () => "Not allowed");
        button.textContent = done;
        setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
    });
    figure.querySelector("figcaption")!.append(button);
}

function start(): void {
    for (const element of document.querySelectorAll(".origin")) {
        element.textContent = location.origin;
    }
    showBoard();
    document.querySelectorAll<HTMLElement>(".snippets figure").forEach(addCopy);
    byId("publish").addEventListener("submit", publish);
    byId("again").addEventListener("click", () => connection.open());
    openWithPage(() => connection.open(), () => connection.close());
}

const CHANNEL = "/demo/hello";
const COPIED_MS = 1_500;
const MAX_SHOWN_ARRIVALS = 6;

start();
