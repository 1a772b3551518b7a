/**
 * The messages of Screenpush (docs/screenpush.md describes them for other programs).
 *
 * A publisher with the id `k3j9` on the channel `/demo/screenpush/demo` publishes whole pictures on `/demo/screenpush/demo/k3j9`, and the
 * tiles that have changed since the last whole picture on `/demo/screenpush/demo/k3j9/changes`. So the last message of each channel is all
 * that a viewer needs, whoever else publishes beside. A program that has no id publishes on `/demo/screenpush/demo` itself.
 */

import { pictureSize, type PictureType } from "./picture-size";

/** A picture as a publisher sends it. */
export interface Picture {
    type: PictureType;
    bytes: Uint8Array<ArrayBuffer>;
    width: number;
    height: number;
}

/** The publisher of a message. */
export interface Publisher {
    /** The last segment of its channel; "" if it has none. */
    id: string;
    /** The name it goes by; "" if it has none. */
    name: string;
}

/** The tiles of a picture that have changed since a whole one. They lie in rows in a separate picture. */
export interface Tiles {
    picture: Picture;
    /** The side of a tile. */
    side: number;
    /** The number of tiles in a row of `picture`. */
    columns: number;
    /** The number of each tile in the whole picture: from 0, in rows from the top left. */
    numbers: number[];
}

/** The state of a publisher: it publishes, cannot see its screen for now, or has stopped. */
export type PublisherState = "live" | "still" | "stopped";

/** A message, as a viewer has checked it. */
export type Received =
    | { kind: "whole"; from: Publisher; number: number; sent: number | undefined; picture: Picture }
    | { kind: "changes"; from: Publisher; number: number; sent: number; whole: number; state: PublisherState; tiles: Tiles | undefined }
    | { kind: "broken"; from: Publisher; why: string };

/** The message of a whole picture. */
export function wholeMessage(from: Publisher, number: number, sent: number, picture: Picture): object {
    const { type, width, height, bytes } = picture;
    return { screenpush: VERSION, publisher: from.id, name: from.name, number, sent, width, height, type, data: toBase64(bytes) };
}

/** The message of what has changed since the whole picture with the number `whole`. */
export function changesMessage(from: Publisher, number: number, sent: number, whole: number, state: PublisherState, tiles: Tiles | undefined): object {
    const message = { screenpush: VERSION, publisher: from.id, name: from.name, number, sent, whole, state };
    if (tiles === undefined) {
        return message;
    }
    const { picture, side, columns, numbers } = tiles;
    return { ...message, width: picture.width, height: picture.height, side, columns, tiles: numbers, type: picture.type, data: toBase64(picture.bytes) };
}

/** Reads the data of a message on `channel`. Anybody may publish there, so anything may come. */
export function read(channel: string, base: string, data: unknown): Received {
    const fields = typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
    const from = { id: idOf(channel, base), name: nameOf(fields["name"]) };
    try {
        return typeof fields["whole"] === "number" ? changes(from, fields) : whole(from, fields);
    } catch (error) {
        return { kind: "broken", from, why: error instanceof Unreadable ? error.message : "The message cannot be read." };
    }
}

/** The segment below the channel that names the publisher. */
function idOf(channel: string, base: string): string {
    return channel === base ? "" : (channel.slice(base.length + 1).split("/")[0] ?? "");
}

function whole(from: Publisher, fields: Record<string, unknown>): Received {
    const { dataUrl } = fields;
    if (typeof dataUrl === "string") {
        // The message of the first Screenpush (2008), which has nothing else.
        const [, type = "", data = ""] = /^data:([^;,]{0,40});base64,(.*)$/s.exec(dataUrl) ?? [];
        return { kind: "whole", from, number: 0, sent: undefined, picture: readPicture(type, data) };
    }
    const { type, data, width, height, number, sent } = fields;
    const read = readPicture(type, data);
    if (width !== undefined && (width !== read.width || height !== read.height)) {
        throw new Unreadable(`The message says that its picture has ${text(width)} × ${text(height)} pixels. It has ${read.width} × ${read.height}.`);
    }
    return { kind: "whole", from, number: natural(number) ?? 0, sent: moment(sent), picture: read };
}

function changes(from: Publisher, fields: Record<string, unknown>): Received {
    const { number, sent, whole, state, side, columns, tiles: numbers } = fields;
    const common = {
        kind: "changes" as const, from, number: natural(number) ?? 0, sent: moment(sent) ?? 0, whole: natural(whole) ?? 0,
        state: STATES.find((known) => known === state) ?? "live",
    };
    if (!Array.isArray(numbers) || numbers.length === 0) {
        return { ...common, tiles: undefined };
    }
    const read = readPicture(fields["type"], fields["data"]);
    const [tileSide, inRow] = [natural(side), natural(columns)];
    if (numbers.length > TILES_MAX || !numbers.every((at) => natural(at) !== undefined)) {
        throw new Unreadable("The list of tiles cannot be read.");
    }
    if (tileSide === undefined || inRow === undefined || tileSide < 1 || inRow < 1
        || read.width < tileSide * inRow || read.height < tileSide * Math.ceil(numbers.length / inRow)) {
        throw new Unreadable("The tiles are not all in the picture of the message.");
    }
    return { ...common, tiles: { picture: read, side: tileSide, columns: inRow, numbers: numbers as number[] } };
}

/** A picture of an allowed type whose bytes are of that type. */
export function readPicture(type: unknown, data: unknown): Picture {
    if (typeof data !== "string" || data === "") {
        throw new Unreadable("The message has no picture.");
    }
    const known = TYPES.find((known) => known === type);
    if (known === undefined) {
        throw new Unreadable(`The picture is of the type ${text(type)}. Only JPEG, PNG and WebP are shown.`);
    }
    const bytes = fromBase64(data);
    const size = pictureSize(bytes);
    if (size === undefined || size.type !== known) {
        throw new Unreadable(`The picture is broken: it is not of the type ${known}, as its message says.`);
    }
    if (size.width > SIDE_MAX || size.height > SIDE_MAX || size.width * size.height > PIXELS_MAX) {
        throw new Unreadable(`The picture has ${size.width} × ${size.height} pixels, which is too large to show.`);
    }
    return { type: known, bytes, width: size.width, height: size.height };
}

/** A value of a stranger, short enough for a sentence. */
function text(value: unknown): string {
    return (typeof value === "string" || typeof value === "number" ? String(value) : typeof value).slice(0, 40) || "“”";
}

export function nameOf(value: unknown): string {
    return typeof value === "string" ? value.trim().slice(0, NAME_LENGTH_MAX) : "";
}

export function natural(value: unknown): number | undefined {
    return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= Number.MAX_SAFE_INTEGER ? value : undefined;
}

function moment(value: unknown): number | undefined {
    return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

/** A new id, which a channel may have as its segment. */
export function newId(): string {
    return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => (byte % 36).toString(36)).join("");
}

export function toBase64(bytes: Uint8Array): string {
    let binary = "";
    for (let at = 0; at < bytes.length; at += CHUNK) {
        binary += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
    }
    return btoa(binary);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
    let binary;
    try {
        binary = atob(text);
    } catch {
        throw new Unreadable("The picture is broken: its data is not base64.");
    }
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at++) {
        bytes[at] = binary.charCodeAt(at);
    }
    return bytes;
}

/** The reason, as a sentence, for which a message cannot be shown. */
export class Unreadable extends Error {}

/** The types of pictures. All of them are only ever decoded as pictures. */
export const TYPES: readonly PictureType[] = ["image/jpeg", "image/png", "image/webp"];
export const NAME_LENGTH_MAX = 40;
const STATES: readonly PublisherState[] = ["live", "still", "stopped"];
const VERSION = 1;
/** Arguments of one call. */
const CHUNK = 8_192;
const TILES_MAX = 65_536;
const SIDE_MAX = 16_384;
const PIXELS_MAX = 40_000_000;
