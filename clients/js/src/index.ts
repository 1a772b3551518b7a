/**
 * A Bayeux client for pages, workers and Node: Encke, CometD, Faye.
 *
 *     import { connect } from "encke";
 *
 *     const client = connect("https://push.example.com");
 *     for await (const { channel, data } of client.subscribe("/stock/*")) {
 *         console.log(channel, data);
 *     }
 *
 * @module encke
 */

import { Client } from "./client.js";
import { Connection } from "./connection.js";
import type { ConnectionOptions } from "./connection.js";
import { environment } from "./environment.js";
import type { Core, CoreEvent } from "./protocol.js";
import type { SavedSession } from "./session.js";
import type { ClientOptions, TextStore, Transport } from "./types.js";

export type { Client, ClientEvents } from "./client.js";
export { EnckeError } from "./errors.js";
export type { ErrorCode } from "./errors.js";
export type { Subscription } from "./subscription.js";
export type {
    ClientOptions,
    From,
    Gap,
    HistoryOptions,
    HistoryPage,
    Message,
    Persistence,
    Position,
    Published,
    RequestOptions,
    Sharing,
    State,
    SubscribeOptions,
    TextStore,
    TokenSource,
    Transport,
} from "./types.js";

/**
 * Connects to a server, and stays connected. `url` is its Bayeux endpoint; without a path it is `/cometd`. In a page it may be left
 * out: the server of the page.
 */
export function connect(url?: string | URL, options: ClientOptions = {}): Client {
    const scope = globalThis as { location?: { href: string } };
    const address = new URL(url ?? "/cometd", scope.location?.href);
    address.protocol = address.protocol.replace(/^ws/, "http");
    const href = address.pathname === "/" ? `${address.origin}/cometd${address.search}` : address.href.replace(/#.*$/, "");
    return new Client(href, options, (emit, memory) => {
        const make = (emit: (event: CoreEvent) => void, saved?: SavedSession) => new Connection(optionsOf(href, options, saved), emit);
        return (options.shared?.open(href, options, emit, make) as Core | undefined) ?? make(emit, memory?.takeSession());
    });
}

/** The options of a connection, with their defaults. @internal */
export function optionsOf(url: string, options: ClientOptions, saved?: SavedSession): ConnectionOptions {
    const WebSocket = options.WebSocket ?? (globalThis as { WebSocket?: ClientOptions["WebSocket"] }).WebSocket;
    const transports = (options.transports ?? TRANSPORTS).filter((transport) => transport !== "websocket" || WebSocket);
    const messageBytesMax = options.messageBytesMax ?? Infinity;
    return {
        url,
        headers: options.headers ?? {},
        fetch: options.fetch ?? ((input, init) => fetch(input, init)),
        WebSocket,
        textBytesMax: Math.min(messageBytesMax, TEXT_BYTES_MAX),
        transports: transports.length === 0 ? ["long-polling"] : transports,
        ack: options.ack ?? true,
        replay: options.replay ?? true,
        ext: options.ext ?? {},
        hasToken: options.token !== undefined,
        replyTimeoutMs: options.replyTimeoutMs ?? 10_000,
        fallbackMs: options.fallbackMs ?? 800,
        backoffMaxMs: options.backoffMaxMs ?? 30_000,
        messageBytesMax,
        pendingMax: options.pendingMax ?? 1_000,
        environment: environment(),
        store: localStore(),
        saved,
    };
}

/** Where pages remember the transport. A page may be forbidden to store anything. */
function localStore(): TextStore | undefined {
    try {
        return (globalThis as { localStorage?: TextStore }).localStorage;
    } catch {
        return undefined;
    }
}

const TRANSPORTS: Transport[] = ["websocket", "eventsource", "long-polling"];
/** Several messages go together up to this: servers with smaller limits take it, too. */
const TEXT_BYTES_MAX = 32_768;
