/** The connection of a page: a client of the package `encke`, as the link in the page's header shows it. It knows nothing of the page's topic. */

import { connect, type Client, type ClientOptions, type EnckeError, type State, type Transport } from "encke";
import type { LinkState } from "./dom";

/** The events that the page handles. */
export interface ConnectionEvents {
    /** There is a client, without subscriptions: the first one, or another one after the page was closed or the server has ended the last. */
    opened(client: Client): void;
    /** The state changed. */
    changed(state: LinkState): void;
    /** The server has forgotten the session, and the client has opened another one with the same subscriptions. */
    renewed?(): void;
}

/** One client at a time, from `open` to `close`. */
export class Connection {
    readonly #events: ConnectionEvents;
    readonly #options: () => ClientOptions;
    #client: Client | undefined;
    #state: LinkState = "closed";
    #wasConnected = false;

    /** `options` are asked for at each opening. */
    constructor(events: ConnectionEvents, options: () => ClientOptions = () => ({})) {
        this.#events = events;
        this.#options = options;
    }

    /** The client; none before `open`, and after the end. */
    get client(): Client | undefined {
        return this.#client;
    }

    get state(): LinkState {
        return this.#state;
    }

    /** The transport in use in words, or "" before one is. */
    get transport(): string {
        return TRANSPORTS[this.#client?.state.transport ?? ""] ?? "";
    }

    open(): void {
        if (this.#client !== undefined) {
            return;
        }
        const client = connect(location.origin, { transports: asked(), backoffMaxMs: MAX_RETRY_MS, ...this.#options() });
        this.#client = client;
        this.#wasConnected = false;
        client.on("state", (state) => this.#client === client && this.#changed(state));
        this.#become("connecting");
        this.#events.opened(client);
    }

    close(): void {
        const client = this.#client;
        this.#client = undefined;
        void client?.close();
        this.#become("closed");
    }

    #changed(state: State): void {
        if (state.name === "closed") {
            this.#client = undefined;
            this.#become("ended");
            return;
        }
        this.#become(state.name === "offline" ? "reconnecting" : state.name);
        if (state.name === "connected") {
            const isRenewed = this.#wasConnected && state.resumed === false;
            this.#wasConnected = true;
            if (isRenewed) {
                this.#events.renewed?.();
            }
        }
    }

    #become(state: LinkState): void {
        if (state !== this.#state) {
            this.#state = state;
            this.#events.changed(state);
        }
    }
}

/** Opens the connection with the page, and closes it with the page. A page that comes back from the browser's cache opens it again. */
export function openWithPage(open: () => void, close: () => void): void {
    addEventListener("pagehide", close);
    addEventListener("pageshow", (event) => event.persisted && open());
    // Not sooner: a request that the server holds would keep the page loading.
    addEventListener("load", () => setTimeout(open));
}

/** Calls with the server's words when it refuses a subscription or takes it away. The end of the whole session is no refusal. */
export function onRefusal(client: Client, run: (why: string) => void): void {
    client.on("error", ({ message }) => client.state.name !== "closed" && run(message));
}

/** The server's words in an error, or "" if the connection is the reason. */
export function refusalOf(error: EnckeError): string {
    return error.code === "refused" ? error.message : "";
}

/** `?transport=long-polling` and the like: for tests and for the curious. Without it the best that works is used. */
function asked(): Transport[] | undefined {
    const wanted = new URLSearchParams(location.search).get("transport") ?? "";
    return wanted in TRANSPORTS ? [wanted as Transport] : undefined;
}

const TRANSPORTS: Record<string, string> = { websocket: "WebSocket", eventsource: "event stream", "long-polling": "long-polling" };
/** A page left open beside a stopped server asks no more often than this, and is back this soon after it started. */
const MAX_RETRY_MS = 5_000;
