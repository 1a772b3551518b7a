/** The part of the browsers' interface for extensions (manifest version 3) that Screenpush uses. Firefox has it under this name, too. */

declare namespace chrome {
    interface Event<F extends (...args: never[]) => unknown> {
        addListener(listener: F): void;
    }
    interface Tab {
        id?: number;
        windowId: number;
        active: boolean;
        url?: string;
    }
    interface ChangeInfo {
        status?: string;
        url?: string;
    }
    namespace action {
        const onClicked: Event<(tab: Tab) => void>;
        function setPopup(details: { popup: string }): Promise<void>;
        function openPopup(): Promise<void>;
        function setBadgeText(details: { text: string }): Promise<void>;
        function setBadgeBackgroundColor(details: { color: string }): Promise<void>;
        function setTitle(details: { title: string }): Promise<void>;
    }
    namespace alarms {
        const onAlarm: Event<() => void>;
        function create(name: string, details: { periodInMinutes: number }): Promise<void>;
    }
    namespace contextMenus {
        const onClicked: Event<(info: { menuItemId: string | number; checked?: boolean }) => void>;
        function create(properties: { id: string; title: string; contexts: string[]; type?: "normal" | "checkbox"; checked?: boolean }): void;
        function update(id: string, properties: { checked: boolean }): Promise<void>;
        function removeAll(): Promise<void>;
    }
    namespace idle {
        const onStateChanged: Event<(state: "active" | "idle" | "locked") => void>;
    }
    namespace permissions {
        function contains(permissions: { origins: string[] }): Promise<boolean>;
        function request(permissions: { origins: string[] }): Promise<boolean>;
    }
    namespace runtime {
        const onInstalled: Event<() => void>;
        const onMessage: Event<(message: unknown, sender: { tab?: Tab; frameId?: number }, respond: (answer: unknown) => void) => boolean | void>;
        const onStartup: Event<() => void>;
        function getPlatformInfo(): Promise<unknown>;
        function getURL(path: string): string;
        function openOptionsPage(): Promise<void>;
        function sendMessage(message: unknown): Promise<unknown>;
    }
    namespace scripting {
        interface Registered {
            id: string;
            js: string[];
            matches: string[];
            allFrames: boolean;
            runAt: "document_start";
        }
        function executeScript(injection: { target: { tabId: number; allFrames: boolean }; files: string[] }): Promise<unknown>;
        function getRegisteredContentScripts(filter: { ids: string[] }): Promise<unknown[]>;
        function registerContentScripts(scripts: Registered[]): Promise<void>;
        function unregisterContentScripts(filter: { ids: string[] }): Promise<void>;
    }
    namespace storage {
        interface Area {
            get(key: string): Promise<Record<string, unknown>>;
            set(values: Record<string, unknown>): Promise<void>;
        }
        const local: Area;
        const onChanged: Event<(changes: Record<string, { newValue?: unknown }>, area: string) => void>;
    }
    namespace tabs {
        const onActivated: Event<() => void>;
        const onUpdated: Event<(tabId: number, change: ChangeInfo, tab: Tab) => void>;
        const onZoomChange: Event<() => void>;
        function captureVisibleTab(windowId: number, options: { format: "png" }): Promise<string>;
        function create(properties: { url: string }): Promise<Tab>;
        function query(filter: { active?: boolean; lastFocusedWindow?: boolean; windowId?: number }): Promise<Tab[]>;
    }
    namespace windows {
        const WINDOW_ID_NONE: number;
        const onFocusChanged: Event<(windowId: number) => void>;
        function create(properties: { url: string; type: "popup"; width: number; height: number }): Promise<unknown>;
        function getLastFocused(filter: { windowTypes: string[] }): Promise<{ id: number }>;
    }
}
