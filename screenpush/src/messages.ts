/** The messages between the parts of the extension. */

import type { LinkState } from "../../web/src/dom";
import type { EventName } from "./settings";

/** From a page: something happened there. */
export interface PageEvent {
    kind: "event";
    event: EventName | "pointer";
    /** The pointer as a share of the window, if it is known. */
    pointer?: { x: number; y: number };
}

/** From the menu or the settings: what is to be done. */
export interface Command {
    kind: "command";
    command: "push" | "connect" | "disconnect" | "status";
}

/** The answer to a command, and news for an open menu. */
export interface Status {
    kind: "status";
    state: LinkState;
    /** A sentence about what is wrong and what to do, or "". */
    problem: string;
    /** The last push, in words, or "". */
    last: string;
}
