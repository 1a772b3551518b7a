/** The presence page: who is in the room, by the server's presence service. */

import type { Client, ClientOptions, EnckeError } from "encke";
import { presence, type Presence } from "encke/presence";
import { Connection, onRefusal, openWithPage } from "../../connection";
import { byId, element, hue, showLink, timeOfDay, type LinkState } from "../../dom";
import { linkNotice, notice } from "../../notices";

const connection = new Connection({ opened, changed: showState, renewed: () => (known = undefined) }, options);
/** The members as the client follows them. */
let room: Presence | undefined;
/** The names that are shown; undefined until the server has said who is here. */
let known: string[] | undefined;

/** The name that this visitor goes by: a reload keeps it, so that it is neither a leave nor a join. */
function ownName(): string {
    return (sessionStorage["encke.presence.name"] as string | undefined) ?? "";
}

/** A handshake names its user, so another name is another session. */
function options(): ClientOptions {
    const name = ownName();
    return name === "" ? {} : { ext: { demo: { user: name } } };
}

/** Whoever subscribes to the channel is in the room. */
function opened(client: Client): void {
    onRefusal(client, refused);
    client.subscribe(CHANNEL, () => {});
    follow(client);
}

function follow(client: Client): void {
    known = undefined;
    const followed = presence(client, CHANNEL, listed);
    room = followed;
    followed.ready.then(
        () => notice("off"),
        (error: EnckeError) => {
            followed.close();
            if (client === connection.client) {
                refused(error.message);
                setTimeout(() => client === connection.client && follow(client), ASK_AGAIN_MS);
            }
        },
    );
}

/** The list has changed. A first list is no event. */
function listed(room: Presence): void {
    const names = [...room].map(({ user }) => shown(user)).sort((one, other) => one.localeCompare(other));
    const before = known ?? names;
    before.filter((name) => !names.includes(name)).forEach((name) => report(name, "left"));
    names.filter((name) => !before.includes(name)).forEach((name) => report(name, "came"));
    known = names;
    show();
}

/** A name that a visitor has chosen is a user called `demo:` and the name. */
function shown(user: string): string {
    return user.replace(/^demo:/, "");
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
    showLink(state, connection.transport);
    linkNotice(state, "the list may be old until then.", () => connection.open());
    byId("room").classList.toggle("away", state !== "connected");
    show();
}

function show(): void {
    const own = ownName();
    const users = known ?? [];
    const isKnown = known !== undefined;
    byId("users").textContent = isKnown ? String(users.length) : "–";
    byId("anonymous").textContent = isKnown ? String(room?.anonymous) : "–";
    byId("sessions").textContent = isKnown ? String(room?.sessions) : "–";
    byId("members").replaceChildren(...users.slice(0, MAX_SHOWN).map((user) => card(user, user === own)));
    byId("nobody").hidden = !isKnown || users.length > 0;
    byId("more").hidden = users.length <= MAX_SHOWN;
    byId("more").textContent = `and ${users.length - MAX_SHOWN} more`;
    const isNameless = isKnown && own !== "" && connection.state === "connected" && !users.includes(own);
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
    if (user === ownName()) {
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
    if (name === ownName() && connection.state !== "ended") {
        return;
    }
    sessionStorage["encke.presence.name"] = name;
    connection.close();
    connection.open();
}

function start(): void {
    byId<HTMLInputElement>("name").value = ownName();
    byId("enter").addEventListener("submit", rename);
    openWithPage(() => connection.open(), () => connection.close());
}

const CHANNEL = "/demo/presence/lobby";
const ASK_AGAIN_MS = 5_000;
const MAX_SHOWN = 200;
const MAX_EVENTS = 12;
const LINES = `[[channels]]
pattern = "/demo/presence/**"
presence = true`;

start();
