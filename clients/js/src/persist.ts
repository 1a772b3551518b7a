/**
 * Goes on after a reload: what a page leaves to the next one is its session, and the positions of its subscriptions.
 *
 *     import { persist } from "encke/persist";
 *
 *     const client = connect("https://push.example.com", { persist: persist() });
 *
 * @module encke/persist
 */

import type { SavedSession } from "./session.js";
import type { Persistence, Position, TextStore } from "./types.js";

/** Stores in `sessionStorage`, which each tab has to itself, or in another store. */
export function persist(store: TextStore = sessionStorage): Persistence {
    return { open: (url: string) => new Memory(store, url) };
}

/** What is stored needs of the client. @internal */
export interface Persisted {
    freeze(): SavedSession | undefined;
    thaw(): void;
    subscriptions(): Iterable<{ name: string; positions: Record<string, Position> }>;
    /** Aborts when the client is closed. */
    signal: AbortSignal;
}

/** Positions by the names of subscriptions. */
type Stored = Record<string, Record<string, Position>>;

/** The store of a client. @internal */
export class Memory {
    readonly #store: TextStore;
    readonly #key: string;
    /** Positions of earlier pages that no subscription has claimed. */
    readonly #unclaimed: Map<string, Record<string, Position>>;
    #client: Persisted | undefined;
    #timer: ReturnType<typeof setTimeout> | undefined;

    constructor(store: TextStore, url: string) {
        this.#store = store;
        this.#key = `encke:positions:${url}`;
        this.#unclaimed = new Map(Object.entries(this.#read<Stored>(this.#key) ?? {}));
    }

    /** Stores what this client leaves when its page goes away, and continues when the page comes back. */
    follow(client: Persisted): void {
        this.#client = client;
        const { signal } = client;
        const page = globalThis as { addEventListener?: (name: string, run: (event: any) => void, options: object) => void };
        const hide = () => {
            this.#saveSession(client.freeze());
            this.#save();
        };
        const show = () => {
            this.takeSession();
            client.thaw();
        };
        page.addEventListener?.("pagehide", hide, { signal });
        page.addEventListener?.("pageshow", ({ persisted }) => persisted === true && show(), { signal });
        signal.addEventListener("abort", () => this.#save());
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
        return saved && Date.now() - saved.at < SESSION_MAX_MS ? saved : undefined;
    }

    /** A position has changed. */
    changed(): void {
        this.#timer ??= setTimeout(() => this.#save(), SAVE_MS);
    }

    #saveSession(saved: SavedSession | undefined): void {
        if (saved) {
            this.#write(`${this.#key}:session`, { ...saved, at: Date.now() });
        }
    }

    #save(): void {
        clearTimeout(this.#timer);
        this.#timer = undefined;
        const stored: Stored = Object.fromEntries([...this.#unclaimed].slice(-UNCLAIMED_MAX));
        for (const { name, positions } of this.#client?.subscriptions() ?? []) {
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
/** The time after a message within which its position is stored, if the page is not left before. */
const SAVE_MS = 1_000;
