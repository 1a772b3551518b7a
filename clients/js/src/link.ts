/** Connections to the server: a WebSocket, or HTTP requests with or without a stream beside them. */

import type { Outgoing } from "./session.js";
import type { Transport } from "./types.js";
import { bytesOf } from "./wire.js";

/** What a connection needs from outside. */
export interface LinkOptions {
    url: string;
    headers: Record<string, string>;
    fetch: typeof fetch;
    WebSocket: (new (url: string) => WebSocket) | undefined;
    /** The bytes of several messages that go together. */
    textBytesMax: number;
}

/** What a connection says. After `lost` it says nothing more. */
export interface LinkEvents {
    /** It can be used. */
    opened(): void;
    /** A text of the server. */
    received(text: string): void;
    /** It is of no use any more. `status` is that of a response, or a close code. */
    lost(message: string, status?: number): void;
}

/** A connection. */
export interface Link {
    /** Sends messages, those of one class together. */
    send(messages: Outgoing[]): void;
    /** Gives it up, without a word to its events. */
    close(): void;
}

/** Opens a connection. It calls its events later, not at once. */
export function open(transport: Transport, options: LinkOptions, events: LinkEvents): Link {
    return transport === "websocket" ? openSocket(options, events) : new HttpLink(options, events);
}

function openSocket({ url, WebSocket, textBytesMax }: LinkOptions, events: LinkEvents): Link {
    let isOver = false;
    const lose = (message: string, status?: number) => {
        if (!isOver) {
            isOver = true;
            events.lost(message, status);
        }
    };
    let socket: WebSocket;
    try {
        socket = new WebSocket!(url.replace(/^http/, "ws"));
    } catch (error) {
        queueMicrotask(() => lose(String(error)));
        return { send: () => undefined, close: () => void (isOver = true) };
    }
    socket.onopen = () => !isOver && events.opened();
    socket.onmessage = ({ data }) => !isOver && events.received(String(data));
    // Not every implementation closes what has failed.
    socket.onerror = socket.onclose = ({ code, reason }: Partial<CloseEvent>) => lose(`WebSocket closed: ${code} ${reason}`, code);
    return {
        send: (messages) => texts(messages, textBytesMax).forEach((text) => socket.send(text)),
        close: () => {
            isOver = true;
            socket.close();
        },
    };
}

/** Requests, two at a time at most: one that the server holds, and one for everything else. And a stream, if the session has one. */
class HttpLink implements Link {
    readonly #options: LinkOptions;
    readonly #events: LinkEvents;
    readonly #abort = new AbortController();
    #others: Outgoing[] = [];
    #isBusy = false;
    #stream: Promise<void> | undefined;

    constructor(options: LinkOptions, events: LinkEvents) {
        this.#options = options;
        this.#events = events;
        queueMicrotask(() => this.#isOver || events.opened());
    }

    get #isOver(): boolean {
        return this.#abort.signal.aborted;
    }

    send(messages: Outgoing[]): void {
        for (const message of messages) {
            if (message.class === "other") {
                this.#others.push(message);
            } else {
                void this.#begin(message);
            }
        }
        void this.#sendOthers();
    }

    close(): void {
        this.#abort.abort();
    }

    async #begin({ text, stream }: Outgoing): Promise<void> {
        await (stream && (this.#stream ??= this.#openStream(stream)));
        await this.#post(`[${text}]`);
    }

    /** Sends everything that waits, one request after the other, so that nothing overtakes. */
    async #sendOthers(): Promise<void> {
        if (this.#isBusy) {
            return;
        }
        this.#isBusy = true;
        while (this.#others.length > 0 && !this.#isOver) {
            const together = this.#others.splice(0, countOf(this.#others, this.#options.textBytesMax));
            await this.#post(textOf(together));
        }
        this.#isBusy = false;
    }

    async #post(body: string): Promise<void> {
        if (this.#isOver) {
            return;
        }
        try {
            const response = await this.#request("", { method: "POST", body, headers: { "content-type": "application/json" } });
            const text = await response.text();
            if (!response.ok) {
                this.#lose(`status ${response.status}`, response.status);
            } else if (!this.#isOver) {
                this.#events.received(text);
            }
        } catch (error) {
            this.#lose(String(error));
        }
    }

    /** Resolves when the response has begun. */
    async #openStream(clientId: string): Promise<void> {
        try {
            const response = await this.#request(`/${clientId}`, { headers: { accept: "text/event-stream" } });
            if (!response.ok || response.body === null) {
                return this.#lose(`status ${response.status}`, response.status);
            }
            void this.#read(response.body);
        } catch (error) {
            this.#lose(String(error));
        }
    }

    /** Reads events until the stream ends (HTML, "Parsing an event stream"). */
    async #read(body: ReadableStream<Uint8Array>): Promise<void> {
        const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
        let rest = "";
        let data: string[] = [];
        try {
            for (;;) {
                const { done, value } = await reader.read();
                if (done || this.#isOver) {
                    break;
                }
                const lines = (rest + value).split(/\r?\n/);
                rest = lines.pop()!;
                for (const line of lines) {
                    if (line.startsWith("data:")) {
                        data.push(line.slice(5).trimStart());
                    } else if (line === "" && data.length > 0) {
                        const text = data.join("\n");
                        data = [];
                        if (!this.#isOver) {
                            this.#events.received(text);
                        }
                    }
                }
            }
        } catch {
            // It broke.
        }
        this.#lose("the stream ended");
    }

    #request(path: string, init: RequestInit): Promise<Response> {
        const { fetch, url, headers } = this.#options;
        const all = { ...headers, ...(init.headers as Record<string, string>) };
        return fetch(url + path, { credentials: "include", signal: this.#abort.signal, ...init, headers: all });
    }

    #lose(message: string, status?: number): void {
        if (!this.#isOver) {
            this.#abort.abort();
            this.#events.lost(message, status);
        }
    }
}

/** Arrays of messages, each within the limit, unless one message alone is longer. */
function texts(messages: Outgoing[], bytesMax: number): string[] {
    const all = [];
    for (let at = 0; at < messages.length; ) {
        const count = countOf(messages.slice(at), bytesMax);
        all.push(textOf(messages.slice(at, at + count)));
        at += count;
    }
    return all;
}

function textOf(messages: Outgoing[]): string {
    return `[${messages.map(({ text }) => text).join(",")}]`;
}

/** The number of messages that go together. A connect goes alone: what is with it would wait for its reply on some servers. */
function countOf(messages: Outgoing[], bytesMax: number): number {
    let bytes = 2;
    for (const [index, { text, class: kind }] of messages.entries()) {
        bytes += bytesOf(text) + 1;
        if (index > 0 && (bytes > bytesMax || index === MESSAGES_MAX || kind !== "other" || messages[0]!.class !== "other")) {
            return index;
        }
    }
    return messages.length;
}

/** The messages of one text. Encke takes 1,000. */
const MESSAGES_MAX = 200;
