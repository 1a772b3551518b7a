/** The publisher's page: shares a tab, a window or a screen, and pushes its pictures. */

import { byId, showLink } from "../../dom";
import { Capture, canCapture } from "../../screenpush/capture";
import { newId } from "../../screenpush/format";
import { linkShower } from "../../screenpush/link";
import { Pusher, type Outcome } from "../../screenpush/pusher";
import { DEFAULTS, addressOf, channelOf, settingsOf, type PushSettings } from "../../screenpush/settings";
import { Throttle } from "../../screenpush/throttle";
import { problemOf, sizeInWords } from "../../screenpush/words";
import { Session } from "../../session";
import { WorkerTimers } from "../../timers";

const timers = new WorkerTimers();
const publisher = { id: newId(), name: "" };
const throttle = new Throttle(timers, DEFAULTS.pushDelay, push);
let settings: PushSettings;
let session: Session | undefined;
let pusher: Pusher | undefined;
let capture: Capture | undefined;
let isStill = false;
let pushed = 0;
let skipped = 0;

async function start(event: SubmitEvent): Promise<void> {
    event.preventDefault();
    if (!readForm() || capture !== undefined) {
        return;
    }
    say("");
    try {
        capture = await Capture.start(byId<HTMLVideoElement>("preview"), settings.pointer, {
            ended: () => stop("The sharing has ended. Press “Share a screen” to choose again."),
            still: showStill,
        });
    } catch (error) {
        say(captureProblem(error));
        return;
    }
    publisher.name = settings.name;
    [pushed, skipped, isStill] = [0, 0, false];
    const ended = (why: string): void => stop(`${why} Press “Share a screen” to try again.`);
    const changed = linkShower(() => session, settings.server, settings.channel, { say, ended });
    session = new Session({ opened, changed }, { url: settings.server, answerMs: ANSWER_MS });
    pusher = new Pusher(session, publisher, settings);
    showSharing(true);
    session.open();
    tick();
    beat();
}

/** Each session begins with a whole picture: its server may have lost the last one. */
function opened(): void {
    pusher?.opened();
    throttle.event();
}

/** A screen has no events, so it is looked at all the time; the throttle says how often. */
function tick(): void {
    if (capture !== undefined) {
        throttle.event();
        timers.set(tick, Math.max(settings.pushDelay, TICK_MIN_MS) / 2);
    }
}

/** Reports to viewers of a screen on which nothing changes that it is still there. */
function beat(): void {
    if (capture !== undefined) {
        timers.set(() => {
            pusher?.tell(isStill ? "still" : "live");
            beat();
        }, BEAT_MS);
    }
}

async function push(isWanted: boolean): Promise<void> {
    const frame = capture?.frame();
    if (frame === undefined || pusher === undefined || session?.state !== "connected") {
        return;
    }
    showOutcome(await pusher.push(frame, isWanted));
}

function stop(why: string): void {
    if (capture === undefined) {
        return;
    }
    pusher?.tell("stopped");
    throttle.stop();
    capture.stop();
    session?.close();
    [capture, pusher, session] = [undefined, undefined, undefined];
    showSharing(false);
    say(why);
}

function showStill(now: boolean): void {
    isStill = now;
    pusher?.tell(now ? "still" : "live");
    say(now ? "No picture comes from the system: the screen is locked, or the window is minimised. Pushing goes on when it is back." : "");
}

function showOutcome(outcome: Outcome): void {
    if (outcome.kind === "pushed") {
        pushed++;
        byId("last").textContent = `${sizeInWords(outcome.bytes)}, ${outcome.what === "whole" ? "whole" : "changed tiles"}, ${new Date().toLocaleTimeString()}`;
    } else if (outcome.kind === "same") {
        skipped++;
    }
    byId("pushed").textContent = String(pushed);
    byId("skipped").textContent = String(skipped);
    if (outcome.kind === "same" || isStill) {
        return;
    }
    const problem = problemOf(outcome, settings.channel);
    say(problem !== "" || pusher?.writesType !== false ? problem : "This browser does not write pictures of that type; it pushes PNG instead.");
}

function captureProblem(error: unknown): string {
    const name = error instanceof DOMException ? error.name : "";
    switch (name) {
        case "NotAllowedError":
            return "Nothing is shared: you chose no screen, or the browser or the system does not allow it. Press “Share a screen” to choose again.";
        case "NotReadableError":
        case "AbortError":
            return "The system does not give this picture to the browser. Allow screen recording in the system’s settings, or choose another window.";
        default:
            return "The browser found nothing to share. Press “Share a screen” to try again.";
    }
}

function showSharing(isSharing: boolean): void {
    byId<HTMLButtonElement>("start").hidden = isSharing;
    byId("stop").hidden = !isSharing;
    byId("now").hidden = !isSharing;
    byId("shown").hidden = !isSharing;
    for (const id of ["server", "channel", "name"]) {
        byId<HTMLInputElement>(id).readOnly = isSharing;
    }
    if (!isSharing) {
        showLink("closed", "");
    }
}

/** Reads the settings; false if one of them is no setting. Stored, so that the next visit begins with them. */
function readForm(): boolean {
    const text = (id: string): string => byId<HTMLInputElement>(id).value;
    const number = (id: string): number => byId<HTMLInputElement>(id).valueAsNumber;
    const isOn = (id: string): boolean => byId<HTMLInputElement>(id).checked;
    const problem = addressOf(text("server")) === undefined ? "The server is an address such as http://127.0.0.1:8080/cometd."
        : channelOf(text("channel")) === undefined ? "The channel is a name such as /demo/screenpush/demo, without * and spaces." : "";
    say(problem);
    const read = settingsOf({
        server: text("server"), channel: text("channel"), name: text("name"), pushDelay: number("push-delay"),
        type: byId<HTMLSelectElement>("type").value, quality: number("quality"), maxWidth: number("max-width"), wholeEvery: number("whole-every"),
        skipUnchanged: isOn("skip-unchanged"), tiles: isOn("tiles"), pointer: isOn("pointer"),
    }, settings ?? defaults());
    if (capture !== undefined && read.pointer !== settings.pointer) {
        capture.showPointer(read.pointer);
    }
    // The connection of a sharing under way stays.
    settings = capture === undefined ? read : { ...read, server: settings.server, channel: settings.channel, name: settings.name };
    throttle.change(settings.pushDelay);
    pusher?.change(settings);
    localStorage.setItem(STORED, JSON.stringify(settings));
    showSettings();
    return problem === "";
}

/** The values that are not in the form itself. */
function showSettings(): void {
    byId("quality-value").textContent = String(settings.quality);
    byId("quality-row").hidden = settings.type === "image/png";
    const query = new URLSearchParams({ channel: settings.channel });
    if (settings.server !== defaults().server) {
        query.set("server", settings.server);
    }
    byId<HTMLAnchorElement>("watch").href = `/demo/screenpush/watch?${query}`;
}

function fillForm(): void {
    for (const [id, value] of [["server", settings.server], ["channel", settings.channel], ["name", settings.name], ["type", settings.type],
        ["push-delay", settings.pushDelay], ["quality", settings.quality], ["max-width", settings.maxWidth], ["whole-every", settings.wholeEvery]] as const) {
        byId<HTMLInputElement>(id).value = String(value);
    }
    for (const [id, value] of [["skip-unchanged", settings.skipUnchanged], ["tiles", settings.tiles], ["pointer", settings.pointer]] as const) {
        byId<HTMLInputElement>(id).checked = value;
    }
    showSettings();
}

function defaults(): PushSettings {
    return { ...DEFAULTS, server: `${location.origin}/cometd` };
}

function stored(): unknown {
    try {
        return JSON.parse(localStorage.getItem(STORED) ?? "{}");
    } catch {
        return {};
    }
}

/** One sentence that says what to do; "" takes it away. */
function say(text: string): void {
    const problem = byId("problem");
    if (problem.textContent !== text) {
        problem.textContent = text;
        problem.hidden = text === "";
    }
}

function begin(): void {
    // A link may name the channel, but never the server that gets the pictures.
    const channel = new URLSearchParams(location.search).get("channel");
    settings = settingsOf(stored(), defaults());
    settings.channel = channelOf(channel) ?? settings.channel;
    fillForm();
    byId("settings").addEventListener("submit", (event) => void start(event));
    byId("settings").addEventListener("change", () => readForm());
    byId("quality").addEventListener("input", () => readForm());
    byId("stop").addEventListener("click", () => stop("You have stopped sharing."));
    byId("now").addEventListener("click", () => throttle.now());
    addEventListener("pagehide", () => stop(""));
    if (!canCapture()) {
        byId<HTMLButtonElement>("start").disabled = true;
        say(isSecureContext ? "This browser cannot share a screen, as on most phones. Open this page in a browser on a computer; watching works everywhere."
            : "Browsers share a screen only with pages over https, or of this very machine. Open this page by its https address, or as localhost.");
    }
}

const STORED = "encke-screenpush";
/** Without any delay the next picture would still wait for this long. */
const TICK_MIN_MS = 40;
/** On a slow line a picture takes long to leave. */
const ANSWER_MS = 30_000;
const BEAT_MS = 15_000;

begin();
