/** The few things every page does with its document. */

/** The state of the page's connection. `ended`: the server refused or closed it permanently, and the page does not reopen it by itself. */
export type LinkState = "closed" | "connecting" | "connected" | "reconnecting" | "ended";

/** The element with this id, which the page is known to have. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
    const found = document.getElementById(id);
    if (found === null) {
        throw new Error(`the page has no #${id}`);
    }
    return found as T;
}

/** A new element. Text is only ever set as text, so markup in a message stays what it is: characters. */
export function element(tag: string, className: string, text = ""): HTMLElement {
    const made = document.createElement(tag);
    made.className = className;
    made.textContent = text;
    return made;
}

/** Hours and minutes, as the visitor writes them. */
export function timeOfDay(): HTMLTimeElement {
    const now = new Date();
    const made = document.createElement("time");
    made.dateTime = now.toISOString();
    made.textContent = now.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return made;
}

/** Fills the screen with an element, or ends that. Calls `refused` where the browser cannot. */
export function toggleFullScreen(shown: HTMLElement, refused: () => void): void {
    if (document.fullscreenElement !== null) {
        void document.exitFullscreen();
    } else if (typeof shown.requestFullscreen === "function") {
        shown.requestFullscreen().catch(refused);
    } else {
        refused();
    }
}

/** Says in the page's #link how the session stands. */
export function showLink(state: LinkState, transport: string): void {
    const link = byId("link");
    link.dataset.state = state;
    link.textContent = state === "connected" && transport !== "" ? `Connected · ${transport}` : LINK_WORDS[state];
}

/** One of eight colours, the same for a name on every page. */
export function hue(name: string): number {
    let sum = 0;
    for (const char of name) {
        sum = (sum * 31 + char.codePointAt(0)!) % 65_521;
    }
    return sum % HUES;
}

const LINK_WORDS: Record<LinkState, string> = {
    closed: "Not connected",
    connecting: "Connecting…",
    connected: "Connected",
    reconnecting: "Reconnecting…",
    ended: "Disconnected",
};

/** As many as the style sheet names. */
const HUES = 8;
