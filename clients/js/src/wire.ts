/** Bayeux messages as they stand on the wire. */

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

/** The bytes of a text in UTF-8. */
export function bytesOf(text: string): number {
    return new TextEncoder().encode(text).length;
}
