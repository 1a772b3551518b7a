/** The connection in words: how it stands, and what to do when it breaks. The pages of Screenpush and slides share it. */

import { showLink, type LinkState } from "../dom";
import type { Session } from "../session";
import { LOST, refusalInWords, unreachableInWords } from "./words";

/** The part of a page that shows the sentences. */
export interface Shown {
    /** Shows a sentence; "" removes it. */
    say(text: string): void;
    /** The session has ended, for this reason. */
    ended(why: string): void;
}

/** A listener for the states of one session with this server and channel. `session` is undefined after the page has left it. */
export function linkShower(session: () => Session | undefined, server: string, channel: string, page: Shown): (state: LinkState) => void {
    let wasConnected = false;
    return (state) => {
        const current = session();
        if (current === undefined) {
            return;
        }
        showLink(state, current.transport);
        if (state === "reconnecting") {
            page.say(wasConnected ? LOST : unreachableInWords(server, origin));
        } else if (state === "connected") {
            wasConnected = true;
            page.say("");
        } else if (state === "ended") {
            page.ended(current.refusal === "" ? unreachableInWords(server, origin) : `The connection has ended: ${refusalInWords(current.refusal, channel)}`);
            showLink(state, "");
        }
    };
}
