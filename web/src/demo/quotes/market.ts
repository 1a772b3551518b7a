/**
 * The quotes of a server's source: each symbol has a channel, such as `/stock/S0042`, and each quote is
 * `{symbol, bid, ask, last, loop}`, where `loop` is the number of the source's round.
 */

import type { SubscriptionHandle } from "cometd";
import { Session, type LinkState } from "../../session";
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
    readonly #session: Session;
    /** The chosen symbols with their subscriptions, if the session has them. */
    readonly #chosen = new Map<string, SubscriptionHandle | undefined>();
    /** The channel of a symbol, with `{symbol}`. */
    #channel = DEFAULT_CHANNEL;
    #isReady = false;
    /** Gathers the names of all symbols; undefined when they are known. */
    #search: Search | undefined = new Search();
    #all: SubscriptionHandle | undefined;

    constructor(events: MarketEvents) {
        this.#events = events;
        this.#session = new Session({
            opened: () => this.#opened(),
            changed: (state) => events.changed(state),
        });
    }

    get transport(): string {
        return this.#session.transport;
    }

    open(): void {
        this.#session.open();
    }

    close(): void {
        this.#session.close();
    }

    /** Subscribes to these symbols, and to no others. */
    choose(symbols: string[]): void {
        const wanted = new Set(symbols);
        this.#session.batch(() => {
            for (const [symbol, subscription] of this.#chosen) {
                if (!wanted.has(symbol)) {
                    this.#chosen.delete(symbol);
                    if (subscription !== undefined) {
                        this.#session.unsubscribe(subscription);
                    }
                }
            }
            for (const symbol of wanted) {
                if (!this.#chosen.has(symbol)) {
                    this.#chosen.set(symbol, this.#isReady ? this.#subscribe(symbol) : undefined);
                }
            }
        });
    }

    #opened(): void {
        this.#isReady = false;
        for (const symbol of this.#chosen.keys()) {
            this.#chosen.set(symbol, undefined);
        }
        this.#all = undefined;
        this.#ask();
    }

    /** Asks where quotes are published, and subscribes. While no source publishes any, asks again now and then. */
    #ask(): void {
        askSources(this.#session, "quotes", (sources) => {
            if (this.#session.state === "ended" || this.#session.state === "closed") {
                return;
            }
            const isOff = sources?.length === 0;
            this.#events.off(isOff);
            if (isOff) {
                setTimeout(() => this.#session.state === "connected" && this.#ask(), ASK_AGAIN_MS);
            } else if (sources === undefined) {
                // The server does not say. A source that is on is seen within a round.
                setTimeout(() => this.#search?.isEmpty && this.#events.off(true), ASK_AGAIN_MS);
            }
            const channel = sources?.find(({ channel }) => channel.includes(SYMBOL))?.channel ?? this.#channel;
            if (!this.#isReady || channel !== this.#channel) {
                this.#channel = channel;
                this.#subscribeAll();
            }
        });
    }

    #subscribeAll(): void {
        this.#isReady = true;
        this.#session.batch(() => {
            for (const [symbol, before] of this.#chosen) {
                if (before !== undefined) {
                    this.#session.unsubscribe(before);
                }
                this.#chosen.set(symbol, this.#subscribe(symbol));
            }
            if (this.#search !== undefined) {
                if (this.#all !== undefined) {
                    this.#session.unsubscribe(this.#all);
                }
                this.#all = this.#session.subscribe(this.#channelOf("*"), (data) => this.#learn(data));
            }
        });
    }

    #subscribe(symbol: string): SubscriptionHandle {
        return this.#session.subscribe(this.#channelOf(symbol), (data) => isQuote(data) && this.#events.quote(data), (why) => this.#events.refused(symbol, why));
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
        if (this.#all !== undefined) {
            this.#session.unsubscribe(this.#all);
        }
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
