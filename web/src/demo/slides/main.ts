/** The presenter's page: chooses pictures or a PDF, and pushes one slide after the other. */

import { byId, showLink } from "../../dom";
import { TYPES, newId, type Picture } from "../../screenpush/format";
import { linkShower } from "../../screenpush/link";
import { refusalInWords, sizeInWords } from "../../screenpush/words";
import { Session } from "../../session";
import { make, read, type Leaf } from "./deck";
import { messageOf, nowChannel, roomOf, shownChannel, slideOf, type Slide } from "./protocol";

const presenter = newId();
let session: Session | undefined;
let room = "";
let leaves: Leaf[] = [];
let deck = newId();
let current = 0;
/** The numbers of the slides that were shown. */
let shown = new Set<number>();
/** The most bytes that the server takes in a message. */
let limit = 1_048_576;
/** The last wish to push: an older one that is still being drawn is given up. */
let latestPush = 0;

async function choose(files: readonly File[]): Promise<void> {
    if (files.length === 0) {
        return;
    }
    say("");
    byId("reading").hidden = false;
    const { leaves: chosen, problems } = await read(files);
    byId("reading").hidden = true;
    say(problems.join(" "));
    if (chosen.length === 0) {
        return;
    }
    [leaves, deck, current, shown] = [chosen, newId(), 0, new Set()];
    byId("talk").hidden = false;
    byId("choice").classList.add("chosen");
    byId<HTMLSelectElement>("jump").replaceChildren(...leaves.map((leaf, index) => new Option(`${index + 1} · ${leaf.title}`, String(index))));
    if (session !== undefined) {
        void push();
    }
    await show();
}

function start(event: SubmitEvent): void {
    event.preventDefault();
    const wanted = roomOf(byId<HTMLInputElement>("room").value);
    if (wanted === undefined) {
        say("A room has a name of letters, digits and hyphens, at most 40.");
        return;
    }
    if (session !== undefined) {
        stop("You have stopped presenting. Viewers keep the last slide.");
        return;
    }
    if (leaves.length === 0) {
        say("Choose pictures or a PDF first.");
        return;
    }
    room = wanted;
    say("");
    const ended = (why: string): void => stop(`${why} Press “Start presenting” to try again.`);
    const changed = linkShower(() => session, `${location.origin}/cometd`, nowChannel(room), { say, ended });
    session = new Session({ opened, changed }, { answerMs: ANSWER_MS });
    showPresenting(true);
    session.open();
}

/** A server that was restarted has forgotten the slides: it gets all that were shown again. */
function opened(again: boolean): void {
    session?.call("demo/limits", null, (data) => {
        const given = (data as { message_bytes_max?: unknown } | null)?.message_bytes_max;
        limit = typeof given === "number" ? given : limit;
        void (again ? pushAllAgain() : push());
    });
    session?.subscribe(nowChannel(room), receive);
}

/** Somebody pushed a slide in this room. */
function receive(data: unknown): void {
    try {
        const slide = slideOf(data);
        if (slide.presenter !== presenter && slide.state === "live") {
            say(`${slide.name || "Somebody else"} presents in the room “${room}”, too, and viewers see who pushed last. Choose another room.`);
        }
    } catch {
        // A message that is no slide does not matter here; viewers read that it is none.
    }
}

async function pushAllAgain(): Promise<void> {
    for (const number of [...shown]) {
        await pushSlide(number - 1, false);
    }
    await push();
}

/** Pushes the current slide, to those who watch now and for those who look back. */
async function push(): Promise<void> {
    const mine = ++latestPush;
    await pushSlide(current, true, () => mine === latestPush);
}

async function pushSlide(index: number, isNow: boolean, isWanted: () => boolean = () => true): Promise<void> {
    const leaf = leaves[index];
    if (leaf === undefined || session === undefined) {
        return;
    }
    const picture = await make(leaf, limit);
    if (!isWanted() || session === undefined) {
        return;
    }
    if (picture === undefined) {
        say(`Slide ${index + 1} is not pushed: even a small picture of it is larger than the server takes (${sizeInWords(limit)}). Raise its message_bytes_max.`);
        return;
    }
    const isNew = !shown.has(index + 1);
    shown.add(index + 1);
    const message = messageOf(slideFor(index, leaf, picture, "live"), session.now());
    session.batch(() => {
        if (isNew || !isNow) {
            publish(shownChannel(room, deck, index + 1), message);
        }
        if (isNow) {
            publish(nowChannel(room), message);
        }
    });
}

function publish(channel: string, message: object): void {
    session?.publish(channel, message, (accepted, { error, isTooLarge }) => {
        if (isTooLarge) {
            say("The server did not take the slide: it is larger than its message_bytes_max. Raise that setting, or choose simpler slides.");
        } else if (!accepted && error !== "") {
            say(`Not pushed: ${refusalInWords(error, channel)}`);
        }
    });
}

function slideFor(index: number, leaf: Leaf, picture: Picture, state: Slide["state"]): Slide {
    return {
        presenter, deck, picture, state, name: byId<HTMLInputElement>("name").value.trim(), title: leaf.title, number: index + 1, of: leaves.length,
        shown: [...shown].sort((one, other) => one - other), notes: byId<HTMLInputElement>("share-notes").checked ? leaf.notes : "",
    };
}

function goTo(index: number): void {
    const next = Math.min(Math.max(index, 0), leaves.length - 1);
    if (next !== current && leaves.length > 0) {
        keepNotes();
        current = next;
        void push();
        void show();
    }
}

/** Shows the current slide and the next one on this page. */
async function show(): Promise<void> {
    const index = current;
    byId("position").textContent = `Slide ${index + 1} of ${leaves.length}`;
    byId<HTMLSelectElement>("jump").value = String(index);
    byId<HTMLTextAreaElement>("notes").value = leaves[index]?.notes ?? "";
    byId<HTMLButtonElement>("back").disabled = index === 0;
    byId<HTMLButtonElement>("next").disabled = index === leaves.length - 1;
    byId("upcoming").hidden = index === leaves.length - 1;
    for (const [id, at] of [["slide", index], ["coming", index + 1]] as const) {
        const picture = leaves[at] === undefined ? undefined : await make(leaves[at], limit);
        if (index !== current) {
            return;
        }
        await paint(byId<HTMLCanvasElement>(id), picture);
    }
}

async function paint(canvas: HTMLCanvasElement, picture: Picture | undefined): Promise<void> {
    canvas.hidden = picture === undefined;
    if (picture !== undefined) {
        const bitmap = await createImageBitmap(new Blob([picture.bytes], { type: picture.type }));
        [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
        canvas.getContext("2d")!.drawImage(bitmap, 0, 0);
        bitmap.close();
    }
}

/** Notes that were written while their slide was shown are pushed with it again. */
function keepNotes(): void {
    const leaf = leaves[current];
    const notes = byId<HTMLTextAreaElement>("notes").value;
    if (leaf !== undefined && leaf.notes !== notes) {
        leaf.notes = notes;
        if (session !== undefined && shown.has(current + 1) && byId<HTMLInputElement>("share-notes").checked) {
            void pushSlide(current, false);
            void push();
        }
    }
}

function stop(why: string): void {
    const leaf = leaves[current];
    if (session !== undefined && leaf?.made !== undefined && session.state === "connected") {
        session.publish(nowChannel(room), messageOf(slideFor(current, leaf, leaf.made.picture, "ended"), session.now()));
    }
    session?.close();
    session = undefined;
    showPresenting(false);
    say(why);
}

function showPresenting(isPresenting: boolean): void {
    byId("start").textContent = isPresenting ? "Stop presenting" : "Start presenting";
    byId<HTMLInputElement>("room").readOnly = isPresenting;
    showWatch();
    if (!isPresenting) {
        showLink("closed", "");
    }
}

function showWatch(): void {
    const wanted = roomOf(byId<HTMLInputElement>("room").value);
    byId<HTMLAnchorElement>("watch").href = `/demo/slides/watch?${new URLSearchParams({ room: wanted ?? "demo" })}`;
}

function say(text: string): void {
    byId("problem").textContent = text;
    byId("problem").hidden = text === "";
}

function onKey(event: KeyboardEvent): void {
    const isTyping = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, button") !== null;
    const to = KEYS[event.key];
    if (to === undefined || isTyping || leaves.length === 0 || event.ctrlKey || event.metaKey || event.altKey) {
        return;
    }
    event.preventDefault();
    goTo(to === "first" ? 0 : to === "last" ? leaves.length - 1 : current + to);
}

function begin(): void {
    const files = byId<HTMLInputElement>("files");
    const asked = new URLSearchParams(location.search).get("room");
    byId<HTMLInputElement>("room").value = roomOf(asked ?? "") ?? "demo";
    showWatch();
    files.addEventListener("change", () => void choose([...(files.files ?? [])]));
    byId("choice").addEventListener("submit", start);
    byId("room").addEventListener("input", showWatch);
    byId("back").addEventListener("click", () => goTo(current - 1));
    byId("next").addEventListener("click", () => goTo(current + 1));
    byId("jump").addEventListener("change", () => goTo(Number(byId<HTMLSelectElement>("jump").value)));
    byId("notes").addEventListener("change", keepNotes);
    byId("share-notes").addEventListener("change", () => void push());
    addEventListener("keydown", onKey);
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
        event.preventDefault();
        void choose([...(event.dataTransfer?.files ?? [])]);
    });
    addEventListener("pagehide", () => session !== undefined && stop(""));
    files.accept = [...TYPES, "image/*", "application/pdf", ".pdf"].join(",");
}

/** A slide may take long on a slow line. */
const ANSWER_MS = 30_000;
const KEYS: Record<string, number | "first" | "last"> = {
    ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Home: "first", End: "last",
};

begin();
