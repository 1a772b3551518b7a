/** The public types: options, messages, gaps, states. */

import type { EnckeError } from "./errors.js";

/** A way to reach the server, by its name in Bayeux. */
export type Transport = "websocket" | "eventsource" | "long-polling";

/** The position of a message in the history of its channel. Offsets grow within an epoch. */
export interface Position {
    /** The name of one life of the history. */
    epoch: string;
    /** The offset of the message. */
    id: number;
}

/**
 * The point at which a subscription begins. `latest`: with new messages, and before them the latest one of each channel whose rule says
 * `retain_last`. `earliest`: with all that the server retains. Or with the last ones, or after a position.
 */
export type From =
    | "latest"
    | "earliest"
    | {
          /** The number of messages before the new ones, at most; with 0 also the retained ones are left out. */
          last: number;
      }
    | Position;

/** A message of a subscription. */
export interface Message<T = unknown> {
    /** The channel on which it was published. */
    channel: string;
    /** The published data; nothing is added to it. */
    data: T;
    /** Its position, if the channel has a history. */
    position?: Position;
    /** The extensions that its publisher has added. */
    ext?: Record<string, unknown>;
}

/** A point of a subscription where messages are missing, or may be. */
export interface Gap {
    /** The channel, or the pattern if it is unknown which of its channels miss messages. */
    channel: string;
    /**
     * `gone`: the history does not retain them any more. `unknown`: the connection broke, and the channel has no history that would tell.
     * `slow`: the reader of this subscription has more unread messages than `messagesMax`.
     */
    cause: "gone" | "unknown" | "slow";
    /** The offsets of the first and the last missing message, if they are known. */
    lost?: {
        /** The offset of the first one. */
        from: number;
        /** The offset of the last one. */
        to: number;
    };
    /** The number of messages that were discarded because the reader was slow. */
    discarded?: number;
}

/** The state of the connection. */
export interface State {
    /**
     * `connecting`: for the first time. `connected`: the session has all its subscriptions. `reconnecting`: the connection broke, the
     * client tries again. `offline`: the same, and the machine has no network. `closed`: nothing happens any more.
     */
    name: "connecting" | "connected" | "reconnecting" | "offline" | "closed";
    /** The transport in use, if it is connected. */
    transport?: Transport;
    /** True if the session is the one from before the break: nothing that the server had for it is lost. */
    resumed?: boolean;
    /** The reason of the break or of the end. None after `close()`. */
    error?: EnckeError;
}

/** A token, or a function that returns one. It is called before each handshake that needs a new token, and before the old one ends. */
export type TokenSource = string | ((why: "first" | "expiring" | "refused") => string | Promise<string>);

/** A store of texts, such as `sessionStorage`. */
export interface TextStore {
    /** The text with this name; `null` if there is none. */
    getItem(name: string): string | null;
    /** Stores a text. */
    setItem(name: string, text: string): void;
    /** Removes a text. */
    removeItem(name: string): void;
}

/** The options of a client. */
export interface ClientOptions {
    /** The transports to try, in this order. Default: WebSocket, event stream, long-polling. */
    transports?: Transport[];
    /** The token of the session's user, sent as `ext.auth.token`. */
    token?: TokenSource;
    /** Further members of the handshake's `ext`. */
    ext?: Record<string, unknown>;
    /** Header fields of HTTP requests. A WebSocket of a browser cannot send any. */
    headers?: Record<string, string>;
    /** Acknowledges messages, where the server can: breaks then lose none while the session lives. Default: true. */
    ack?: boolean;
    /** Continues at the last positions, where the server can: the history bridges the gap between sessions. Default: true. */
    replay?: boolean;
    /** Continues after a reload of the page: `persist()` of `encke/persist`. */
    persist?: Persistence;
    /** Shares one connection among the tabs of this site: `tabs` or `sharedWorker(…)` of `encke/shared`. */
    shared?: Sharing;
    /** The longest time until the server replies, beyond the time for which it holds a connect. In milliseconds, default 10,000. */
    replyTimeoutMs?: number;
    /** The time after which a transport that has not opened is given up for the next one. In milliseconds, default 800. */
    fallbackMs?: number;
    /** The longest pause between two attempts to connect. In milliseconds, default 30,000. */
    backoffMaxMs?: number;
    /** The longest text that the server takes, in bytes, if it is another one than the server tells, or than 1 MiB. */
    messageBytesMax?: number;
    /** The number of publications and calls that may wait for the connection or for their replies. Default: 1,000. */
    pendingMax?: number;
    /** Another WebSocket than the global one: Node 20 has none, and takes that of the package `ws`. */
    WebSocket?: {
        /** Opens one to this URL. */
        new (url: string): WebSocket;
    };
    /** Another `fetch` than the global one. */
    fetch?: typeof fetch;
}

/** A way to go on after a reload, of `encke/persist`. */
export interface Persistence {
    /** @internal */
    open(url: string): any;
}

/** A way to share a connection, of `encke/shared`. */
export interface Sharing {
    /** @internal The connection of a tab; `undefined` if there is no such way here. */
    open(url: string, options: ClientOptions, emit: (event: any) => void, make: (emit: (event: any) => void) => any): any;
}

/** The options of a subscription. */
export interface SubscribeOptions {
    /** The point at which it begins. Default: `latest`. Positions stored by `persist` come before it. */
    from?: From;
    /** Positions of channels, such as `subscription.positions` of an earlier page. They come before `from`. */
    positions?: Record<string, Position>;
    /** Gets each gap, between the messages before and after it. */
    onGap?: (gap: Gap) => void;
    /**
     * The least time between two messages of the same channel, where the server can: it sends the latest one, and leaves out the others.
     * Encke takes the next of 50, 100, 200 and 500 ms, 1, 2, 5, 10, 20, 30 and 60 s. Such messages have no positions. Of several
     * subscriptions to the same name the shortest applies to all. In milliseconds; default 0: all messages.
     */
    minIntervalMs?: number;
    /** Ends the subscription. */
    signal?: AbortSignal;
    /** The number of messages that may wait for an iterator. The oldest are discarded above it, with a gap. Default: 10,000. */
    messagesMax?: number;
}

/** The options of a publication or a call. */
export interface RequestOptions {
    /** The longest time until the reply, waiting for a connection included. In milliseconds; default: `replyTimeoutMs` of the client. */
    timeoutMs?: number;
    /** Stops waiting. The server may have the message already. */
    signal?: AbortSignal;
}

/** The part of a history to read: without a position the latest messages. */
export interface HistoryOptions extends RequestOptions {
    /** Messages before this position. */
    before?: Position;
    /** Messages after this position. */
    after?: Position;
    /** The most messages: 100 by default, 1,000 at most. A page may have fewer. */
    limit?: number;
}

/** A page of a history. */
export interface HistoryPage<T = unknown> {
    /** Oldest first. */
    messages: Message<T>[];
    /** False if messages are gone that were after the position `after`, or if the history is another one. */
    recovered: boolean;
    /** True if the history has messages before those of the page. */
    earlier: boolean;
    /** True if it has messages after them. */
    later: boolean;
    /** The position of the newest message. */
    latest?: Position;
}

/** The server's reply to a publication. */
export interface Published {
    /** The position of the message, where the server tells it. */
    position?: Position;
}
