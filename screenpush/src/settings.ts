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

export interface ExtensionSettings extends PushSettings {
    /** True: events push pictures. */
    autoPush: boolean;
    events: Record<EventName, boolean>;
}

export const NAMES = Object.keys(EVENTS) as EventName[];

/** `pointer` is “Track Mouse Pointer” here, which needs auto-push. */
export const EXTENSION_DEFAULTS: ExtensionSettings = {
    ...DEFAULTS,
    pushDelay: 500,
    pointer: false,
    autoPush: false,
    events: Object.fromEntries(NAMES.map((name) => [name, true])) as Record<EventName, boolean>,
};

/** The settings in `stored`, and the defaults for all others. */
export function extensionSettingsOf(stored: unknown): ExtensionSettings {
    const { autoPush, events } = (typeof stored === "object" && stored !== null ? stored : {}) as { autoPush?: unknown; events?: Record<string, unknown> };
    const chosen = NAMES.map((name) => [name, truth(events?.[name]) ?? EXTENSION_DEFAULTS.events[name]]);
    return { ...settingsOf(stored, EXTENSION_DEFAULTS), autoPush: truth(autoPush) ?? EXTENSION_DEFAULTS.autoPush, events: Object.fromEntries(chosen) as ExtensionSettings["events"] };
}

export async function load(): Promise<ExtensionSettings> {
    return extensionSettingsOf((await chrome.storage.local.get(KEY))[KEY]);
}

/** Stores these settings beside the others. */
export async function save(changes: Partial<ExtensionSettings>): Promise<void> {
    await chrome.storage.local.set({ [KEY]: { ...(await load()), ...changes } });
}

/** Calls `changed` whenever somebody has stored settings. */
export function whenChanged(changed: (settings: ExtensionSettings) => void): void {
    chrome.storage.onChanged.addListener((changes) => {
        if (changes[KEY] !== undefined) {
            changed(extensionSettingsOf(changes[KEY].newValue));
        }
    });
}

const KEY = "options";
