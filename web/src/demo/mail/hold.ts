/** Waits for mails by plain HTTP: a request that the server holds until a mail comes, and then the next one. */

import { HOLD_PATH } from "./cost";

/** The events that the page handles. */
export interface HoldEvents {
    /** A request goes out. */
    asked(): void;
    /** A request has its answer: the data of its messages, none at the end of its time. */
    answered(messages: unknown[]): void;
    /** The server cannot be reached, or refuses: a sentence that says what to do. `undefined`: it works again. */
    failed(why: string | undefined): void;
}

export class Hold {
    readonly #events: HoldEvents;
    readonly #channel: string;
    #stop = new AbortController();
    /** The time that the server holds a request, in seconds. */
    timeoutS = 30;
    isRunning = false;

    constructor(channel: string, events: HoldEvents) {
        this.#channel = channel;
        this.#events = events;
    }

    start(): void {
        if (!this.isRunning) {
            this.isRunning = true;
            this.#stop = new AbortController();
            void this.#run(this.#stop.signal);
        }
    }

    stop(): void {
        this.isRunning = false;
        this.#stop.abort();
    }

    /** Asks again with another time. */
    restart(): void {
        if (this.isRunning) {
            this.stop();
            this.start();
        }
    }

    async #run(signal: AbortSignal): Promise<void> {
        const first = `${HOLD_PATH.slice(0, -1)}${this.#channel}?timeout=${this.timeoutS}`;
        let [path, pause] = [first, FIRST_RETRY_MS];
        while (!signal.aborted) {
            try {
                this.#events.asked();
                // A request that is held has no sign of success but that nothing happens.
                const held = setTimeout(() => this.#events.failed(undefined), HELD_MS);
                const reply = await fetch(path, { signal, cache: "no-store" }).finally(() => clearTimeout(held));
                if (!reply.ok) {
                    throw new Refused(reply.status);
                }
                const messages: unknown = await reply.json();
                this.#events.failed(undefined);
                this.#events.answered(Array.isArray(messages) ? messages.flatMap((message) => ("data" in message ? [message.data] : [])) : []);
                // The link names the position of the last message, if the channel has a history.
                path = /<([^>]+)>;\s*rel="next"/.exec(reply.headers.get("link") ?? "")?.[1] ?? first;
                pause = FIRST_RETRY_MS;
            } catch (error) {
                if (signal.aborted) {
                    return;
                }
                this.#events.failed(error instanceof Refused ? error.message : "The server does not answer the request. The page tries again by itself.");
                await new Promise((resolve) => setTimeout(resolve, pause));
                [path, pause] = [first, Math.min(2 * pause, MAX_RETRY_MS)];
            }
        }
    }
}

/** A refusal in a sentence. */
class Refused extends Error {
    constructor(status: number) {
        super(REASONS[status] ?? `The server answers the request with status ${status}. The page tries again by itself.`);
    }
}

const REASONS: Record<number, string> = {
    401: "The server wants to know who asks for mails. Log in where its pages ask for it, then load this page again.",
    403: "The server does not let you wait for mails. Ask who runs it.",
    404: "This server has no held requests: its setting hold_path is empty, or another path. Set hold_path = \"/hold\".",
    429: "This address has too many held requests. Close other windows of this page; it tries again by itself.",
    503: "The server stops, or holds too many requests. The page tries again by itself.",
};
const HELD_MS = 1_000;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 5_000;
