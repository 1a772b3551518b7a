/** The viewer's page: shows what others push. It also works from another origin, and from a file on disk. */

import type { SubscriptionHandle } from "cometd";
import { byId, element, showLink, toggleFullScreen } from "../../dom";
import { Lag } from "../../lag";
import type { Positions } from "../../replay";
import { Session } from "../../session";
import { linkShower } from "../../screenpush/link";
import { DEFAULTS, addressOf, channelOf } from "../../screenpush/settings";
import { Viewer, type Screen } from "../../screenpush/viewer";
import { refusalInWords, sizeInWords } from "../../screenpush/words";
import { WorkerTimers, plainTimers } from "../../timers";

/** True in the page that is one file (viewer.mjs): it has no server, and loads no worker. */
const isAlone = document.documentElement.dataset["alone"] !== undefined;
const timers = isAlone ? plainTimers : new WorkerTimers();
const lag = new Lag();
let session: Session | undefined;
let viewer: Viewer | undefined;
/** The positions of the channels, which the session keeps up to date. */
let positions: Positions = {};
const subscriptions = new Map<string, SubscriptionHandle>();
let server = "";
let channel = "";
/** The publisher whose picture is shown. */
let selected: string | undefined;
/** True if the visitor has chosen it. */
let isChosen = false;
/** The delays of the last pictures, in milliseconds. */
let delays: number[] = [];
/** The number of pictures of the publisher that `delays` and `times` know. */
let counted = 0;
/** The times of the last pictures, by this page's clock. */
let times: number[] = [];

function connect(event?: SubmitEvent): void {
    event?.preventDefault();
    if (session !== undefined) {
        leave();
        return;
    }
    const asked = { server: addressOf(byId<HTMLInputElement>("server").value), channel: channelOf(byId<HTMLInputElement>("channel").value) };
    if (asked.server === undefined || asked.channel === undefined) {
        say(asked.server === undefined ? "The server is an address such as http://127.0.0.1:8080/cometd."
            : "The channel is a name such as /demo/screenpush/demo, without * and spaces.");
        return;
    }
    ({ server, channel } = asked as { server: string; channel: string });
    say("");
    [selected, isChosen, delays, times] = [undefined, false, [], []];
    viewer = new Viewer(channel, showScreen);
    positions = Object.fromEntries(viewer.channels.map((channel) => [channel, ALL_RETAINED]));
    const ended = (why: string): void => {
        leave();
        say(`${why} Press “Connect” to try again.`);
    };
    const changed = linkShower(() => session, server, channel, { say, ended });
    session = new Session({ opened, changed }, { url: server, positions, timers, answerMs: ANSWER_MS });
    showConnected(true);
    showWaiting();
    session.open();
}

function leave(): void {
    session?.close();
    [session, viewer] = [undefined, undefined];
    showConnected(false);
    showLink("closed", "");
    byId("stage").replaceChildren();
    byId("publishers").replaceChildren();
    byId("waiting").hidden = false;
    byId("waiting").textContent = "Press “Connect” to watch again.";
    byId("notice").hidden = true;
}

function opened(): void {
    lag.reset();
    viewer?.channels.forEach(subscribe);
}

function subscribe(name: string): void {
    subscriptions.set(name, session!.subscribe(name, receive, (error) => {
        if (session === undefined) {
            return;
        }
        leave();
        say(`Not connected: ${refusalInWords(error, channel)}`);
    }));
}

function receive(data: unknown, from: string): void {
    const message = viewer?.receive(data, from);
    if (message === undefined || message.kind === "broken" || message.sent === undefined || session === undefined) {
        return;
    }
    // On a line too slow for the stream pictures wait on the way. The server then discards those that wait, and sends the last one.
    if (lag.isBehind(session.now() - message.sent, Date.now())) {
        subscriptions.forEach((subscription, name) => subscriptions.set(name, session!.resubscribe(subscription)));
        byId("skipped").hidden = false;
    }
}

/** Something of a publisher has changed: its picture, its state, or the reason why there is none. */
function showScreen(screen: Screen): void {
    if (viewer === undefined || viewer.screens.get(screen.id) !== screen) {
        return;
    }
    follow(screen);
    showPublishers();
    if (screen.id === selected) {
        showPicture(screen);
    }
}

/** Chooses the publisher to show, unless the visitor has: the first one, and after its end the next one that is live. */
function follow(screen: Screen): void {
    const shown = selected === undefined ? undefined : viewer?.screens.get(selected);
    if (shown === undefined || (!isChosen && shown !== screen && shown.state === "stopped" && screen.state !== "stopped")) {
        select(screen, false);
    }
}

function select(screen: Screen, byVisitor: boolean): void {
    selected = screen.id;
    isChosen = byVisitor;
    [delays, times, counted] = [[], [], 0];
    byId("stage").replaceChildren(screen.canvas);
    screen.canvas.setAttribute("role", "img");
    showPublishers();
    showPicture(screen);
}

function showPicture(screen: Screen): void {
    const { width, height } = screen.canvas;
    const hasPicture = screen.pictures > 0;
    byId("waiting").hidden = hasPicture || screen.broken !== "";
    screen.canvas.hidden = !hasPicture;
    screen.canvas.setAttribute("aria-label", `The screen of ${titleOf(screen)}`);
    byId("broken").hidden = screen.broken === "";
    byId("broken").textContent = screen.broken === "" ? "" : `${screen.broken} ${hasPicture ? "The picture before it is shown." : "The next good one is shown."}`;
    byId("size").textContent = hasPicture ? `${width} × ${height}` : "–";
    byId("bytes").textContent = hasPicture ? `${sizeInWords(screen.bytes)} ${FORMATS[screen.type] ?? ""}` : "–";
    if (screen.pictures !== counted && session !== undefined) {
        const now = Date.now();
        times = [...times.filter((time) => now - time < RATE_WINDOW_MS), now];
        // The first picture may be a stored one, whose age is no delay.
        if (screen.pictures > 1 && counted > 0 && screen.sent !== undefined) {
            delays = [...delays, Math.max(0, session.now() - screen.sent)].slice(-DELAYS_MAX);
        }
        counted = screen.pictures;
    }
    byId("delay").textContent = delays.length === 0 ? "–" : inWords(delays.at(-1)!);
    byId("stage").dataset["pictures"] = String(screen.pictures);
    byId("stage").dataset["delays"] = delays.map((delay) => Math.round(delay)).join(" ");
    showPublisherState(screen);
}

/** A sentence about the state of the publisher. */
function showPublisherState(screen: Screen): void {
    const name = titleOf(screen);
    const silentMs = Date.now() - screen.receivedAt;
    const text = screen.state === "stopped" ? `${name} has stopped sharing. The last picture is shown; the next one comes by itself.`
        : screen.state === "still" ? `${name}’s screen is locked or out of sight. The last picture is shown.`
        : silentMs > SILENT_MS && screen.id !== "" ? `No sign of ${name} for ${Math.round(silentMs / 1_000)} s. The last picture is shown; the next one comes by itself.` : "";
    byId("notice").textContent = text;
    byId("notice").hidden = text === "";
    const perSecond = times.filter((time) => Date.now() - time < RATE_WINDOW_MS).length / (RATE_WINDOW_MS / 1_000);
    byId("rate").textContent = `${perSecond.toFixed(1)}/s`;
}

/** The names of all publishers, if there are several: each is a button. */
function showPublishers(): void {
    const screens = [...(viewer?.screens.values() ?? [])];
    const live = screens.filter((screen) => screen.state !== "stopped" || screen.id === selected);
    const list = byId("publishers");
    list.hidden = live.length === 0;
    byId("several").hidden = live.filter((screen) => screen.state !== "stopped").length < 2;
    const items = live.map((screen) => `${screen.id} ${screen.state} ${titleOf(screen)} ${screen.id === selected}`).join("\n");
    if (list.dataset["items"] === items) {
        return;
    }
    list.dataset["items"] = items;
    list.replaceChildren(...live.map((screen) => {
        const button = element("button", "publisher", titleOf(screen)) as HTMLButtonElement;
        button.type = "button";
        button.setAttribute("aria-pressed", String(screen.id === selected));
        button.dataset["state"] = screen.state;
        button.addEventListener("click", () => select(screen, true));
        const item = document.createElement("li");
        item.append(button);
        return item;
    }));
}

function titleOf(screen: Screen): string {
    return screen.name || (screen.id === "" ? "a program" : `publisher ${screen.id}`);
}

function showConnected(isConnected: boolean): void {
    byId("connect").textContent = isConnected ? "Disconnect" : "Connect";
    byId("connect").classList.toggle("small", isConnected);
    byId("connect").classList.toggle("button", !isConnected);
    for (const id of ["server", "channel"]) {
        byId<HTMLInputElement>(id).readOnly = isConnected;
    }
    byId("facts").hidden = !isConnected;
    byId("full").hidden = !isConnected;
}

function showWaiting(): void {
    byId("waiting").hidden = false;
    byId("waiting").textContent = `Nobody publishes on ${channel} yet. The picture comes by itself.`;
}

/** Looks once a second if a publisher has become silent. */
function watchSilence(): void {
    const screen = selected === undefined ? undefined : viewer?.screens.get(selected);
    if (screen !== undefined && screen.pictures > 0) {
        showPublisherState(screen);
    }
    timers.set(watchSilence, 1_000);
}

function fullScreen(): void {
    toggleFullScreen(byId("frame"), () => say("This browser has no full screen. Turn the phone, or use the browser’s own zoom."));
}

function say(text: string): void {
    byId("problem").textContent = text;
    byId("problem").hidden = text === "";
}

function inWords(ms: number): string {
    return ms < 10_000 ? `${Math.round(ms)} ms` : ms < 120_000 ? `${Math.round(ms / 1_000)} s` : `${Math.round(ms / 60_000)} min`;
}

function begin(): void {
    const query = new URLSearchParams(location.search);
    const own = isAlone ? DEFAULTS.server : `${location.origin}/cometd`;
    byId<HTMLInputElement>("server").value = addressOf(query.get("server")) ?? own;
    byId<HTMLInputElement>("channel").value = channelOf(query.get("channel")) ?? DEFAULTS.channel;
    byId("choice").addEventListener("submit", connect);
    byId("full").addEventListener("click", fullScreen);
    byId("stage").addEventListener("dblclick", fullScreen);
    addEventListener("keydown", (event) => {
        const isTyping = event.target instanceof HTMLInputElement;
        if (event.key === "f" && !isTyping && !event.ctrlKey && !event.metaKey && session !== undefined) {
            fullScreen();
        }
    });
    addEventListener("pagehide", () => session?.close());
    watchSilence();
    connect();
}

const ALL_RETAINED = -2;
/** On a slow line a reply comes behind the pictures that are on their way. */
const ANSWER_MS = 30_000;
const FORMATS: Record<string, string> = { "image/jpeg": "JPEG", "image/png": "PNG", "image/webp": "WebP" };
const RATE_WINDOW_MS = 3_000;
const DELAYS_MAX = 500;
/** A publisher says every 15 s that it is there. */
const SILENT_MS = 40_000;

begin();
