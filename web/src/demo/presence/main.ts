/** The presence page: who is in the room, by the server's presence service. */

import { byId, element, hue, showLink, timeOfDay } from "../../dom";
import { linkNotice, notice } from "../../notices";
import { Session, type LinkState } from "../../session";
import { Room } from "./room";

const room = new Room({ changed: show, came: (user) => report(user, "came"), left: (user) => report(user, "left") });
let session = newSession();
/** True once the server has said who is here. */
let isKnown = false;

/** The name that this visitor goes by: a reload keeps it, so that it is neither a leave nor a join. */
function ownName(): string {
    return (sessionStorage["encke.presence.name"] as string | undefined) ?? "";
}

/** A session under the visitor's name. A handshake names its user, so another name is another session. */
function newSession(): Session {
    const name = ownName();
    return new Session({ opened, changed: showState }, name === "" ? {} : { ext: { demo: { user: name } } });
}

/** First the announcements, then the members: so no change is missed. */
function opened(): void {
    isKnown = false;
    session.subscribe(`/presence${CHANNEL}`, (data) => room.announced(data));
    session.subscribe(CHANNEL, () => {}, refused);
    room.forget();
    ask("");
}

/** Asks for the members after a name, page by page. */
function ask(after: string): void {
    const asked = session;
    session.request("presence", { channel: CHANNEL, after, limit: PAGE }, ANSWER_MS, (outcome) => {
        if (asked !== session) {
            return;
        }
        if (outcome.kind === "answer") {
            notice("off");
            const next = room.listed(outcome.data);
            isKnown = next === undefined;
            if (next !== undefined) {
                ask(next);
            }
            show();
        } else if (outcome.kind === "refused") {
            refused(outcome.why);
            setTimeout(() => asked === session && session.state === "connected" && ask(after), ANSWER_MS);
        } else if (outcome.kind === "late") {
            ask(after);
        }
    });
}

function refused(why: string): void {
    // A server without any presence has no such service.
    if (why.includes("no_presence") || why.includes("service_unknown")) {
        const lines = element("pre", "lines", LINES);
        lines.tabIndex = 0;
        notice("off", "This server announces no presence here. Start it with ", element("code", "", "encke demo"), ", or add these lines to ",
            element("code", "", "encke.toml"), " and send the server SIGHUP; this page notices it by itself.", lines);
    } else {
        notice("off", `The server does not say who is here (${why}). This page asks again by itself.`);
    }
}

function showState(state: LinkState): void {
    showLink(state, session.transport);
    linkNotice(state, "the list may be old until then.", () => session.open());
    byId("room").classList.toggle("away", state !== "connected");
    show();
}

function show(): void {
    const { users, anonymous, sessions } = room;
    const own = ownName();
    byId("users").textContent = isKnown ? String(users.length) : "–";
    byId("anonymous").textContent = isKnown ? String(anonymous) : "–";
    byId("sessions").textContent = isKnown ? String(sessions) : "–";
    byId("members").replaceChildren(...users.slice(0, MAX_SHOWN).map((user) => card(user, user === own)));
    byId("nobody").hidden = !isKnown || users.length > 0;
    byId("more").hidden = users.length <= MAX_SHOWN;
    byId("more").textContent = `and ${users.length - MAX_SHOWN} more`;
    const isNameless = isKnown && own !== "" && session.state === "connected" && !users.includes(own);
    notice("nameless", ...(isNameless ? ["This server does not take the names that visitors choose, so you count without one. Start it with ",
        element("code", "", "encke demo"), ", or give users names with ", element("code", "", "[auth]"), "."] : []));
}

function card(user: string, isOwn: boolean): HTMLElement {
    const item = element("li", `visitor hue-${hue(user)}`);
    const initial = element("span", "initial", [...user][0]?.toUpperCase() ?? "");
    initial.setAttribute("aria-hidden", "true");
    item.append(initial, element("span", "name", user));
    if (isOwn) {
        item.append(element("span", "tag", "you"));
    }
    return item;
}

function report(user: string, verb: "came" | "left"): void {
    if (!isKnown || user === ownName()) {
        return;
    }
    const item = element("li", `event ${verb}`);
    item.append(element("span", "", `${user} ${verb}`), timeOfDay());
    const list = byId("events");
    list.prepend(item);
    while (list.children.length > MAX_EVENTS) {
        list.lastElementChild!.remove();
    }
    byId("quiet").hidden = true;
}

/** Comes back under another name. */
function rename(event: SubmitEvent): void {
    event.preventDefault();
    const name = byId<HTMLInputElement>("name").value.trim();
    if (name === ownName() && session.state !== "ended") {
        return;
    }
    sessionStorage["encke.presence.name"] = name;
    session.close();
    session = newSession();
    session.open();
}

function start(): void {
    byId<HTMLInputElement>("name").value = ownName();
    byId("enter").addEventListener("submit", rename);
    addEventListener("pagehide", () => session.close());
    addEventListener("pageshow", (event) => event.persisted && session.open());
    session.open();
}

const CHANNEL = "/demo/presence/lobby";
const PAGE = 500;
const ANSWER_MS = 5_000;
const MAX_SHOWN = 200;
const MAX_EVENTS = 12;
const LINES = `[[channels]]
pattern = "/demo/presence/**"
presence = true`;

start();
