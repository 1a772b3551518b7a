/**
 * Sends orders to `/service/demo/order` and waits for each reply. An order has the form of "Scaling Node.js"
 * (2012), and `ask`, with which it asks the service to be slow, to refuse, or to never answer.
 */

import { Session, type LinkState, type Outcome } from "../../session";

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
    outcome: Outcome["kind"];
    /** The reply in words: the receipt, or the reason. */
    words: string;
    ms: number;
}

/** The events that the page handles. */
export interface OrderEvents {
    ended(order: Order, end: End): void;
    changed(state: LinkState): void;
}

export class OrderClient {
    readonly #events: OrderEvents;
    readonly #session: Session;
    #requests = 0;
    #inFlight = 0;

    constructor(events: OrderEvents) {
        this.#events = events;
        this.#session = new Session({ opened: () => {}, changed: events.changed });
    }

    get transport(): string {
        return this.#session.transport;
    }

    get isConnected(): boolean {
        return this.#session.state === "connected";
    }

    /** Orders without a reply. */
    get inFlight(): number {
        return this.#inFlight;
    }

    open(): void {
        this.#session.open();
    }

    close(): void {
        this.#session.close();
    }

    /** Sends orders together, as one batch. */
    send(asks: Ask[], timeoutMs: number): Order[] {
        const orders: Order[] = [];
        this.#session.batch(() => {
            for (const ask of asks) {
                orders.push(this.#sendOne(ask, timeoutMs));
            }
        });
        return orders;
    }

    #sendOne(ask: Ask, timeoutMs: number): Order {
        const execs = Array.from({ length: 1 + below(4) }, (_, sequence) => ({
            sequence, symbol: "QQQ", transaction: "STO", description: "QQQ Stock", accountId: 1_772_139, qty: 1 + below(199), price: below(100), com: below(5),
        }));
        const order = { request: ++this.#requests, shares: execs.reduce((sum, { qty }) => sum + qty, 0), ask, sentAt: performance.now() };
        const data = { request: order.request, rows: execs.length, timestamp: Date.now(), execs, ask };
        this.#inFlight += 1;
        this.#session.request("demo/order", data, timeoutMs, (outcome) => {
            this.#inFlight -= 1;
            this.#events.ended(order, { outcome: outcome.kind, words: inWords(outcome, timeoutMs), ms: performance.now() - order.sentAt });
        });
        return order;
    }
}

/** The end of an order in a sentence that says what to do, if there is something to do. */
function inWords(outcome: Outcome, timeoutMs: number): string {
    switch (outcome.kind) {
        case "answer": {
            const { order, shares } = (outcome.data ?? {}) as { order?: unknown; shares?: unknown };
            return `order ${order}, ${shares} shares`;
        }
        case "refused":
            return outcome.why;
        case "late":
            return `no answer within ${timeoutMs / 1_000} s`;
        case "lost":
            return "the server has lost the session; nobody knows if the order was taken";
    }
}

function below(bound: number): number {
    return Math.floor(Math.random() * bound);
}
