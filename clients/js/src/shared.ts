/**
 * One connection for several tabs: in a tab that they elect, or in a SharedWorker.
 *
 *     import { tabs } from "encke/shared";
 *
 *     const client = connect("https://push.example.com", { shared: tabs });
 *
 * @module encke/shared
 */

import type { Command, Core, CoreEvent, PlainState } from "./protocol.js";
import type { SavedSession } from "./session.js";
import type { ClientOptions, Sharing } from "./types.js";

/** The tabs elect one that has the connection. Where there are no locks, each has its own. */
export const tabs: Sharing = { open: (url, _options, emit, make) => (canShare() ? new Tab(url, emit, make) : undefined) };

/**
 * A SharedWorker has the connection. `script` is the address at which the site serves `dist/worker.js` of the package. Options and token of
 * the tab that opens it apply. Where there are no such workers, the tabs elect one of them.
 */
export function sharedWorker(script: string | URL): Sharing {
    return { open: (url, options, emit, make) => WorkerTab.open(script, url, options, emit) ?? tabs.open(url, options, emit, make) };
}

/** Makes the connection. @internal */
export type MakeCore = (emit: (event: CoreEvent) => void) => Core;

/** A tab as the hub sees it. */
interface Guest {
    post(event: CoreEvent): void;
    /** The hub's keys by the tab's, and the command that each began with. */
    keys: Map<number, number>;
}

/** The connection with all of its tabs. @internal */
export class Hub {
    readonly #core: Core;
    readonly #guests = new Map<string, Guest>();
    /** The tab, and its key, of each key of the hub. */
    readonly #owners = new Map<number, [string, number]>();
    #lastKey = 0;
    #state: PlainState = { name: "connecting" };
    /** The token that the connection waits for. */
    #wanted: CoreEvent | undefined;
    readonly #onEmpty: () => void;

    /** `onEmpty` is called when the last tab has left. */
    constructor(make: MakeCore, onEmpty = () => {}) {
        this.#onEmpty = onEmpty;
        this.#core = make((event) => this.#take(event));
    }

    /** A tab comes. It learns the state. */
    join(id: string, post: (event: CoreEvent) => void): void {
        this.#forget(id);
        this.#guests.set(id, { post, keys: new Map() });
        post({ on: "state", state: this.#state });
        if (this.#wanted) {
            post(this.#wanted);
        }
    }

    /** A tab goes: nobody waits for what it wanted. */
    leave(id: string): void {
        this.#forget(id);
        if (this.#guests.size === 0) {
            this.#onEmpty();
        }
    }

    #forget(id: string): void {
        for (const key of this.#guests.get(id)?.keys.values() ?? []) {
            this.#core.command({ do: "unsubscribe", key });
            this.#core.command({ do: "drop", key });
            this.#owners.delete(key);
        }
        this.#guests.delete(id);
    }

    command(id: string, command: Command): void {
        const guest = this.#guests.get(id);
        if (guest === undefined) {
            return;
        }
        if (command.do === "close") {
            guest.post({ on: "state", state: { name: "closed" } });
            return this.leave(id);
        }
        if (command.do === "token") {
            this.#wanted = undefined;
            return this.#core.command(command);
        }
        const key = guest.keys.get(command.key) ?? (this.#lastKey += 1);
        if (command.do === "unsubscribe" || command.do === "drop") {
            guest.keys.delete(command.key);
            this.#owners.delete(key);
        } else {
            guest.keys.set(command.key, key);
            this.#owners.set(key, [id, command.key]);
        }
        this.#core.command({ ...command, key });
    }

    freeze(): void {
        this.#core.freeze();
    }

    thaw(): void {
        this.#core.thaw();
    }

    /** Ends the session. The tabs learn nothing of it: another hub follows. */
    close(): void {
        this.#guests.clear();
        this.#core.command({ do: "close" });
    }

    #take(event: CoreEvent): void {
        if (event.on === "done") {
            for (const key of event.keys) {
                const [id, own] = this.#owners.get(key) ?? [];
                if (id !== undefined && own) {
                    this.#guests.get(id)?.post({ ...event, keys: [own] });
                }
            }
        } else if (event.on === "token") {
            // Any tab has a token: the newest has the newest one.
            this.#wanted = event;
            [...this.#guests.values()].at(-1)?.post(event);
        } else {
            if (event.on === "state") {
                this.#state = event.state;
            }
            this.#guests.forEach(({ post }) => post(event));
        }
    }
}

/** What tabs say to each other. */
type Note =
    | { to: "hub"; from: string; join: true }
    | { to: "hub"; from: string; leave: true }
    | { to: "hub"; from: string; command: Command }
    | { to: "all"; hub: string }
    | { to: string; event: CoreEvent };

type NoteForHub = Extract<Note, { to: "hub" }>;

/** True if tabs can elect one among them. */
function canShare(): boolean {
    return typeof BroadcastChannel !== "undefined" && (globalThis as { navigator?: { locks?: unknown } }).navigator?.locks !== undefined;
}

/** A tab that shares its connection. The one that holds a lock has the hub; when it goes, the lock goes to another. */
class Tab implements Core {
    readonly #id = crypto.randomUUID();
    readonly #channel: BroadcastChannel;
    readonly #emit: (event: CoreEvent) => void;
    readonly #make: MakeCore;
    #hub: Hub | undefined;
    #isJoined = false;
    #wasJoined = false;
    #isEnded = false;
    /** Publications from before there was a hub. */
    readonly #early: Command[] = [];
    #release = () => {};

    constructor(url: string, emit: (event: CoreEvent) => void, make: MakeCore) {
        this.#emit = emit;
        this.#make = make;
        this.#channel = new BroadcastChannel(`encke:${url}`);
        this.#channel.onmessage = ({ data }) => this.#take(data as Note);
        void navigator.locks.request(`encke:hub:${url}`, () => {
            const held = new Promise<void>((resolve) => (this.#release = resolve));
            this.#lead();
            return this.#isEnded ? undefined : held;
        });
        // The hub takes the end of this lock for the end of this tab, so the tab has it first.
        holdLock(`encke:tab:${this.#id}`, () => this.#post({ to: "hub", from: this.#id, join: true }));
        addEventListener("pagehide", () => this.freeze());
        addEventListener("pageshow", ({ persisted }) => persisted && this.thaw());
    }

    command(command: Command): void {
        if (command.do === "close") {
            this.#end();
        } else if (this.#hub !== undefined) {
            this.#hub.command(this.#id, command);
        } else if (this.#isJoined) {
            this.#post({ to: "hub", from: this.#id, command });
        } else if (command.do === "publish") {
            // The client repeats its subscriptions when there is a hub, and nothing else.
            this.#early.push(command);
        }
    }

    freeze(): SavedSession | undefined {
        this.#hub?.freeze();
        this.#post({ to: "hub", from: this.#id, leave: true });
        this.#isJoined = false;
        return undefined;
    }

    thaw(): void {
        this.#hub?.thaw();
        this.#post({ to: "hub", from: this.#id, join: true });
    }

    /** This tab has the connection now. */
    #lead(): void {
        if (this.#isEnded) {
            return;
        }
        const hub = new Hub(this.#make);
        this.#hub = hub;
        hub.join(this.#id, (event) => this.#emit(event));
        this.#joined();
        this.#post({ to: "all", hub: this.#id });
    }

    #joined(): void {
        this.#emit({ on: "moved", isFirst: !this.#wasJoined });
        this.#wasJoined = true;
        this.#early.splice(0).forEach((command) => this.command(command));
    }

    /** Another tab gets the connection. */
    #end(): void {
        this.#isEnded = true;
        this.#hub?.close();
        this.#post({ to: "hub", from: this.#id, leave: true });
        this.#release();
        this.#channel.close();
        this.#emit({ on: "state", state: { name: "closed" } });
    }

    #take(note: Note): void {
        if (note.to === "hub") {
            this.#lookAfter(note as NoteForHub);
        } else if (note.to === "all" && this.#hub === undefined) {
            this.#isJoined = false;
            this.#post({ to: "hub", from: this.#id, join: true });
        } else if (note.to === this.#id && "event" in note) {
            if (!this.#isJoined) {
                this.#isJoined = true;
                this.#joined();
            }
            this.#emit(note.event);
        }
    }

    /** The hub's part: another tab says something. */
    #lookAfter(note: NoteForHub): void {
        const hub = this.#hub;
        if (hub === undefined) {
            return;
        }
        const { from } = note;
        if ("join" in note) {
            hub.join(from, (event) => this.#post({ to: from, event }));
            // The other tab holds this lock as long as it lives.
            void navigator.locks.request(`encke:tab:${from}`, () => hub.leave(from));
        } else if ("leave" in note) {
            hub.leave(from);
        } else {
            hub.command(from, note.command);
        }
    }

    #post(note: Note): void {
        this.#channel.postMessage(note);
    }
}

/** A tab whose connection is in a SharedWorker. */
class WorkerTab implements Core {
    readonly #port: MessagePort;
    /** Resolves when the worker knows this tab. */
    readonly #joined: Promise<void>;

    /** `undefined` if there are no such workers here. */
    static open(script: string | URL, url: string, options: ClientOptions, emit: (event: CoreEvent) => void): WorkerTab | undefined {
        const scope = globalThis as { SharedWorker?: typeof SharedWorker };
        return scope.SharedWorker === undefined ? undefined : new WorkerTab(new scope.SharedWorker(script, { type: "module", name: `encke:${url}` }), url, options, emit);
    }

    private constructor(worker: SharedWorker, url: string, options: ClientOptions, emit: (event: CoreEvent) => void) {
        this.#port = worker.port;
        this.#port.onmessage = ({ data }) => emit(data as CoreEvent);
        const id = crypto.randomUUID();
        const { token, persist, shared, WebSocket, fetch, ...plain } = options;
        // The worker takes the end of this lock for the end of this tab, so the tab has it first.
        this.#joined = new Promise<void>((resolve) => holdLock(`encke:tab:${id}`, resolve));
        void this.#joined.then(() => this.#port.postMessage({ id, url, options: plain, hasToken: token !== undefined } satisfies Opening));
    }

    command(command: Command): void {
        void this.#joined.then(() => this.#port.postMessage(command));
    }

    freeze(): SavedSession | undefined {
        return undefined;
    }

    thaw(): void {}
}

/** The first message of a tab to its worker. @internal */
export interface Opening {
    id: string;
    url: string;
    options: ClientOptions;
    hasToken: boolean;
}

/** Holds a lock as long as this tab lives, and calls `held` when it has it, or where there are no locks. */
function holdLock(name: string, held: () => void): void {
    const { locks } = navigator as { locks?: LockManager };
    if (locks === undefined) {
        held();
    } else {
        void locks.request(name, () => {
            held();
            return new Promise(() => undefined);
        });
    }
}
