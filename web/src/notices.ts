/** Sentences that say what is wrong and what to do, in the page's #notices. */

import { byId, element, type LinkState } from "./dom";

/** Shows a sentence, or with `undefined` removes it. A key has one sentence at a time. */
export function notice(key: string, ...words: (string | Node)[]): void {
    const list = byId("notices");
    const shown = list.querySelector<HTMLElement>(`[data-key="${key}"]`);
    if (words.length === 0) {
        shown?.remove();
        return;
    }
    const made = element("p", "warning");
    made.dataset.key = key;
    made.append(...words);
    if (shown === null) {
        list.append(made);
    } else if (shown.textContent !== made.textContent) {
        shown.replaceWith(made);
    }
}

/** Says what a session that is not connected means for the page: `keeps` is what stays on it. `open` starts a new session. */
export function linkNotice(state: LinkState, keeps: string, open: () => void): void {
    if (state === "reconnecting") {
        notice("link", `The connection to the server is lost. The page tries again by itself; ${keeps}`);
    } else if (state === "ended") {
        notice("link", "The server has ended the session. ", action("Connect again", open));
    } else {
        notice("link");
    }
}

/** A button inside of a sentence. */
export function action(words: string, run: () => void): HTMLElement {
    const button = element("button", "small", words);
    button.setAttribute("type", "button");
    button.addEventListener("click", run);
    return button;
}
