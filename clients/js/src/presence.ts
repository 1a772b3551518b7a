/**
 * The users on a channel, always current, where the server is Encke and has presence.
 *
 *     import { presence } from "encke/presence";
 *
 *     const room = presence(client, "/room/1", () => show([...room]));
 *
 * @module encke/presence
 */

import type { Client } from "./client.js";
import type { EnckeError } from "./errors.js";
import type { Subscription } from "./subscription.js";
/** A user on a channel with presence. */
export interface Member {
    /** The user's name. */
    user: string;
    /** The number of the user's sessions when the list was read; 1 for those who came later. */
    sessions: number;
}

/** The users on a channel. The function is called at each change. */
export function presence(client: Client, channel: string, onChange: (presence: Presence) => void = () => undefined): Presence {
    return new Presence(client, channel, onChange);
}

/** An announcement of Encke. */
interface Announcement {
    joined: string[];
    left: string[];
    anonymous: number;
    sessions: number;
}

interface Page {
    anonymous: number;
    sessions: number;
    members: Member[];
    next: string | null;
}

/** The users on a channel. It follows the announcements of the server, and reads the list again where it may have missed some. */
export class Presence implements Iterable<Member> {
    /** The channel. */
    readonly channel: string;
    /** Resolves when the list is complete for the first time; rejects if the server refuses it. */
    readonly ready: Promise<void>;
    /** Sessions without a user. */
    anonymous = 0;
    /** Sessions on the channel. */
    sessions = 0;

    readonly #client: Client;
    readonly #onChange: (presence: Presence) => void;
    readonly #announcements: Subscription<Announcement>;
    readonly #stopListening: () => void;
    #members = new Map<string, Member>();
    /** Announcements that come while the list is read. */
    #pending: Announcement[] | undefined;
    #reading: Promise<void> | undefined;
    #isClosed = false;

    /** @internal */
    constructor(client: Client, channel: string, onChange: (presence: Presence) => void) {
        this.channel = channel;
        this.#client = client;
        this.#onChange = onChange;
        this.#announcements = client.subscribe<Announcement>(`/presence${channel}`, { onGap: () => this.#refresh() }, ({ data }) => this.#take(data));
        this.#stopListening = client.on("state", ({ name, resumed }) => name === "connected" && resumed === false && this.#refresh());
        this.ready = this.#announcements.ready.then(() => this.#complete());
        this.ready.catch(() => undefined);
    }

    /** The number of users. */
    get size(): number {
        return this.#members.size;
    }

    /** True if the user is on the channel. */
    has(user: string): boolean {
        return this.#members.has(user);
    }

    /** The users, by name. */
    [Symbol.iterator](): Iterator<Member> {
        return [...this.#members.values()].sort((one, other) => (one.user < other.user ? -1 : 1))[Symbol.iterator]();
    }

    /** Follows the channel no longer. */
    close(): void {
        this.#isClosed = true;
        this.#stopListening();
        this.#announcements.unsubscribe();
    }

    /** Reads the list again. If the server refuses it, it stays as it is. */
    #refresh(): void {
        this.#complete().catch(() => undefined);
    }

    /** Reads the list, again after each break. Rejects if the server refuses it. */
    async #complete(): Promise<void> {
        while (!this.#isClosed) {
            try {
                return await (this.#reading ??= this.#read().finally(() => (this.#reading = undefined)));
            } catch (error) {
                if (!["connection_lost", "timed_out"].includes((error as EnckeError).code)) {
                    throw error;
                }
            }
        }
    }

    /** Announcements that come meanwhile apply to the list. */
    async #read(): Promise<void> {
        const pending: Announcement[] = (this.#pending = []);
        try {
            const members = new Map<string, Member>();
            for (let after: string | null = ""; after !== null; ) {
                const page: Page = await this.#client.call<Page>("/service/presence", { channel: this.channel, after, limit: PAGE_MEMBERS });
                page.members.forEach((member) => members.set(member.user, member));
                [this.anonymous, this.sessions, after] = [page.anonymous, page.sessions, page.next];
            }
            this.#members = members;
        } finally {
            this.#pending = undefined;
        }
        pending.forEach((announcement) => this.#apply(announcement));
        this.#changed();
    }

    #take(announcement: Announcement): void {
        if (this.#pending !== undefined) {
            this.#pending.push(announcement);
        } else {
            this.#apply(announcement);
            this.#changed();
        }
    }

    #apply({ joined, left, anonymous, sessions }: Announcement): void {
        left.forEach((user) => this.#members.delete(user));
        joined.forEach((user) => this.#members.has(user) || this.#members.set(user, { user, sessions: 1 }));
        [this.anonymous, this.sessions] = [anonymous, sessions];
    }

    #changed(): void {
        if (!this.#isClosed) {
            this.#onChange(this);
        }
    }
}

/** The members of one page. */
const PAGE_MEMBERS = 1_000;
