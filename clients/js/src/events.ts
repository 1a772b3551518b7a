/** What a session says to its caller. */

import type { PlainError } from "./errors.js";
import type { Position } from "./types.js";
import type { ServerMessage } from "./wire.js";

/** The offsets of lost messages; `null` if they are unknown. */
export type Lost = { from: number; to: number } | null;

/** The offsets of the messages with which a channel begins: the first, and the last one at that time. */
export interface Replays {
    from: number;
    latest: number;
}

/** An event of a session. */
export type SessionEvent =
    /** The session can be used. `resumed`: it is the one from before the break. */
    | { on: "opened"; resumed: boolean }
    /** The reply to a publication. */
    | { on: "reply"; id: string; error?: PlainError; position?: Position }
    /** The subscribes of these keys were granted or refused. */
    | { on: "subscribed"; keys: number[]; error?: PlainError }
    /** A message of a channel, or the answer of a service. */
    | { on: "message"; message: ServerMessage }
    /** The position that a channel has reached without a message, or at which it begins; `lost` if messages before it are gone. */
    | { on: "reached"; channel: string; position?: Position; lost?: Lost; replays?: Replays }
    /** A connect has its reply: what was on its way when a subscription began has come. */
    | { on: "turned" }
    /** A subscription may have missed messages. */
    | { on: "gap"; name: string }
    /** A subscription ended: the server refuses it in the new session. */
    | { on: "unsubscribed"; name: string; error: PlainError }
    /** The connection is of no use any more. */
    | { on: "lost"; error: PlainError }
    /** The server refused or ended the session, or it was closed. */
    | { on: "ended"; error: PlainError };
