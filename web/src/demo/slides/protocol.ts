/**
 * The messages of a slide show. The slide that is shown is on `/demo/slides/now/ROOM`, and each slide that was shown on
 * `/demo/slides/shown/ROOM/DECK/NUMBER`. The histories of these channels retain one message each. So who comes late sees the slide of now
 * at once, and who looks back asks for one slide, not for all.
 */

import { nameOf, natural, readPicture, toBase64, type Picture } from "../../screenpush/format";

/** A slide as the presenter has pushed it. */
export interface Slide {
    presenter: string;
    name: string;
    /** The name of the deck on the wire; another one each time that files are chosen. */
    deck: string;
    title: string;
    /** From 1. */
    number: number;
    /** The number of slides in the deck. */
    of: number;
    /** The numbers of the slides that were shown. */
    shown: number[];
    notes: string;
    state: "live" | "ended";
    picture: Picture;
}

export function nowChannel(room: string): string {
    return `${BASE}/now/${room}`;
}

export function shownChannel(room: string, deck: string, number: number): string {
    return `${BASE}/shown/${room}/${deck}/${number}`;
}

/** A name of a room that a channel may have as its segment. */
export function roomOf(text: string): string | undefined {
    const room = text.trim().replaceAll(/\s+/g, "-");
    return /^[\w-]{1,40}$/.test(room) ? room : undefined;
}

/** The message of a slide; `sent` is the server's time. */
export function messageOf({ picture, ...slide }: Slide, sent: number): object {
    const { type, width, height, bytes } = picture;
    return { slides: 1, ...slide, sent, width, height, type, data: toBase64(bytes) };
}

/** Reads a slide. Anybody may publish in a room, so anything may come: throws `Unreadable`. */
export function slideOf(data: unknown): Slide {
    const fields = typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
    const { type, data: base64, number, of, shown, notes, state, title, name, presenter, deck } = fields;
    return {
        presenter: idOf(presenter), deck: idOf(deck), name: nameOf(name), title: nameOf(title),
        number: natural(number) ?? 1, of: natural(of) ?? 1,
        shown: Array.isArray(shown) ? shown.filter((one) => natural(one) !== undefined).slice(0, SLIDES_MAX) : [],
        notes: typeof notes === "string" ? notes.slice(0, NOTES_LENGTH_MAX) : "",
        state: state === "ended" ? "ended" : "live",
        picture: readPicture(type, base64),
    };
}

/** An id becomes a segment of a channel, so it may have nothing else in it. */
function idOf(value: unknown): string {
    return typeof value === "string" && /^\w{1,20}$/.test(value) ? value : "unknown";
}

const BASE = "/demo/slides";
export const SLIDES_MAX = 500;
export const NOTES_LENGTH_MAX = 4_000;
