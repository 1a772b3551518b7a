/** Chooses the transport: falls back when one does not get through, remembers that, and chooses the pauses between attempts. */

import type { Environment } from "./environment.js";
import type { TextStore, Transport } from "./types.js";

/** What the choice depends on. */
export interface RoutesOptions {
    transports: Transport[];
    fallbackMs: number;
    replyTimeoutMs: number;
    backoffMaxMs: number;
    environment: Environment;
    /** Where a choice is remembered, if anywhere. */
    store: TextStore | undefined;
    /** The address of the server. */
    url: string;
}

/** The transports of a client, and the one that is next. */
export class Routes {
    readonly #options: RoutesOptions;
    #at: number;
    /** The transport with which a round begins: the one that worked last. */
    #start: number;
    #workedAt = 0;
    /** Rounds through all transports without success. */
    #rounds = 0;
    /** True if an earlier transport of this round did not get through. */
    #fellBack = false;

    constructor(options: RoutesOptions) {
        this.#options = options;
        this.#start = Math.max(0, this.#remembered());
        this.#at = this.#start;
    }

    get current(): Transport {
        return this.#options.transports[this.#at]!;
    }

    /** The time that an attempt may take: short while there is another transport to try, longer in each round, for slow networks. */
    get attemptMs(): number {
        const { transports, fallbackMs, replyTimeoutMs } = this.#options;
        return this.#at + 1 < transports.length ? Math.min(fallbackMs * 2 ** this.#rounds, replyTimeoutMs) : replyTimeoutMs;
    }

    /** The attempt failed. Returns the pause before the next one. */
    failed(): number {
        this.#at += 1;
        if (this.#at < this.#options.transports.length) {
            this.#fellBack = true;
            return 0;
        }
        this.#rounds += 1;
        // Every other round tries all, for the network may be another one.
        this.#at = this.#rounds % 2 === 0 ? this.#start : 0;
        this.#fellBack = false;
        return this.pauseMs();
    }

    /** The attempt succeeded after this time. */
    worked(ms: number): void {
        // A slow network is no sign that a proxy blocks a transport.
        if (this.#fellBack && ms < this.#options.fallbackMs) {
            this.#remember();
        } else if (this.#at === 0) {
            this.#options.store?.removeItem(this.#key());
        }
        this.#rounds = 0;
        this.#fellBack = false;
        this.#start = this.#at;
        this.#workedAt = this.#options.environment.date();
    }

    /** The connection broke. Returns the pause before the next attempt, which goes to the best transport if the last one is long ago. */
    broke(): number {
        if (this.#options.environment.date() > this.#workedAt + RETRIED_MS) {
            this.#at = 0;
        }
        return this.pauseMs();
    }

    /** The pause before an attempt after a break: longer with each failed round, and different for each client. */
    pauseMs(): number {
        const { backoffMaxMs, environment } = this.#options;
        const longest = Math.min(FIRST_PAUSE_MS * 2 ** this.#rounds, backoffMaxMs);
        return this.#rounds === 0 ? longest * environment.random() : longest * (0.5 + 0.5 * environment.random());
    }

    #remembered(): number {
        const [transport, until] = (this.#options.store?.getItem(this.#key()) ?? "").split(" ");
        return Number(until) > this.#options.environment.date() ? this.#options.transports.indexOf(transport as Transport) : 0;
    }

    #remember(): void {
        try {
            this.#options.store?.setItem(this.#key(), `${this.current} ${this.#options.environment.date() + REMEMBERED_MS}`);
        } catch {
            // The store is full: the next page tries again.
        }
    }

    #key(): string {
        return `encke:transport:${this.#options.url}`;
    }
}

/** The longest first pause. */
const FIRST_PAUSE_MS = 500;
/** A connection that has lasted so long is followed by one over the best transport, if that gets through now. */
const RETRIED_MS = 300_000;
/** The time for which a page remembers that a transport does not get through. */
const REMEMBERED_MS = 3_600_000;
