/** The mark of the toolbar button: how the connection stands, and if something is wrong. */

import type { LinkState } from "../../web/src/dom";

const MARKS: Record<LinkState, { text: string; colour: string; words: string }> = {
    closed: { text: "–", colour: "#5f6b73", words: "not connected" },
    connecting: { text: "…", colour: "#97560a", words: "connecting" },
    connected: { text: "✓", colour: "#0b7568", words: "connected" },
    reconnecting: { text: "…", colour: "#97560a", words: "connection lost, trying again" },
    ended: { text: "×", colour: "#b3261e", words: "disconnected" },
};

/** Shows the state. `problem` is a sentence, or "". */
export function show(state: LinkState, problem: string): void {
    const { text, colour, words } = MARKS[state];
    const isWrong = problem !== "" && state === "connected";
    void chrome.action.setBadgeText({ text: isWrong ? "!" : text });
    void chrome.action.setBadgeBackgroundColor({ color: isWrong ? "#b3261e" : colour });
    void chrome.action.setTitle({ title: `Screenpush: ${words}${problem === "" ? "" : `. ${problem}`}` });
}
