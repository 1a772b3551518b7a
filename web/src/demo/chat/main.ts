/** The chat page: its forms, its list of members, its lines. What goes over the wire is in room.ts. */

import { byId, element, hue, showLink, timeOfDay, type LinkState } from "../../dom";
import { Room, type Line } from "./room";

const room = new Room({
    line: showLine,
    members: showMembers,
    changed: showState,
    refused: (text) => append("refused", `Not accepted by the server: ${text}`),
});
/** Whom the next message goes to: a name, several with commas between, or everyone. */
let peer: string | undefined;
/** The members of the room, as the server last said. */
let members: string[] = [];
/** True if the visitor is in the room, connected or waiting to be again. */
let inside = false;

function join(event: SubmitEvent): void {
    event.preventDefault();
    const name = byId<HTMLInputElement>("name").value.trim();
    if (name === "") {
        return;
    }
    inside = true;
    byId("why").hidden = true;
    byId("log").replaceChildren();
    showMembers([]);
    showRoom(true);
    byId("text").focus();
    room.join(name);
}

function leave(): void {
    inside = false;
    room.leave();
    writeTo(undefined);
    showRoom(false);
    byId("name").focus();
}

function send(event: SubmitEvent): void {
    event.preventDefault();
    const input = byId<HTMLInputElement>("text");
    const text = input.value.trim();
    if (text === "") {
        return;
    }
    if (!room.connected) {
        append("notice", "Not sent: waiting for the connection.");
        return;
    }
    // `name::text` writes to one person without leaving the keyboard, as in CometD's demo.
    const [, to = peer, words = text] = /^([^:]+)::(.+)$/s.exec(text) ?? [];
    if (to === undefined) {
        room.say(words);
    } else if (to.split(",").some((name) => members.includes(name.trim()))) {
        room.whisper(to.split(",").map((name) => name.trim()).join(","), words.trim());
    } else {
        append("notice", `Not sent: no one here is called ${to.trim()}.`);
        return;
    }
    input.value = "";
}

function showLine(line: Line): void {
    const own = line.user === room.user;
    if (line.kind === "join" || line.kind === "leave") {
        append("notice", own ? line.text.replace(line.user, "You").replace(/^You is /, "You are ") : line.text);
        return;
    }
    const bubble = element("p", "bubble");
    bubble.append(element("span", "words", line.text), timeOfDay());
    const entry = element("div", own ? "entry own" : "entry");
    if (!own || line.kind === "private") {
        const by = element("p", `by hue-${hue(line.user)}`, own ? "You" : line.user);
        if (line.kind === "private") {
            entry.classList.add("whispered");
            by.append(element("span", "tag", line.to === undefined ? "private" : `private to ${line.to}`));
        }
        entry.append(by);
    }
    entry.append(bubble);
    appendNode(entry);
}

function append(kind: "notice" | "refused", text: string): void {
    appendNode(element("p", kind, text));
}

/** Adds to the log, and stays at its end unless the visitor has scrolled up to read. */
function appendNode(node: HTMLElement): void {
    const log = byId("log");
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PIXELS;
    log.append(node);
    while (log.children.length > MAX_SHOWN_LINES) {
        log.firstElementChild?.remove();
    }
    if (atEnd) {
        log.scrollTop = log.scrollHeight;
    }
}

function showMembers(names: string[]): void {
    members = names;
    byId("count").textContent = String(names.length);
    byId("members").replaceChildren(...names.slice(0, MAX_SHOWN_MEMBERS).map(memberItem));
}

function memberItem(name: string): HTMLElement {
    const item = element("li", `hue-${hue(name)}`);
    if (name === room.user) {
        item.append(element("span", "member", name), element("span", "tag", "you"));
        return item;
    }
    const button = element("button", "member", name);
    button.setAttribute("type", "button");
    button.setAttribute("aria-label", `Write to ${name} alone`);
    button.addEventListener("click", () => writeTo(name));
    item.append(button);
    return item;
}

function writeTo(name: string | undefined): void {
    peer = name;
    byId("private").hidden = name === undefined;
    byId("peer").textContent = name ?? "";
    byId("say").classList.toggle("whispering", name !== undefined);
    byId("text").focus();
}

function showState(state: LinkState, transport: string): void {
    showLink(state, transport);
    byId("room").classList.toggle("away", state !== "connected");
    if (inside && state === "reconnecting") {
        append("notice", "Connection lost. Trying again…");
    }
    if (inside && state === "ended") {
        leave();
        byId("why").textContent = "No connection to the server. Join again when it is back.";
        byId("why").hidden = false;
        showLink(state, transport);
    }
}

function showRoom(visible: boolean): void {
    byId("room").hidden = !visible;
    byId("join").hidden = visible;
    document.body.classList.toggle("inside", visible);
}

function start(): void {
    byId<HTMLInputElement>("name").value = new URLSearchParams(location.search).get("user") ?? "";
    byId("join").addEventListener("submit", join);
    byId("say").addEventListener("submit", send);
    byId("leave").addEventListener("click", leave);
    byId("public").addEventListener("click", () => writeTo(undefined));
    byId("say").addEventListener("keydown", (event) => event.key === "Escape" && writeTo(undefined));
    addEventListener("pagehide", () => inside && leave());
    byId("name").focus();
}

const MAX_SHOWN_LINES = 500;
const MAX_SHOWN_MEMBERS = 200;
const NEAR_END_PIXELS = 80;

start();
