/** A Bayeux session of a page: opens, recovers, reports its state. It knows nothing of the page's topic. */

import { CometD, type Message } from "cometd";
import type { TimerRequest } from "./timer";

/** The state of the session. `ended`: the server refused or closed it permanently, and the page does not reopen it by itself. */
export type LinkState = "closed" | "connecting" | "connected" | "reconnecting" | "ended";

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

/** One session, over whichever transport works. */
export class Session {
    readonly #client = new Client();
    readonly #events: SessionEvents;
    #state: LinkState = "closed";
    #wasOpen = false;

    constructor(events: SessionEvents) {
        this.#events = events;
        this.#client.configure({
            url: `${location.origin}/cometd`,
            logLevel: "warn",
            useWorkerScheduler: false,
            backoffIncrement: FIRST_RETRY_MS,
            maxBackoff: MAX_RETRY_MS,
        });
        keepOnlyTheTransportAskedFor(this.#client);
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

    /** Subscribes; the client drops all subscriptions before a new handshake, so none is ever doubled. */
    subscribe(channel: string, receive: (data: unknown) => void): void {
        this.#client.subscribe(channel, (message) => receive(message.data));
    }

    /** Publishes; `done` learns whether the server accepted it. */
    publish(channel: string, data: unknown, done: (accepted: boolean) => void = () => {}): void {
        if (this.#client.isDisconnected()) {
            done(false);
            return;
        }
        this.#client.publish(channel, data, (reply) => done(reply.successful === true));
    }

    /** Calls `/service/` + `target`; `done` gets the answer, unless the call fails. */
    call(target: string, data: unknown, done: (data: unknown) => void): void {
        if (!this.#client.isDisconnected()) {
            this.#client.remoteCall(target, data, (reply) => reply.successful === true && done(reply.data));
        }
    }

    /** What is sent inside goes out together. */
    batch(send: () => void): void {
        this.#client.batch(send);
    }

    #onHandshake(reply: Message): void {
        if (reply.successful) {
            const again = this.#wasOpen;
            this.#wasOpen = true;
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

/** The official client with its timers moved to our worker (see timer.ts). */
class Client extends CometD {
    readonly #worker = new Worker("/assets/timer.js");
    readonly #waiting = new Map<number, () => void>();
    #lastId = 0;

    constructor() {
        super();
        this.#worker.onmessage = ({ data: id }: MessageEvent<number>) => {
            const run = this.#waiting.get(id);
            this.#waiting.delete(id);
            run?.();
        };
    }

    override setTimeout(run: () => void, delay: number): number {
        const id = ++this.#lastId;
        this.#waiting.set(id, run);
        this.#worker.postMessage({ id, delay } satisfies TimerRequest);
        return id;
    }

    override clearTimeout(id: number): void {
        if (this.#waiting.delete(id)) {
            this.#worker.postMessage({ id } satisfies TimerRequest);
        }
    }
}

/** `?transport=long-polling` and the like: for tests and for the curious. Without it the best that works is used. */
function keepOnlyTheTransportAskedFor(client: CometD): void {
    const wanted = new URLSearchParams(location.search).get("transport");
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
