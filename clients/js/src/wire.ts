/** Bayeux messages as they stand on the wire. */

import type { Position } from "./types.js";

/** A message from the server, of which nothing has been checked. */
export interface ServerMessage {
    channel: string;
    id?: string | number;
    clientId?: string;
    data?: unknown;
    successful?: boolean;
    error?: string;
    subscription?: string | string[];
    supportedConnectionTypes?: string[];
    advice?: { reconnect?: string; interval?: number; timeout?: number };
    ext?: Record<string, any>;
}

export const HANDSHAKE = "/meta/handshake";
export const CONNECT = "/meta/connect";
export const DISCONNECT = "/meta/disconnect";
export const SUBSCRIBE = "/meta/subscribe";
export const UNSUBSCRIBE = "/meta/unsubscribe";

/** The messages of a text: an array, or one alone. Throws if it is something else. */
export function parse(text: string): ServerMessage[] {
    return [JSON.parse(text) as ServerMessage | ServerMessage[]].flat();
}

/** True for a reply, false for a message of a channel or the answer of a service. */
export function isReply(message: ServerMessage): boolean {
    return message.channel.startsWith("/meta/") || (message.successful !== undefined && message.data === undefined);
}

/**
 * The published data. Encke adds `event` to the data of messages with a position, and puts what is no object into `payload`, as
 * Salesforce does. An object whose only member is `payload`, and whose payload is no object, looks like that payload alone.
 */
export function published(data: unknown, position: Position | undefined): unknown {
    const mixed = data as { event?: { replayId?: number }; payload?: unknown } | undefined;
    const event = mixed?.event;
    if (!position || typeof event !== "object" || event === null || event.replayId !== position.id) {
        return data;
    }
    const { event: _, ...rest } = mixed!;
    const { replayId: __, ...own } = event as Record<string, unknown>;
    const names = Object.keys(own);
    if (names.length !== 1 || names[0] !== "createdDate" || Object.keys(mixed!)[0] !== "event") {
        return { ...mixed, event: own };
    }
    const isWrapped = "payload" in rest && Object.keys(rest).length === 1 && (!isPlain(rest.payload) || "event" in rest.payload);
    return isWrapped ? rest.payload : rest;
}

function isPlain(value: unknown): value is object {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The bytes of a text in UTF-8. */
export function bytesOf(text: string): number {
    return new TextEncoder().encode(text).length;
}
