/** What subscriptions and promises say to the connection, and what it says to them. Both cross from one tab to another as they are. */

import type { PlainError } from "./errors.js";
import type { Lost, Replays } from "./events.js";
import type { SavedSession } from "./session.js";
import type { From, Position, State, Transport } from "./types.js";
import type { ServerMessage } from "./wire.js";

/** The state without its error's class. */
export interface PlainState {
    name: State["name"];
    transport?: Transport;
    resumed?: boolean;
    error?: PlainError;
}

/** The reason for which a token is wanted. */
export type Why = "first" | "expiring" | "refused";

/** An order of a client. `key` names what it is about. */
export type Command =
    | { do: "subscribe"; key: number; name: string; from: From; positions: [string, Position][]; intervalMs: number }
    | { do: "unsubscribe"; key: number }
    /** `data` is JSON text. */
    | { do: "publish"; key: number; channel: string; data: string; isCall: boolean }
    /** The caller does not wait any more. */
    | { do: "drop"; key: number }
    /** The token that was asked for; none if there is none now. */
    | { do: "token"; token?: string; error?: string }
    | { do: "close" };

/** An event of the connection. */
export type CoreEvent =
    | { on: "state"; state: PlainState }
    /** What these keys wait for is done. */
    | { on: "done"; keys: number[]; error?: PlainError; position?: Position; data?: unknown }
    | { on: "message"; message: ServerMessage }
    | { on: "reached"; channel: string; position?: Position; lost?: Lost; replays?: Replays }
    | { on: "turned" }
    | { on: "gap"; name: string }
    | { on: "unsubscribed"; name: string; error: PlainError }
    | { on: "token"; why: Why }
    /** Another tab has the connection now, or the first one: it does not know the subscriptions of this client. */
    | { on: "moved"; isFirst: boolean };

/** The connection as a client sees it: here, or in another tab. */
export interface Core {
    command(command: Command): void;
    /** What the next page needs to continue the session; the connection is given up. */
    freeze(): SavedSession | undefined;
    /** Goes on after `freeze`. */
    thaw(): void;
}
