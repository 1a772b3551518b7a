/** A subscription of the program: an async iterator, or a callback. It gets each message once, whatever the connection repeats. */

import { Positions, covers, isPosition } from "./channels.js";
import type { EnckeError } from "./errors.js";
import { revive } from "./errors.js";
import { CLOSED } from "./session.js";
import type { Lost, Replays } from "./events.js";
import type { From, Gap, Message, Position, SubscribeOptions } from "./types.js";
import type { ServerMessage } from "./wire.js";

/** What a subscription needs from its client. @internal */
export interface SubscriptionOwner {
    end(key: number): void;
    gap(gap: Gap): void;
}

/** A subscription to a channel or a pattern. */
export class Subscription<T = unknown> implements AsyncIterable<Message<T>> {
    /** The channel or pattern. */
    readonly name: string;
    /** Resolves when the server has granted the subscription, and rejects with an `EnckeError` if it refuses. */
    readonly ready: Promise<void>;
    /** @internal */
    readonly key: number;
    /** @internal */
    readonly from: From;
    /** @internal */
    readonly intervalMs: number;

    readonly #owner: SubscriptionOwner;
    readonly #receive: ((message: Message<T>) => void) | undefined;
    readonly #onGap: ((gap: Gap) => void) | undefined;
    readonly #messagesMax: number;
    readonly #positions = new Positions();
    readonly #opening = deferred<void>();
    /** The messages with which channels begin: others may come before them over another connection, and come again. */
    readonly #awaited = new Map<string, Replays>();
    /** Messages from before the grant, which belong to it or to other subscriptions. */
    #early: ServerMessage[] = [];
    #isReady = false;
    #isEnded = false;
    #error: EnckeError | undefined;
    /** Messages and gaps that wait for the iterator. */
    readonly #unread: ({ message: Message<T> } | { gap: Gap })[] = [];
    /** Calls of `next` that wait. */
    readonly #readers: ReturnType<typeof deferred<IteratorResult<Message<T>>>>[] = [];

    /** @internal */
    constructor(key: number, name: string, from: From, options: SubscribeOptions, owner: SubscriptionOwner, receive?: (message: Message<T>) => void) {
        this.key = key;
        this.name = name;
        this.from = from;
        this.#owner = owner;
        this.#receive = receive;
        this.#onGap = options.onGap;
        this.#messagesMax = options.messagesMax ?? MESSAGES_MAX;
        this.intervalMs = options.minIntervalMs ?? 0;
        this.ready = this.#opening.promise;
        // A refusal is an event of the client, too.
        this.ready.catch(() => undefined);
    }

    /** The positions that the program has reached, by channel. Store them, and pass them to `subscribe`, to go on later. */
    get positions(): Record<string, Position> {
        return Object.fromEntries(this.#positions.entries());
    }

    /** Ends the subscription. Messages that wait can still be read. */
    unsubscribe(): void {
        if (!this.#isEnded) {
            this.#owner.end(this.key);
            this.end(revive(CLOSED), false);
        }
    }

    /** Reads the messages. Leaving a loop early ends the subscription. */
    [Symbol.asyncIterator](): AsyncIterator<Message<T>, undefined, undefined> {
        return {
            next: () => this.#next() as Promise<IteratorResult<Message<T>, undefined>>,
            return: () => {
                this.unsubscribe();
                this.#unread.length = 0;
                return Promise.resolve({ done: true, value: undefined });
            },
        };
    }

    /** @internal */
    continueAt(positions: Iterable<[string, Position]>): void {
        for (const [channel, position] of positions) {
            this.#positions.set(channel, position);
        }
    }

    /** @internal True if the server has granted it. */
    get isReady(): boolean {
        return this.#isReady;
    }

    /** @internal */
    granted(): void {
        this.#isReady = true;
        this.#opening.resolve();
    }

    /** @internal Ends it. An iterator throws what is a `failure`. */
    end(error: EnckeError, isFailure: boolean): void {
        if (this.#isEnded) {
            return;
        }
        this.#isEnded = true;
        this.#error = isFailure ? error : undefined;
        this.#opening.reject(error);
        if (this.#unread.length === 0) {
            this.#readers.splice(0).forEach(({ resolve }) => resolve(this.#next()));
        }
    }

    /** @internal A message has come. `mayComeAgain`: others get it, and this one may begin earlier. */
    take(message: ServerMessage, mayComeAgain: boolean): void {
        const { channel } = message;
        if (this.#isEnded || !covers(this.name, channel)) {
            return;
        }
        if (mayComeAgain && !this.#isReady) {
            this.#early.push(message);
            this.#early.splice(0, this.#early.length - this.#messagesMax);
            return;
        }
        this.#early = [];
        this.#accept(message);
    }

    #accept(message: ServerMessage): void {
        const { channel, ext } = message;
        const replay: unknown = ext?.replay;
        const position = isPosition(replay) ? { epoch: replay.epoch, id: replay.id } : undefined;
        if (position) {
            const known = this.#positions.get(channel);
            const awaited = this.#awaited.get(channel);
            const isEarly = awaited && awaited.from < position.id && position.id <= awaited.latest;
            if ((known?.epoch === position.epoch && position.id <= known.id) || isEarly) {
                return;
            }
            this.#awaited.delete(channel);
            this.#lose(channel, position, ext?.replay.lost);
            this.#positions.set(channel, position);
        }
        const { replay: _, ...others } = ext ?? {};
        const data = message.data as T;
        this.#push({ message: { channel, data, ...(position && { position }), ...(Object.keys(others).length > 0 && { ext: others }) } });
    }

    /** @internal The channel is silent at this position. */
    reached(channel: string, position: Position | undefined, lost: Lost | undefined, replays?: Replays): void {
        if (this.#isEnded || !this.#isReady || !covers(this.name, channel)) {
            return;
        }
        this.#lose(channel, position, lost);
        const known = this.#positions.get(channel);
        if (replays && this.from !== "latest" && !isPosition(this.from) && !known) {
            this.#awaited.set(channel, replays);
        }
        if (!position) {
            this.#positions.delete(channel);
        } else if (known?.epoch !== position.epoch || known.id < position.id) {
            this.#positions.set(channel, position);
        }
        if (replays && !known) {
            const early = this.#early.filter((message) => message.channel === channel && message.ext?.replay?.epoch === position?.epoch);
            const first = early.findLastIndex(({ ext }) => ext?.replay.id === replays.from);
            early.slice(first === -1 ? 0 : first).forEach((message) => this.#accept(message));
        }
    }

    /** @internal */
    turned(): void {
        this.#awaited.clear();
        this.#early = [];
    }

    /** @internal */
    miss(gap: Gap): void {
        if (!this.#isEnded) {
            this.#push({ gap });
        }
    }

    /** @internal True if a position is known: the history tells what is missing. */
    get hasPositions(): boolean {
        return !this.#positions.entries().next().done;
    }

    /** Servers report a loss more than once. */
    #lose(channel: string, position: Position | undefined, lost: Lost | undefined): void {
        if (lost === undefined) {
            return;
        }
        const known = this.#positions.get(channel);
        const isSame = known && known.epoch === position?.epoch;
        if (lost === null || !isSame || known.id < lost.to) {
            const from = isSame && lost !== null ? Math.max(lost.from, known.id + 1) : lost?.from;
            this.miss({ channel, cause: "gone", lost: lost === null ? undefined : { from: from!, to: lost.to } });
        }
    }

    #push(item: { message: Message<T> } | { gap: Gap }): void {
        if (this.#receive) {
            return this.#show(item);
        }
        const reader = this.#readers[0];
        if (reader) {
            if ("gap" in item) {
                return this.#show(item);
            }
            this.#readers.shift();
            return reader.resolve({ done: false, value: item.message });
        }
        this.#unread.push(item);
        if (this.#unread.length > this.#messagesMax) {
            this.#discard();
        }
    }

    /** The reader is slow: half of what waits makes room, so that there is one gap and not one for each message. */
    #discard(): void {
        const gone = this.#unread.splice(0, Math.ceil(this.#messagesMax / 2));
        const discarded = gone.reduce((count, item) => count + ("gap" in item ? (item.gap.discarded ?? 0) : 1), 0);
        this.#unread.unshift({ gap: { channel: this.name, cause: "slow", discarded } });
    }

    #show(item: { message: Message<T> } | { gap: Gap }): void {
        safely(() => {
            if ("message" in item) {
                this.#receive?.(item.message);
            } else {
                this.#owner.gap(item.gap);
                this.#onGap?.(item.gap);
            }
        });
    }

    #next(): Promise<IteratorResult<Message<T>>> {
        for (let item = this.#unread.shift(); item !== undefined; item = this.#unread.shift()) {
            if ("message" in item) {
                return Promise.resolve({ done: false, value: item.message });
            }
            this.#show(item);
        }
        if (this.#isEnded) {
            const error = this.#error;
            this.#error = undefined;
            return !error ? Promise.resolve({ done: true, value: undefined }) : Promise.reject(error);
        }
        const reader = deferred<IteratorResult<Message<T>>>();
        this.#readers.push(reader);
        return reader.promise;
    }
}

/** Calls the program. What it throws is reported as any uncaught error is, and stops nothing here. */
export function safely(run: () => void): void {
    try {
        run();
    } catch (error) {
        queueMicrotask(() => {
            throw error;
        });
    }
}

/** A promise with the functions that settle it. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T | Promise<T>) => void; reject: (error: unknown) => void } {
    let resolve!: (value: T | Promise<T>) => void;
    let reject!: (error: unknown) => void;
    const promise = new Promise<T>((yes, no) => ([resolve, reject] = [yes, no]));
    return { promise, resolve, reject };
}

/** The messages that may wait for an iterator. */
const MESSAGES_MAX = 10_000;
