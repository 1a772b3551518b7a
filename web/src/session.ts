/**
 * A Bayeux session by CometD's client, for the chat, slides and Screenpush: opens, recovers, reports its state. It knows nothing of the
 * page's topic. Other pages have a `Connection`.
 */

import { CometD, type Message, type SubscriptionHandle } from "cometd";
import { ReplayExtension, type Positions } from "./replay";
import { ServerClock } from "./clock";
import type { LinkState } from "./dom";
import { WorkerTimers, type Timers } from "./timers";

/** The events that the page handles. */
export interface SessionEvents {
    /**
     * The server opened a session, for the first time or again after it had forgotten the last one. It knows nothing of the
     * page: subscribe and announce everything here. Messages sent inside go out as one batch.
     */
    opened(again: boolean): void;
    /** The state changed. */
    changed(state: LinkState): void;
}

/** The settings of a session, for pages that need others than the usual ones. */
export interface SessionOptions {
    /** The Bayeux endpoint. The default is that of the server of this page. */
    url?: string;
    /** The positions at which channels begin. With them the session resumes each channel after its last message. */
    positions?: Positions;
    /** The longest time until the server answers a message. After it, the client takes the connection for dead. */
    answerMs?: number;
    /** The timers. The default is a worker's, which a page from elsewhere cannot load. */
    timers?: Timers;
    /** False: WebSocket alone, where there is no XMLHttpRequest. */
    hasHttp?: boolean;
}

/** The reason for which the server did not accept a message. */
export interface Failure {
    /** The server's words (`403::publish_denied`), or "" if the connection broke before its reply. */
    error: string;
    /** True if the message is longer than the server takes. */
    isTooLarge: boolean;
}

/** One session, over whichever transport works. */
export class Session {
    readonly #client: Client;
    readonly #events: SessionEvents;
    readonly #clock = new ServerClock();
    readonly #replay: ReplayExtension | undefined;
    #state: LinkState = "closed";
    #wasOpen = false;
    #refusal = "";

    constructor(events: SessionEvents, options: SessionOptions = {}) {
        this.#events = events;
        this.#client = new Client(options.timers ?? new WorkerTimers());
        this.#client.configure({
            url: options.url ?? `${location.origin}/cometd`,
            logLevel: "warn",
            useWorkerScheduler: false,
            backoffIncrement: FIRST_RETRY_MS,
            maxBackoff: MAX_RETRY_MS,
            maxNetworkDelay: options.answerMs ?? ANSWER_MS,
            maxSendBayeuxMessageSize: MAX_SENT_BYTES,
        });
        this.#client.registerExtension("clock", this.#clock);
        if (options.positions !== undefined) {
            this.#replay = new ReplayExtension(options.positions, undefined, MAX_SENT_BYTES);
            this.#client.registerExtension("replay", this.#replay);
        }
        keepOnlyTheTransportAskedFor(this.#client, options.hasHttp ?? true);
        this.#client.addListener("/meta/handshake", (reply) => this.#onHandshake(reply));
        this.#client.addListener("/meta/connect", (reply) => this.#onConnect(reply));
    }

    get state(): LinkState {
        return this.#state;
    }

    /** The transport in use in words, or "" before one is. */
    get transport(): string {
        const type = this.#client.getTransport()?.type ?? "";
        return type === "websocket" ? "WebSocket" : type;
    }

    /** The server's words when it refused or ended the session, or "". */
    get refusal(): string {
        return this.#refusal;
    }

    /** The server's time of day, in milliseconds. */
    now(): number {
        return Date.now() + this.#clock.offset;
    }

    open(): void {
        if (!this.#client.isDisconnected()) {
            return;
        }
        this.#wasOpen = false;
        this.#become("connecting");
        this.#client.handshake();
    }

    close(): void {
        if (!this.#client.isDisconnected()) {
            this.#client.disconnect();
        }
        this.#become("closed");
    }

    /** Subscribes; the client drops all subscriptions before a new handshake, so none is ever doubled. `refused` gets the server's error. */
    subscribe(channel: string, receive: (data: unknown, channel: string) => void, refused: (why: string) => void = () => {}): SubscriptionHandle {
        const take = (message: Message) => receive(message.data, message.channel);
        const answered = (reply: Message) => {
            if (reply.successful !== true && !isLost(reply)) {
                refused(reply.error ?? "");
            }
        };
        return this.#replay?.subscribe(this.#client, channel, take, answered) ?? this.#client.subscribe(channel, take, answered);
    }

    /** Ends a subscription of this session. */
    unsubscribe(subscription: SubscriptionHandle): void {
        if (!this.#client.isDisconnected()) {
            this.#client.unsubscribe(subscription);
        }
    }

    /**
     * Subscribes again at the last position. The server discards the messages of this channel that still wait for the page, and sends
     * those that its history retains.
     */
    resubscribe(subscription: SubscriptionHandle): SubscriptionHandle {
        return this.#client.isDisconnected() ? subscription : this.#client.resubscribe(subscription);
    }

    /** Publishes; `done` learns whether the server accepted it, and why not. */
    publish(channel: string, data: unknown, done: (accepted: boolean, failure: Failure) => void = () => {}): void {
        if (this.#client.isDisconnected()) {
            done(false, { error: "", isTooLarge: false });
            return;
        }
        this.#client.publish(channel, data, (reply) => {
            const { failure } = reply as { failure?: { websocketCode?: number; httpCode?: number } };
            const isTooLarge = failure?.websocketCode === WEBSOCKET_TOO_LARGE || failure?.httpCode === HTTP_TOO_LARGE;
            done(reply.successful === true, { error: errorOf(reply), isTooLarge });
        });
    }

    /** Calls `/service/` + `target`; `done` gets the answer, unless the call fails. */
    call(target: string, data: unknown, done: (data: unknown) => void): void {
        if (!this.#client.isDisconnected()) {
            this.#client.remoteCall(target, data, (reply) => reply.successful === true && done(reply.data));
        }
    }

    /** Sends all messages of the function together. */
    batch(send: () => void): void {
        this.#client.batch(send);
    }

    #onHandshake(reply: Message): void {
        if (reply.successful) {
            const again = this.#wasOpen;
            this.#wasOpen = true;
            this.#refusal = "";
            this.#client.batch(() => this.#events.opened(again));
        } else {
            this.#failed(reply);
        }
    }

    #onConnect(reply: Message): void {
        if (this.#client.isDisconnected()) {
            return;
        }
        if (reply.successful) {
            this.#become("connected");
        } else {
            this.#failed(reply);
        }
    }

    #failed(reply: Message): void {
        if (this.#state === "closed") {
            return;
        }
        this.#refusal = errorOf(reply);
        this.#become(reply.advice?.reconnect === "none" ? "ended" : "reconnecting");
        // The client gives up by itself, after it called us, when no transport is left to try.
        setTimeout(() => {
            if (this.#state === "reconnecting" && this.#client.isDisconnected()) {
                this.#become("ended");
            }
        });
    }

    #become(state: LinkState): void {
        if (state !== this.#state) {
            this.#state = state;
            this.#events.changed(state);
        }
    }
}

/** True if the reply is the client's own, because its connection broke. */
function isLost(reply: Message): boolean {
    return "failure" in reply;
}

/** The server's words in an error reply. */
function errorOf(reply: Message): string {
    return isLost(reply) ? "" : (reply.error ?? "");
}

/** The official client with other timers. */
class Client extends CometD {
    readonly #timers: Timers;

    constructor(timers: Timers) {
        super();
        this.#timers = timers;
    }

    override setTimeout(run: () => void, delay: number): number {
        return this.#timers.set(run, delay);
    }

    override clearTimeout(id: number): void {
        this.#timers.clear(id);
    }
}

/** `?transport=long-polling` and the like: for tests and for the curious. Without it the best that works is used. */
function keepOnlyTheTransportAskedFor(client: CometD, hasHttp: boolean): void {
    const wanted = hasHttp ? new URLSearchParams(location.search).get("transport") : "websocket";
    if (wanted !== null && client.findTransport(wanted) !== null) {
        for (const type of client.getTransportTypes().filter((type) => type !== wanted)) {
            client.unregisterTransport(type);
        }
    }
}

/** The first retry waits this long, each further one as much longer. */
const FIRST_RETRY_MS = 500;
/** A page left open beside a stopped server asks no more often than this, and is back this soon after it started. */
const MAX_RETRY_MS = 5_000;
/** The client's own default. */
const ANSWER_MS = 10_000;
/** The client itself sends no longer message; the server's limit is usually far lower. */
const MAX_SENT_BYTES = 64 * 1024 * 1024;
const WEBSOCKET_TOO_LARGE = 1009;
const HTTP_TOO_LARGE = 413;
