/** The viewers' page of a slide show: follows the presenter, looks back, leaves and comes again. */

import type { SubscriptionHandle } from "cometd";
import { byId, showLink, toggleFullScreen } from "../../dom";
import { Lag } from "../../lag";
import type { Positions } from "../../replay";
import { Unreadable } from "../../screenpush/format";
import { linkShower } from "../../screenpush/link";
import { decoded } from "../../screenpush/viewer";
import { refusalInWords } from "../../screenpush/words";
import { Session } from "../../session";
import { nowChannel, roomOf, shownChannel, slideOf, type Slide } from "./protocol";

const lag = new Lag();
let positions: Positions = {};
let session: Session | undefined;
let room = "";
let following: SubscriptionHandle | undefined;
/** The slide that the presenter shows. */
let now: Slide | undefined;
/** The number of an earlier slide that the visitor looks at; undefined while following. */
let looking: number | undefined;
/** Slides of this deck that have come, by their numbers. */
let slides = new Map<number, Slide>();
/** The last slide to paint: an older one that is still being decoded is given up. */
let latestPaint = 0;

function join(event?: SubmitEvent): void {
    event?.preventDefault();
    if (session !== undefined) {
        leave("You have left. Join again, and the slide of now is here at once.");
        return;
    }
    const wanted = roomOf(byId<HTMLInputElement>("room").value);
    if (wanted === undefined) {
        say("A room has a name of letters, digits and hyphens, at most 40.");
        return;
    }
    [room, now, looking, slides] = [wanted, undefined, undefined, new Map()];
    positions = { [nowChannel(room)]: ALL_RETAINED };
    say("");
    const ended = (why: string): void => leave(`${why} Press “Join” to try again.`);
    const changed = linkShower(() => session, `${location.origin}/cometd`, nowChannel(room), { say, ended });
    session = new Session({ opened, changed }, { positions, answerMs: ANSWER_MS });
    byId("join").textContent = "Leave";
    byId<HTMLInputElement>("room").readOnly = true;
    byId("waiting").textContent = `Nobody presents in the room “${room}” yet. The first slide comes by itself.`;
    session.open();
}

function leave(why: string): void {
    session?.close();
    session = undefined;
    byId("join").textContent = "Join";
    byId<HTMLInputElement>("room").readOnly = false;
    showLink("closed", "");
    say(why);
}

function opened(): void {
    lag.reset();
    following = session?.subscribe(nowChannel(room), receive, (error) => leave(`Not joined: ${refusalInWords(error, nowChannel(room))}`));
    if (looking !== undefined && !slides.has(looking)) {
        ask(looking);
    }
}

function receive(data: unknown): void {
    let slide;
    try {
        slide = slideOf(data);
    } catch (error) {
        broken(error);
        return;
    }
    const isOther = now?.deck !== slide.deck;
    if (isOther) {
        slides = new Map();
        looking = undefined;
    }
    now = slide;
    store(slide);
    show();
    const { sent } = data as { sent?: unknown };
    // On a slow line the slides that wait on the way are skipped.
    if (typeof sent === "number" && session !== undefined && following !== undefined && lag.isBehind(session.now() - sent, Date.now())) {
        following = session.resubscribe(following);
    }
}

/** Asks for an earlier slide: the history of its channel has it. */
function ask(number: number): void {
    if (session === undefined || now === undefined || session.state !== "connected") {
        return;
    }
    const deck = now.deck;
    const channel = shownChannel(room, deck, number);
    positions[channel] = ALL_RETAINED;
    let isThere = false;
    const done = (): void => {
        session?.unsubscribe(subscription);
        delete positions[channel];
    };
    const subscription = session.subscribe(channel, (data) => {
        isThere = true;
        done();
        try {
            const slide = slideOf(data);
            if (slide.deck === now?.deck && slide.number === number) {
                store(slide);
                show();
            }
        } catch (error) {
            broken(error);
        }
    });
    setTimeout(() => {
        if (!isThere && now?.deck === deck && looking === number) {
            say(`Slide ${number} is not stored any more. Go on to a later one, or follow again.`);
        }
    }, ANSWER_MS / 3);
}

/** Stores slides that have come, the latest ones. */
function store(slide: Slide): void {
    slides.delete(slide.number);
    slides.set(slide.number, slide);
    for (const number of slides.keys()) {
        if (slides.size <= STORED_MAX) {
            break;
        }
        slides.delete(number);
    }
}

function look(step: number): void {
    if (now === undefined) {
        return;
    }
    const all = [...new Set([...now.shown, now.number])].sort((one, other) => one - other);
    const at = all.indexOf(looking ?? now.number);
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    if (next === undefined || next === (looking ?? now.number)) {
        return;
    }
    looking = next === now.number ? undefined : next;
    say("");
    if (!slides.has(next)) {
        ask(next);
    }
    show();
}

function follow(): void {
    looking = undefined;
    say("");
    show();
}

/** Shows the slide that the visitor looks at, or the one of now. */
function show(): void {
    if (now === undefined) {
        return;
    }
    const number = looking ?? now.number;
    const slide = looking === undefined ? now : slides.get(looking);
    const by = now.name === "" ? "" : ` · ${now.name}`;
    byId("position").textContent = `Slide ${number} of ${now.of}${by}`;
    byId("live").textContent = looking !== undefined ? `${now.name || "The presenter"} shows slide ${now.number}.`
        : now.state === "ended" ? `${now.name || "The presenter"} has stopped. The last slide stays; the next one comes by itself.` : "";
    byId("follow").hidden = looking === undefined;
    const all = [...now.shown, now.number];
    byId<HTMLButtonElement>("back").disabled = number <= Math.min(...all);
    byId<HTMLButtonElement>("next").disabled = number >= Math.max(...all);
    byId("moves").hidden = false;
    byId("notes").textContent = slide?.notes ?? "";
    byId("notes-part").hidden = (slide?.notes ?? "") === "";
    if (slide !== undefined) {
        void paint(slide);
    }
}

async function paint(slide: Slide): Promise<void> {
    const mine = ++latestPaint;
    try {
        const bitmap = await decoded(slide.picture);
        if (mine === latestPaint) {
            const canvas = byId<HTMLCanvasElement>("slide");
            [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
            canvas.getContext("2d")!.drawImage(bitmap, 0, 0);
            canvas.hidden = false;
            canvas.setAttribute("aria-label", `Slide ${slide.number} of ${slide.of}`);
            canvas.dataset["number"] = String(slide.number);
            byId("waiting").hidden = true;
        }
        bitmap.close();
    } catch (error) {
        broken(error);
    }
}

function broken(error: unknown): void {
    say(`${error instanceof Unreadable ? error.message : "The slide is broken: the browser cannot decode it."} The next good one is shown.`);
}

function fullScreen(): void {
    toggleFullScreen(byId("frame"), () => say("This browser has no full screen. Turn the phone, or use the browser’s own zoom."));
}

function say(text: string): void {
    byId("problem").textContent = text;
    byId("problem").hidden = text === "";
}

function onKey(event: KeyboardEvent): void {
    const isTyping = event.target instanceof HTMLInputElement;
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) {
        return;
    }
    const step = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (step !== undefined) {
        look(step);
    } else if (event.key === "f") {
        fullScreen();
    } else if (event.key === "End") {
        follow();
    } else {
        return;
    }
    event.preventDefault();
}

function begin(): void {
    byId<HTMLInputElement>("room").value = roomOf(new URLSearchParams(location.search).get("room") ?? "") ?? "demo";
    byId("choice").addEventListener("submit", join);
    byId("back").addEventListener("click", () => look(-1));
    byId("next").addEventListener("click", () => look(1));
    byId("follow").addEventListener("click", follow);
    byId("full").addEventListener("click", fullScreen);
    addEventListener("keydown", onKey);
    addEventListener("pagehide", () => session?.close());
    join();
}

const ALL_RETAINED = -2;
/** On a slow line a reply comes behind the slides that are on their way. */
const ANSWER_MS = 30_000;
/** Slides that need not be asked for again. */
const STORED_MAX = 30;

begin();
