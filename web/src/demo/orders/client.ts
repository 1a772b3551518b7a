/**
 * Sends orders to `/service/demo/order` and waits for each reply. An order has the form of "Scaling Node.js"
 * (2012), and `ask`, with which it asks the service to be slow, to refuse, or to never answer.
 */

import type { Client, EnckeError } from "encke";
import { Connection } from "../../connection";
import type { LinkState } from "../../dom";

/** The answer that an order requests. */
export interface Ask {
    delay_ms: number;
    fails: boolean;
    never: boolean;
}

/** An order under way. */
export interface Order {
    request: number;
    shares: number;
    ask: Ask;
    /** The time at which it was sent, in milliseconds of the page's clock. */
    sentAt: number;
}

/** The end of an order. */
export interface End {
    outcome: "answer" | "refused" | "late" | "lost";
    /** The reply in words: the receipt, or the reason. */
    words: string;
    ms: number;
}

/** The answer of the service. */
interface Receipt {
    order: number;
    shares: number;
}

/** The events that the page handles. */
export interface OrderEvents {
    ended(order: Order, end: End): void;
    changed(state: LinkState): void;
}

export class OrderClient {
    readonly #events: OrderEvents;
    readonly #connection: Connection;
    #requests = 0;
    #inFlight = 0;

    constructor(events: OrderEvents) {
        this.#events = events;
        this.#connection = new Connection({ opened: () => {}, changed: events.changed });
    }

    get transport(): string {
        return this.#connection.transport;
    }

    get isConnected(): boolean {
        return this.#connection.state === "connected";
    }

    /** Orders without a reply. */
    get inFlight(): number {
        return this.#inFlight;
    }

    open(): void {
        this.#connection.open();
    }

    close(): void {
        this.#connection.close();
    }

    /** Sends orders; the client sends those of one turn together. */
    send(asks: Ask[], timeoutMs: number): Order[] {
        const client = this.#connection.client;
        return client === undefined ? [] : asks.map((ask) => this.#sendOne(client, ask, timeoutMs));
    }

    #sendOne(client: Client, ask: Ask, timeoutMs: number): Order {
        const execs = Array.from({ length: 1 + below(4) }, (_, sequence) => ({
            sequence, symbol: "QQQ", transaction: "STO", description: "QQQ Stock", accountId: 1_772_139, qty: 1 + below(199), price: below(100), com: below(5),
        }));
        const order = { request: ++this.#requests, shares: execs.reduce((sum, { qty }) => sum + qty, 0), ask, sentAt: performance.now() };
        const data = { request: order.request, rows: execs.length, timestamp: Date.now(), execs, ask };
        this.#inFlight += 1;
        const end = (outcome: End["outcome"], words: string) => {
            this.#inFlight -= 1;
            this.#events.ended(order, { outcome, words, ms: performance.now() - order.sentAt });
        };
        client.call<Receipt>("/service/demo/order", data, { timeoutMs }).then(
            ({ order, shares }) => end("answer", `order ${order}, ${shares} shares`),
            (error: EnckeError) => end(...failure(error, timeoutMs)),
        );
        return order;
    }
}

/** The end of an order that has no answer, with a sentence that says what to do, if there is something to do. */
function failure({ code, message }: EnckeError, timeoutMs: number): [End["outcome"], string] {
    switch (code) {
        case "refused":
            return ["refused", message];
        case "timed_out":
            return ["late", `no answer within ${timeoutMs / 1_000} s`];
        default:
            return ["lost", "the connection broke; nobody knows if the order was taken"];
    }
}

function below(bound: number): number {
    return Math.floor(Math.random() * bound);
}
