/** The client of a program: subscriptions, publications, calls, presence. */

import { isPattern, isPosition, positionOf, textOf } from "./channels.js";
import { EnckeError, broken, revive } from "./errors.js";
import { CLOSED, NO_REPLY } from "./session.js";
import type { Memory } from "./persist.js";
import type { Core, CoreEvent, Why } from "./protocol.js";
import { Subscription, deferred, safely } from "./subscription.js";
import type { ClientOptions, From, Gap, HistoryOptions, HistoryPage, Message, Published, RequestOptions, State, SubscribeOptions } from "./types.js";
import type { ServerMessage } from "./wire.js";

/** The events of a client. */
export interface ClientEvents {
    /** The state has changed. */
    state: State;
    /** A subscription misses messages, or may. */
    gap: Gap;
    /** A subscription was refused or ended by the server. */
    error: EnckeError;
}

/** How a client gets its connection: the public one is `connect`. @internal */
export type CoreMaker = (emit: (event: CoreEvent) => void, memory: Memory | undefined) => Core;

interface Pending {
    resolve: (value: any) => void;
    reject: (error: unknown) => void;
    stop: () => void;
}

/** A client: one session with the server, over whichever transport works. */
export class Client {
    /** The address of the server. */
    readonly url: string;
    /** Resolves when the client is connected for the first time, and rejects if the server refuses it. */
    readonly ready: Promise<void>;

    readonly #options: ClientOptions;
    readonly #core: Core;
    readonly #memory: Memory | undefined;
    readonly #subscriptions = new Map<number, Subscription<any>>();
    readonly #pending = new Map<number, Pending>();
    readonly #listeners: { [Name in keyof ClientEvents]: Set<(event: ClientEvents[Name]) => void> } = { state: new Set(), gap: new Set(), error: new Set() };
    readonly #opening = deferred<void>();
    readonly #closing = deferred<void>();
    readonly #abort = new AbortController();
    #state: State = { name: "connecting" };
    #lastKey = 0;

    /** @internal */
    constructor(url: string, options: ClientOptions, make: CoreMaker) {
        this.url = url;
        this.#options = options;
        this.#memory = options.persist?.open(url) as Memory | undefined;
        this.ready = this.#opening.promise;
        this.ready.catch(() => undefined);
        this.#core = make((event) => this.#take(event), this.#memory);
        this.#memory?.follow({ freeze: () => this.#core.freeze(), thaw: () => this.#core.thaw(), subscriptions: () => this.#subscriptions.values(), signal: this.#abort.signal });
    }

    /** The state of the connection. */
    get state(): State {
        return this.#state;
    }

    /** Calls a function at each event of this name. Returns what ends that. */
    on<Name extends keyof ClientEvents>(name: Name, run: (event: ClientEvents[Name]) => void): () => void {
        this.#listeners[name].add(run);
        return () => void this.#listeners[name].delete(run);
    }

    /**
     * Subscribes to a channel, or to a pattern such as `/stock/*` or `/stock/**`. With a callback that gets the messages; without
     * one they wait for `for await (const message of subscription)`.
     */
    subscribe<T = unknown>(name: string, receive?: (message: Message<T>) => void): Subscription<T>;
    subscribe<T = unknown>(name: string, options: SubscribeOptions, receive?: (message: Message<T>) => void): Subscription<T>;
    subscribe<T = unknown>(name: string, second?: SubscribeOptions | ((message: Message<T>) => void), third?: (message: Message<T>) => void): Subscription<T> {
        const options = typeof second === "object" ? second : {};
        const receive = typeof second === "function" ? second : third;
        const from: From = options.from ?? "latest";
        const subscription = new Subscription<T>((this.#lastKey += 1), name, from, options, this.#owner, receive);
        const stored = this.#memory?.claim(name) ?? [];
        subscription.continueAt(!options.positions ? stored : Object.entries(options.positions));
        if (isPosition(from) && !isPattern(name) && !subscription.hasPositions) {
            subscription.continueAt([[name, from]]);
        }
        this.#subscriptions.set(subscription.key, subscription);
        this.#subscribe(subscription);
        onAbort(options.signal, () => subscription.unsubscribe());
        return subscription;
    }

    /** Publishes data on a channel. Resolves when the server has accepted it. */
    publish(channel: string, data: unknown, options: RequestOptions = {}): Promise<Published> {
        return this.#request(channel, data, false, options);
    }

    /**
     * Reads messages of a channel's history, oldest first: the latest ones, or those before or after a position. It is no
     * subscription.
     *
     * @param options The part to read, and the time for it.
     */
    async history<T = unknown>(channel: string, { before, after, limit, ...options }: HistoryOptions = {}): Promise<HistoryPage<T>> {
        const page = await this.call<any>("/service/history/read", { channel, before: textOf(before), after: textOf(after), limit }, options);
        return { ...page, messages: page.messages.map((message: any) => ({ ...message, position: positionOf(message.position) })), latest: positionOf(page.latest) };
    }

    /** Calls a service, such as `/service/echo`, and resolves with its answer. */
    call<T = unknown>(service: string, data?: unknown, options: RequestOptions = {}): Promise<T> {
        return this.#request(service, data ?? null, true, options);
    }

    /** Ends the session. Resolves when the server knows it, or after two seconds. */
    close(): Promise<void> {
        this.#core.command({ do: "close" });
        return this.#closing.promise;
    }

    readonly #owner = {
        end: (key: number) => {
            this.#subscriptions.delete(key);
            this.#core.command({ do: "unsubscribe", key });
        },
        gap: (gap: Gap) => this.#tell("gap", gap),
    };

    #subscribe({ key, name, from, positions, intervalMs }: Subscription<any>): void {
        this.#core.command({ do: "subscribe", key, name, from, positions: Object.entries(positions), intervalMs });
    }

    #request<T>(channel: string, data: unknown, isCall: boolean, { signal, timeoutMs = this.#options.replyTimeoutMs ?? REPLY_TIMEOUT_MS }: RequestOptions): Promise<T> {
        const text = JSON.stringify(data);
        if (text === undefined) {
            return Promise.reject(new TypeError("the data is not JSON"));
        }
        if (signal?.aborted === true) {
            return Promise.reject(new EnckeError("aborted", ABORTED));
        }
        const key = (this.#lastKey += 1);
        const answer = deferred<T>();
        const drop = (error: EnckeError) => {
            this.#core.command({ do: "drop", key });
            this.#settle(key, error);
        };
        const timer = setTimeout(() => drop(new EnckeError("timed_out", NO_REPLY)), timeoutMs);
        const stopListening = onAbort(signal, () => drop(new EnckeError("aborted", ABORTED)));
        const stop = () => {
            clearTimeout(timer);
            stopListening();
        };
        this.#pending.set(key, { ...answer, stop });
        this.#core.command({ do: "publish", key, channel, data: text, isCall });
        return answer.promise;
    }

    #settle(key: number, error: EnckeError | undefined, value?: unknown): void {
        const pending = this.#pending.get(key);
        if (pending) {
            this.#pending.delete(key);
            pending.stop();
            if (error) {
                pending.reject(error);
            } else {
                pending.resolve(value);
            }
        }
    }

    #take(event: CoreEvent): void {
        if (event.on === "message") {
            this.#deliver(event.message);
        } else if (event.on === "reached") {
            this.#subscriptions.forEach((subscription) => subscription.reached(event.channel, event.position, event.lost, event.replays));
            this.#memory?.changed();
        } else if (event.on === "turned") {
            this.#subscriptions.forEach((subscription) => subscription.turned());
        } else if (event.on === "gap") {
            this.#named(event.name).forEach((subscription) => subscription.miss({ channel: event.name, cause: "unknown" }));
        } else if (event.on === "unsubscribed") {
            this.#named(event.name).forEach((subscription) => this.#refuse(subscription, revive(event.error)));
        } else if (event.on === "token") {
            void this.#askToken(event.why);
        } else if (event.on === "state") {
            const { error, ...state } = event.state;
            this.#become({ ...state, error: error && revive(error) });
        } else if (event.on === "moved") {
            this.#move(event.isFirst);
        } else {
            event.keys.forEach((key) => this.#done(key, event));
        }
    }

    #done(key: number, { error, position, data }: Extract<CoreEvent, { on: "done" }>): void {
        const subscription = this.#subscriptions.get(key);
        if (!subscription) {
            this.#settle(key, error && revive(error), data === undefined ? { position } : data);
        } else if (!error) {
            subscription.granted();
        } else {
            this.#refuse(subscription, revive(error));
        }
    }

    #refuse(subscription: Subscription<any>, error: EnckeError): void {
        this.#subscriptions.delete(subscription.key);
        subscription.end(error, error.code !== "closed");
        if (error.code !== "closed") {
            this.#tell("error", error);
        }
    }

    #deliver(message: ServerMessage): void {
        const all = [...this.#subscriptions.values()];
        for (const subscription of all) {
            // One that begins earlier than others that get this message waits until the server has granted it.
            const beginsEarlier = message.ext?.replay && !subscription.isReady && (subscription.from !== "latest" || subscription.hasPositions);
            subscription.take(message, beginsEarlier && (this.#options.shared !== undefined || all.some((other) => other !== subscription && other.isReady)));
        }
        this.#memory?.changed();
    }

    #named(name: string): Subscription<any>[] {
        return [...this.#subscriptions.values()].filter((subscription) => subscription.name === name);
    }

    /** Another tab has the connection now: it knows nothing of this one. */
    #move(isFirst: boolean): void {
        const lost = revive(broken("another tab connects"));
        [...this.#pending.keys()].filter(() => !isFirst).forEach((key) => this.#settle(key, lost));
        for (const subscription of this.#subscriptions.values()) {
            if (!isFirst && subscription.isReady && !subscription.hasPositions) {
                subscription.miss({ channel: subscription.name, cause: "unknown" });
            }
            this.#subscribe(subscription);
        }
    }

    async #askToken(why: Why): Promise<void> {
        const { token } = this.#options;
        try {
            const text = typeof token === "function" ? await token(why) : token;
            this.#core.command({ do: "token", token: text });
        } catch (error) {
            this.#core.command({ do: "token", error: String(error) });
        }
    }

    #become(state: State): void {
        this.#state = state;
        if (state.name === "connected") {
            this.#opening.resolve();
        } else if (state.name === "closed") {
            const error = state.error ?? revive(CLOSED);
            this.#opening.reject(error);
            this.#abort.abort();
            [...this.#subscriptions.values()].forEach((subscription) => this.#refuse(subscription, error));
            [...this.#pending.keys()].forEach((key) => this.#settle(key, error));
            this.#closing.resolve();
        }
        this.#tell("state", state);
    }

    #tell<Name extends keyof ClientEvents>(name: Name, event: ClientEvents[Name]): void {
        for (const run of [...this.#listeners[name]]) {
            safely(() => run(event));
        }
    }
}

/** Calls when the signal aborts. Returns what ends that. */
function onAbort(signal: AbortSignal | undefined, run: () => void): () => void {
    if (signal?.aborted === true) {
        run();
    }
    signal?.addEventListener("abort", run, { once: true });
    return () => signal?.removeEventListener("abort", run);
}

const ABORTED = "aborted by the caller";
const REPLY_TIMEOUT_MS = 10_000;
