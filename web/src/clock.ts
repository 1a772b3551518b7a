/** The difference between the clocks of page and server, by CometD's timesync extension. */

import type { Extension, Message } from "cometd";

/**
 * The extension for the official client. Each exchange is a sample. The one with the shortest way there and back is the most exact
 * one: a reply that waited behind other messages would count its wait as a difference of clocks.
 */
export class ServerClock implements Extension {
    #best: { trip: number; offset: number } | undefined;

    /** The milliseconds to add to the page's clock; 0 as long as the server has said nothing. */
    get offset(): number {
        return this.#best?.offset ?? 0;
    }

    /** True if the server has said its time. */
    get isKnown(): boolean {
        return this.#best !== undefined;
    }

    outgoing(message: Message): Message {
        if (message.channel.startsWith("/meta/")) {
            message.ext = { ...message.ext, timesync: { tc: Date.now(), l: 0, o: this.offset } };
        }
        return message;
    }

    incoming(message: Message): Message {
        const { timesync } = (message.ext ?? {}) as { timesync?: { tc: number; ts: number; p: number } };
        if (message.channel === "/meta/handshake") {
            this.#best = undefined;
        }
        if (timesync !== undefined) {
            const trip = Date.now() - timesync.tc - timesync.p;
            if (Number.isFinite(trip) && trip >= 0 && trip <= (this.#best?.trip ?? Infinity)) {
                this.#best = { trip, offset: Math.round(timesync.ts - timesync.tc - trip / 2) };
            }
        }
        return message;
    }
}
