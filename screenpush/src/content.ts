/** Runs in every page while auto-push is on: reports that something has happened, and where the pointer is. Reads nothing of the page. */

import type { PageEvent } from "./messages";
import { load, whenChanged, type EventName, type ExtensionSettings } from "./settings";

let settings: ExtensionSettings | undefined;
let pointer: { x: number; y: number } | undefined;
let isOver = false;
/** Events that are not reported yet: they go together. */
let waiting: ReturnType<typeof setTimeout> | undefined;

function report(event: EventName | "pointer"): void {
    const isWanted = settings?.autoPush === true && (event === "pointer" ? settings.pointer : settings.events[event]);
    if (!isWanted || isOver || waiting !== undefined || document.visibilityState !== "visible") {
        return;
    }
    waiting = setTimeout(() => {
        waiting = undefined;
        const message: PageEvent = pointer === undefined ? { kind: "event", event } : { kind: "event", event, pointer };
        // The extension was updated or removed: this script is an old one.
        chrome.runtime.sendMessage(message).catch(() => (isOver = true));
    }, TOGETHER_MS);
}

function onPointer(event: MouseEvent): void {
    // Frames of the page have other coordinates.
    if (window === window.top) {
        pointer = { x: event.clientX / innerWidth, y: event.clientY / innerHeight };
        report("pointer");
    }
}

async function start(): Promise<void> {
    const quiet = { capture: true, passive: true };
    addEventListener("click", () => report("click"), quiet);
    addEventListener("input", () => report("typing"), quiet);
    addEventListener("keydown", () => report("typing"), quiet);
    addEventListener("scroll", () => report("scroll"), quiet);
    addEventListener("resize", () => report("resize"), quiet);
    addEventListener("load", () => report("navigation"), quiet);
    addEventListener("mousemove", onPointer, quiet);
    new MutationObserver(() => report("changes")).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    whenChanged((changed) => (settings = changed));
    settings = await load();
    report("navigation");
}

// Auto-push may be switched on again in a page that has this script already.
const page = globalThis as { screenpush?: boolean };
if (page.screenpush !== true) {
    page.screenpush = true;
    void start();
}

const TOGETHER_MS = 50;
