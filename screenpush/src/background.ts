/** The extension itself: its toolbar button, its connection, its pushes. */

import { newId } from "../../web/src/screenpush/format";
import { Pusher, type Outcome } from "../../web/src/screenpush/pusher";
import { Throttle } from "../../web/src/screenpush/throttle";
import { LOST, problemOf, refusalInWords, sizeInWords } from "../../web/src/screenpush/words";
import type { LinkState } from "../../web/src/dom";
import { Session } from "../../web/src/session";
import { plainTimers } from "../../web/src/timers";
import type { Command, PageEvent, Status } from "./messages";
import { load, save, whenChanged, type ExtensionSettings } from "./settings";
import { show } from "./mark";

const SCRIPT = "events";
const DOUBLE_CLICK_MS = 300;
const CAPTURE_PAUSE_MS = 500;
const CONNECT_WAIT_MS = 5_000;
const STEP_MS = 50;
const ANSWER_MS = 30_000;
const AWAKE_MS = 20_000;

let settings: ExtensionSettings;
let session: Session | undefined;
let pusher: Pusher | undefined;
let status: Status = { kind: "status", state: "closed", problem: "", last: "" };
let pointer: { x: number; y: number } | undefined;
let isLocked = false;
let wasConnected = false;
/** The end of the time in which a second click makes a double click. */
let clicked: ReturnType<typeof setTimeout> | undefined;
const throttle = new Throttle(plainTimers, 0, push);
const ready = begin();

async function begin(): Promise<void> {
    settings = await load();
    apply(settings);
    await watchPages();
    await chrome.alarms.create("awake", { periodInMinutes: 0.5 });
}

/** Something has happened that may have changed the picture. */
function event(): void {
    if (settings.autoPush && !isLocked) {
        connect();
        throttle.event();
    }
}

/** Connects, if it is not connected or connecting. */
function connect(): void {
    if (session !== undefined) {
        return;
    }
    wasConnected = false;
    session = new Session({ opened: () => void opened(), changed }, { url: settings.server, timers: plainTimers, hasHttp: false, answerMs: ANSWER_MS });
    session.open();
}

async function opened(): Promise<void> {
    const id = await identity();
    pusher = session === undefined ? undefined : new Pusher(session, { id, name: settings.name }, settings);
    pusher?.opened();
    if (settings.autoPush) {
        throttle.event();
    }
}

function disconnect(): void {
    pusher?.tell("stopped");
    throttle.stop();
    session?.close();
    [session, pusher] = [undefined, undefined];
    report({ state: "closed", problem: "" });
}

function changed(state: LinkState): void {
    if (state === "connected") {
        wasConnected = true;
        report({ state, problem: "" });
        // Changes from before are not pushed yet.
        if (settings.autoPush) {
            throttle.event();
        }
    } else if (state === "reconnecting") {
        report({ state, problem: wasConnected ? LOST : `No Bayeux server answers at ${settings.server} yet. It is tried again.` });
        void diagnose();
    } else if (state === "ended") {
        const refusal = session?.refusal ?? "";
        [session, pusher] = [undefined, undefined];
        report({ state, problem: refusal === "" ? `No Bayeux server answers at ${settings.server}. Choose “Connect” to try again.` : `The connection has ended: ${refusalInWords(refusal, settings.channel)}` });
        void diagnose();
    } else {
        report({ state });
    }
}

/** A WebSocket does not say why it was refused; a request does. */
async function diagnose(): Promise<void> {
    try {
        const reply = await fetch(settings.server, { method: "POST", body: "[]", headers: { "content-type": "application/json" }, credentials: "omit" });
        if (reply.status === 403 && status.state !== "connected") {
            report({ problem: `The server does not let this extension in. Add its origin to the server’s settings: allowed_origins = ["${location.origin}"]` });
        }
    } catch {
        // It does not answer at all, as the status says already.
    }
}

/** Pushes the tab that is in front. */
async function push(isWanted: boolean): Promise<void> {
    await ready;
    if (isWanted) {
        connect();
        await untilConnected();
    }
    if (pusher === undefined || session?.state !== "connected") {
        return;
    }
    const image = await capture();
    if (image === undefined) {
        return;
    }
    const at = settings.pointer && pointer !== undefined ? { x: pointer.x * image.width, y: pointer.y * image.height } : undefined;
    const outcome = await pusher.push({ image, width: image.width, height: image.height, pointer: at }, isWanted);
    image.close();
    showOutcome(outcome);
}

/** The picture of the tab in front; undefined if the browser gives none. */
async function capture(): Promise<ImageBitmap | undefined> {
    try {
        const { id } = await chrome.windows.getLastFocused({ windowTypes: ["normal"] });
        const url = await chrome.tabs.captureVisibleTab(id, { format: "png" });
        return await createImageBitmap(await (await fetch(url)).blob());
    } catch (error) {
        const words = String((error as Error).message ?? error);
        if (words.includes("MAX_CAPTURE_VISIBLE_TAB_CALLS_PER_SECOND")) {
            // Chromium gives two pictures a second. The next event gets one again.
            plainTimers.set(() => throttle.event(), CAPTURE_PAUSE_MS);
        } else if (!await chrome.permissions.contains({ origins: ["<all_urls>"] })) {
            report({ problem: "The browser has not allowed the extension to see pages. Open its settings and choose “Allow on all pages”." });
        } else {
            report({ problem: "The browser gives no picture of this page: its own pages and its store are excluded. Go to another page." });
        }
        return undefined;
    }
}

function showOutcome(outcome: Outcome): void {
    if (outcome.kind === "same") {
        return;
    }
    const last = outcome.kind === "pushed" ? `${sizeInWords(outcome.bytes)}, ${outcome.what === "whole" ? "whole" : "changed tiles"}, ${new Date().toLocaleTimeString()}` : status.last;
    report({ problem: problemOf(outcome, settings.channel), last });
}

/** Waits until there is a connection, or until it is clear that there will be none soon. */
async function untilConnected(): Promise<void> {
    for (let waited = 0; waited < CONNECT_WAIT_MS && (pusher === undefined || session?.state !== "connected"); waited += STEP_MS) {
        await new Promise((resolve) => setTimeout(resolve, STEP_MS));
    }
}

/** Shows the state on the button, and to an open menu. */
function report(news: Partial<Status>): void {
    status = { ...status, ...news };
    show(status.state, status.problem);
    chrome.runtime.sendMessage(status).catch(() => undefined);
}

/** New settings, from the settings page, the menus or the start. */
function apply(next: ExtensionSettings): void {
    const isOther = settings.server !== next.server || settings.channel !== next.channel || settings.name !== next.name;
    if (isOther && session !== undefined) {
        disconnect();
    }
    settings = next;
    throttle.change(next.pushDelay);
    pusher?.change(next);
    void chrome.contextMenus.update("auto", { checked: next.autoPush }).catch(() => undefined);
    void chrome.contextMenus.update("pointer", { checked: next.pointer }).catch(() => undefined);
    if (next.autoPush) {
        connect();
    }
}

/** Pages report their events only while auto-push is on. */
async function watchPages(): Promise<void> {
    const isWatching = (await chrome.scripting.getRegisteredContentScripts({ ids: [SCRIPT] })).length > 0;
    if (!settings.autoPush) {
        if (isWatching) {
            await chrome.scripting.unregisterContentScripts({ ids: [SCRIPT] });
        }
        return;
    }
    if (!isWatching) {
        const script = { id: SCRIPT, js: ["content.js"], matches: ["<all_urls>"], allFrames: true, runAt: "document_start" } as const;
        await chrome.scripting.registerContentScripts([{ ...script, js: [...script.js], matches: [...script.matches] }]).catch(() => undefined);
    }
    for (const { id } of await chrome.tabs.query({})) {
        if (id !== undefined) {
            // Pages of the browser itself take no scripts.
            await chrome.scripting.executeScript({ target: { tabId: id, allFrames: true }, files: ["content.js"] }).catch(() => undefined);
        }
    }
}

/** The id of this publisher, the same as long as the browser has the extension. */
async function identity(): Promise<string> {
    const { id } = await chrome.storage.local.get("id");
    if (typeof id === "string") {
        return id;
    }
    const made = newId();
    await chrome.storage.local.set({ id: made });
    return made;
}

/** One click opens the menu, two push. */
function onClick(): void {
    if (clicked !== undefined) {
        clearTimeout(clicked);
        clicked = undefined;
        throttle.now();
        return;
    }
    clicked = setTimeout(() => {
        clicked = undefined;
        void openMenu();
    }, DOUBLE_CLICK_MS);
}

async function openMenu(): Promise<void> {
    try {
        await chrome.action.setPopup({ popup: "menu.html" });
        await chrome.action.openPopup();
    } catch {
        // A browser that opens the menu for clicks only shows it in a small window.
        await chrome.windows.create({ url: chrome.runtime.getURL("menu.html"), type: "popup", width: 360, height: 430 });
    } finally {
        await chrome.action.setPopup({ popup: "" });
    }
}

async function onCommand({ command }: Command): Promise<Status> {
    await ready;
    if (command === "push") {
        throttle.now();
    } else if (command === "connect") {
        connect();
    } else if (command === "disconnect") {
        await save({ autoPush: false });
        disconnect();
    }
    return status;
}

chrome.action.onClicked.addListener(onClick);
chrome.contextMenus.onClicked.addListener(({ menuItemId, checked }) => {
    if (menuItemId === "push") {
        throttle.now();
    } else {
        void save(menuItemId === "auto" ? { autoPush: checked === true } : { pointer: checked === true });
    }
});
chrome.runtime.onInstalled.addListener(() => void ready.then(async () => {
    await chrome.contextMenus.removeAll();
    chrome.contextMenus.create({ id: "push", title: "Push current screen", contexts: ["action"] });
    chrome.contextMenus.create({ id: "auto", title: "Auto-push screen", contexts: ["action"], type: "checkbox", checked: settings.autoPush });
    chrome.contextMenus.create({ id: "pointer", title: "Track mouse pointer", contexts: ["action"], type: "checkbox", checked: settings.pointer });
}));
chrome.runtime.onStartup.addListener(() => void ready);
chrome.runtime.onMessage.addListener((message, { tab }, respond) => {
    const received = message as PageEvent | Command | Status;
    if (received.kind === "command") {
        void onCommand(received).then(respond);
        return true;
    }
    if (received.kind === "event" && tab?.active === true) {
        pointer = received.pointer ?? pointer;
        void ready.then(event);
    }
    return false;
});
chrome.tabs.onActivated.addListener(() => void ready.then(() => settings.events.tabs && event()));
chrome.tabs.onZoomChange.addListener(() => void ready.then(() => settings.events.resize && event()));
chrome.tabs.onUpdated.addListener((_, change, tab) => {
    if (tab.active && (change.status === "complete" || change.url !== undefined)) {
        void ready.then(() => settings.events.navigation && event());
    }
});
chrome.windows.onFocusChanged.addListener((id) => {
    if (id !== chrome.windows.WINDOW_ID_NONE) {
        void ready.then(() => settings.events.tabs && event());
    }
});
chrome.idle.onStateChanged.addListener((state) => void ready.then(() => {
    isLocked = state === "locked";
    if (isLocked) {
        pusher?.tell("still");
        report({ problem: "The screen is locked: nothing is pushed until it is unlocked." });
    } else {
        report({ problem: "" });
        event();
    }
}));
// The browser ends an extension that does nothing. As long as it is connected, it does something; after that it begins again here.
chrome.alarms.onAlarm.addListener(() => void ready.then(() => {
    if (settings.autoPush) {
        connect();
    }
    if (session?.state === "connected" && !isLocked) {
        pusher?.tell("live");
    }
}));
setInterval(() => session !== undefined && void chrome.runtime.getPlatformInfo(), AWAKE_MS);
whenChanged((next) => void ready.then(async () => {
    apply(next);
    await watchPages();
}));
