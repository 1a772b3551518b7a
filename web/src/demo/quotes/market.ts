/**
 * The quotes of a server's source: each symbol has a channel, such as `/stock/S0042`, and each quote is
 * `{symbol, bid, ask, last, loop}`, where `loop` is the number of the source's round.
 */

import type { Client, EnckeError, Subscription } from "encke";
import { Connection } from "../../connection";
import type { LinkState } from "../../dom";
import { askSources } from "../../sources";

/** One quote. A price that the source does not know is null. */
export interface Quote {
    symbol: string;
    bid: number | null;
    ask: number | null;
    last: number | null;
    loop: number;
}

/** The events that the page handles. */
export interface MarketEvents {
    quote(quote: Quote): void;
    /** All symbols that the source publishes, in order, once they are known. */
    names(names: string[]): void;
    changed(state: LinkState): void;
    /** No source publishes quotes, or one does again. */
    off(isOff: boolean): void;
    /** The server refuses the subscription to a symbol. */
    refused(symbol: string, why: string): void;
}

/** The market, as far as the page has chosen it. */
export class Market {
    readonly #events: MarketEvents;
    readonly #connection: Connection;
    /** The chosen symbols with their subscriptions, once it is known where quotes are published. */
    readonly #chosen = new Map<string, Subscription | undefined>();
    /** The channel of a symbol, with `{symbol}`. */
    #channel = DEFAULT_CHANNEL;
    #isReady = false;
    /** Gathers the names of all symbols; undefined when they are known. */
    #search: Search | undefined = new Search();
    #all: Subscription | undefined;

    constructor(events: MarketEvents) {
        this.#events = events;
        this.#connection = new Connection({
            opened: (client) => this.#opened(client),
            changed: (state) => events.changed(state),
            renewed: () => void this.#ask(),
        });
    }

    get transport(): string {
        return this.#connection.transport;
    }

    open(): void {
        this.#connection.open();
    }

    close(): void {
        this.#connection.close();
    }

    /** Subscribes to these symbols, and to no others. */
    choose(symbols: string[]): void {
        const wanted = new Set(symbols);
        for (const [symbol, subscription] of this.#chosen) {
            if (!wanted.has(symbol)) {
                this.#chosen.delete(symbol);
                subscription?.unsubscribe();
            }
        }
        for (const symbol of wanted) {
            if (!this.#chosen.has(symbol)) {
                this.#chosen.set(symbol, this.#isReady ? this.#subscribe(symbol) : undefined);
            }
        }
    }

    #opened(client: Client): void {
        this.#isReady = false;
        for (const symbol of this.#chosen.keys()) {
            this.#chosen.set(symbol, undefined);
        }
        this.#all = undefined;
        void this.#ask(client);
    }

    /** Asks where quotes are published, and subscribes. While no source publishes any, asks again now and then. */
    async #ask(client = this.#connection.client): Promise<void> {
        const sources = client && (await askSources(client, "quotes"));
        if (client !== this.#connection.client) {
            return;
        }
        const isOff = sources?.length === 0;
        this.#events.off(isOff);
        if (isOff) {
            setTimeout(() => this.#connection.state === "connected" && void this.#ask(), ASK_AGAIN_MS);
        } else if (sources === undefined) {
            // The server does not say. A source that is on is seen within a round.
            setTimeout(() => this.#search?.isEmpty && this.#events.off(true), ASK_AGAIN_MS);
        }
        const channel = sources?.find(({ channel }) => channel.includes(SYMBOL))?.channel ?? this.#channel;
        if (!this.#isReady || channel !== this.#channel) {
            this.#channel = channel;
            this.#subscribeAll();
        }
    }

    #subscribeAll(): void {
        this.#isReady = true;
        for (const [symbol, before] of this.#chosen) {
            before?.unsubscribe();
            this.#chosen.set(symbol, this.#subscribe(symbol));
        }
        if (this.#search !== undefined) {
            this.#all?.unsubscribe();
            this.#all = this.#connection.client?.subscribe(this.#channelOf("*"), ({ data }) => this.#learn(data));
        }
    }

    #subscribe(symbol: string): Subscription | undefined {
        const subscription = this.#connection.client?.subscribe(this.#channelOf(symbol), ({ data }) => isQuote(data) && this.#events.quote(data));
        subscription?.ready.catch((error: EnckeError) => error.code === "refused" && this.#events.refused(symbol, error.message));
        return subscription;
    }

    /** A channel has fewer characters than a symbol may have; the source replaces the others, too. */
    #channelOf(symbol: string): string {
        return this.#channel.replace(SYMBOL, symbol === "*" ? "*" : symbol.replaceAll(/[^A-Za-z0-9!#$()+\-.@_{~}]/gu, "_"));
    }

    #learn(data: unknown): void {
        if (this.#search === undefined || !isQuote(data) || !this.#search.isCompleteWith(data)) {
            return;
        }
        const names = this.#search.names();
        this.#search = undefined;
        this.#all?.unsubscribe();
        this.#events.off(false);
        this.#events.names(names);
    }
}

/** The names of the symbols of a whole round. */
class Search {
    readonly #names = new Set<string>();
    /** The last message at which a new name came, and the number of messages. */
    #lastNew = 0;
    #messages = 0;

    /** True if all names are known: as many quotes came without a new name as there are names. */
    isCompleteWith({ symbol }: Quote): boolean {
        this.#messages += 1;
        if (this.#names.size < MAX_NAMES && !this.#names.has(symbol)) {
            this.#names.add(symbol);
            this.#lastNew = this.#messages;
        }
        return this.#messages - this.#lastNew >= this.#names.size;
    }

    get isEmpty(): boolean {
        return this.#messages === 0;
    }

    names(): string[] {
        return [...this.#names].sort();
    }
}

function isQuote(data: unknown): data is Quote {
    const { symbol, bid, ask, last, loop } = (data ?? {}) as Partial<Quote>;
    const isPrice = (price: unknown) => price === null || typeof price === "number";
    return typeof symbol === "string" && isPrice(bid) && isPrice(ask) && isPrice(last) && typeof loop === "number";
}

const SYMBOL = "{symbol}";
const DEFAULT_CHANNEL = "/stock/{symbol}";
const ASK_AGAIN_MS = 2_000;
/** More names than this are not offered; they can still be typed. */
const MAX_NAMES = 20_000;
