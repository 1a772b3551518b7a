/** The settings of the extension: those of every publisher, and those of a browser. */

import { DEFAULTS, settingsOf, truth, type PushSettings } from "../../web/src/screenpush/settings";

/** The events that push a picture while auto-push is on. */
export const EVENTS = {
    navigation: "A page is loaded",
    click: "A click",
    typing: "Typing",
    scroll: "Scrolling",
    resize: "The window changes its size",
    tabs: "Another tab or window",
    changes: "The content of the page changes",
} as const;
export type EventName = keyof typeof EVENTS;

export interface Options extends PushSettings {
    /** True: events push pictures. */
    autoPush: boolean;
    events: Record<EventName, boolean>;
}

export const NAMES = Object.keys(EVENTS) as EventName[];

/** `pointer` is “Track Mouse Pointer” here, which needs auto-push. */
export const OPTIONS: Options = {
    ...DEFAULTS,
    pushDelay: 500,
    pointer: false,
    autoPush: false,
    events: Object.fromEntries(NAMES.map((name) => [name, true])) as Record<EventName, boolean>,
};

/** The options in `stored`, and the defaults for all others. */
export function optionsOf(stored: unknown): Options {
    const { autoPush, events } = (typeof stored === "object" && stored !== null ? stored : {}) as { autoPush?: unknown; events?: Record<string, unknown> };
    const chosen = NAMES.map((name) => [name, truth(events?.[name]) ?? OPTIONS.events[name]]);
    return { ...settingsOf(stored, OPTIONS), autoPush: truth(autoPush) ?? OPTIONS.autoPush, events: Object.fromEntries(chosen) as Options["events"] };
}

export async function load(): Promise<Options> {
    return optionsOf((await chrome.storage.local.get(KEY))[KEY]);
}

/** Stores these options beside the others. */
export async function save(changes: Partial<Options>): Promise<void> {
    await chrome.storage.local.set({ [KEY]: { ...(await load()), ...changes } });
}

/** Calls `changed` whenever somebody has stored options. */
export function whenChanged(changed: (options: Options) => void): void {
    chrome.storage.onChanged.addListener((changes) => {
        if (changes[KEY] !== undefined) {
            changed(optionsOf(changes[KEY].newValue));
        }
    });
}

const KEY = "options";
