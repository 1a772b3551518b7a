/**
 * The chat room as the server's demo services understand it:
 *
 * - `/demo/chat/lobby` carries `{user, chat}`, with `membership` for those who come and go and `scope: "private"` for what
 *   only its receivers get;
 * - a call of `/service/demo/members` enters the caller in the list of members and returns it, `{members, version}`; each
 *   change comes on `/demo/members/lobby`, `{left, joined, version}`;
 * - a publication to `/service/demo/privatechat` reaches the named peers and its sender only.
 */

import type { LinkState } from "../../dom";
import { Session } from "../../session";

/** One line of the room. */
export interface Line {
    user: string;
    text: string;
    kind: "said" | "private" | "join" | "leave";
    /** The recipient of an own private line, if known. */
    to?: string | undefined;
}

/** The events that the page handles. */
export interface RoomEvents {
    line(line: Line): void;
    members(names: string[]): void;
    changed(state: LinkState, transport: string): void;
    /** The server refused a message of this page. */
    refused(text: string): void;
}

/** The room, seen by one member. */
export class Room {
    readonly #events: RoomEvents;
    readonly #session: Session;
    #user = "";
    /** Own private lines still on their way back, oldest first: they come back without the names they went to. */
    #whispers: { peers: string; text: string }[] = [];
    #members: string[] = [];
    /** The number of the last change in `#members`. */
    #version = 0;

    constructor(events: RoomEvents) {
        this.#events = events;
        this.#session = new Session({
            opened: (again) => this.#enter(again),
            changed: (state) => events.changed(state, this.#session.transport),
        });
    }

    /** The name this page goes by. */
    get user(): string {
        return this.#user;
    }

    get connected(): boolean {
        return this.#session.state === "connected";
    }

    join(user: string): void {
        this.#user = user;
        this.#session.open();
    }

    say(text: string): void {
        this.#session.publish(CHAT, { user: this.#user, chat: text }, (accepted) => accepted || this.#events.refused(text));
    }

    /** Writes to `peers` alone: a name, or several with commas between. */
    whisper(peers: string, text: string): void {
        const message = { room: CHAT, user: this.#user, peer: peers, chat: text };
        this.#whispers = [...this.#whispers, { peers, text }].slice(-MAX_WHISPERS);
        this.#session.publish("/service/demo/privatechat", message, (accepted) => accepted || this.#events.refused(text));
    }

    leave(): void {
        if (this.connected) {
            this.#session.publish(CHAT, { user: this.#user, membership: "leave", chat: `${this.#user} left` });
        }
        this.#session.close();
    }

    /** Runs on every new session: after a restart the server knows neither subscriptions nor members. */
    #enter(again: boolean): void {
        const user = this.#user;
        this.#session.subscribe(CHAT, (data) => this.#receive(data));
        this.#session.subscribe(MEMBERS, (data) => this.#change(data));
        this.#list();
        this.#session.publish(CHAT, { user, membership: "join", chat: again ? `${user} is back` : `${user} joined` });
    }

    /** Enters this page in the list of members, if it is not in it, and asks for it. */
    #list(): void {
        this.#session.call("demo/members", { user: this.#user, room: CHAT }, (data) => {
            const { members, version } = asRecord(data);
            if (Array.isArray(members) && typeof version === "number") {
                this.#version = version;
                this.#show(members.filter((name) => typeof name === "string"));
            }
        });
    }

    /** One change of the list. A page that has missed one asks for the whole list. */
    #change(data: unknown): void {
        const { left, joined, version } = asRecord(data);
        if (typeof version !== "number" || version <= this.#version) {
            return;
        }
        if (version > this.#version + 1) {
            this.#list();
            return;
        }
        this.#version = version;
        const others = this.#members.filter((name) => name !== left && name !== joined);
        this.#show(typeof joined === "string" ? [...others, joined] : others);
    }

    #show(members: string[]): void {
        this.#members = members;
        this.#events.members(members);
    }

    #receive(data: unknown): void {
        const line = lineOf(data);
        if (line === undefined) {
            return;
        }
        if (line.kind === "private" && line.user === this.#user) {
            const index = this.#whispers.findIndex(({ text }) => text === line.text);
            line.to = this.#whispers[index]?.peers;
            this.#whispers.splice(0, index + 1);
        }
        this.#events.line(line);
    }
}

/** Reads a publication of the chat channel; anyone can publish there, so anything may come. */
function lineOf(data: unknown): Line | undefined {
    const { user, chat, membership, scope } = asRecord(data);
    if (typeof user !== "string" || typeof chat !== "string") {
        return undefined;
    }
    const kind = membership === "join" || membership === "leave" ? membership : scope === "private" ? "private" : "said";
    return { user, text: asTyped(chat), kind };
}

/** The demo sends `<` and `>` as entities, as CometD's does, for pages that show HTML. This one shows text, so they are turned back. */
function asTyped(text: string): string {
    return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">");
}

function asRecord(data: unknown): Record<string, unknown> {
    return typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
}

const CHAT = "/demo/chat/lobby";
const MEMBERS = "/demo/members/lobby";
/** A line refused by the server never comes back, so what is awaited is bounded. */
const MAX_WHISPERS = 32;
