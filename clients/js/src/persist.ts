/** What a page leaves to the next one: the session, and the positions of its subscriptions. */

import type { SavedSession } from "./session.js";
import type { Position, TextStore } from "./types.js";

/** Positions by the names of subscriptions. */
type Stored = Record<string, Record<string, Position>>;

/** The store of a client. */
export class Memory {
    readonly #store: TextStore;
    readonly #key: string;
    /** Positions of earlier pages that no subscription has claimed. */
    readonly #unclaimed: Map<string, Record<string, Position>>;

    constructor(store: TextStore, url: string) {
        this.#store = store;
        this.#key = `encke:positions:${url}`;
        this.#unclaimed = new Map(Object.entries(this.#read<Stored>(this.#key) ?? {}));
    }

    /** The positions that an earlier page has reached with a subscription of this name. */
    claim(name: string): [string, Position][] {
        const positions = Object.entries(this.#unclaimed.get(name) ?? {});
        this.#unclaimed.delete(name);
        return positions;
    }

    /** The session of the page before. It is there once: a copy of this tab may not have it, too. */
    takeSession(): SavedSession | undefined {
        const saved = this.#read<SavedSession & { at: number }>(`${this.#key}:session`);
        this.#store.removeItem(`${this.#key}:session`);
        return saved !== undefined && Date.now() - saved.at < SESSION_MAX_MS ? saved : undefined;
    }

    saveSession(saved: SavedSession | undefined): void {
        if (saved !== undefined) {
            this.#write(`${this.#key}:session`, { ...saved, at: Date.now() });
        }
    }

    savePositions(subscriptions: Iterable<{ name: string; positions: Record<string, Position> }>): void {
        const stored: Stored = Object.fromEntries([...this.#unclaimed].slice(-UNCLAIMED_MAX));
        for (const { name, positions } of subscriptions) {
            stored[name] = { ...stored[name], ...positions };
        }
        this.#write(this.#key, stored);
    }

    #read<T>(key: string): T | undefined {
        try {
            return JSON.parse(this.#store.getItem(key) ?? "") as T;
        } catch {
            return undefined;
        }
    }

    #write(key: string, value: object): void {
        try {
            this.#store.setItem(key, JSON.stringify(value));
        } catch {
            // There is no room: the next page begins as a new one.
            this.#store.removeItem(key);
        }
    }
}

/** The names of earlier pages whose positions stay stored. */
const UNCLAIMED_MAX = 100;
/** A session of an earlier page that is older has ended on any server. */
const SESSION_MAX_MS = 600_000;
