/** The settings of a publisher, for the page and for the extension. */

import { NAME_LENGTH_MAX, TYPES } from "./format";
import type { PictureType } from "./picture-size";

/** The settings of a publisher. docs/screenpush.md has a table of them. */
export interface PushSettings {
    /** The URL of the Bayeux endpoint. */
    server: string;
    channel: string;
    /** The name that viewers see. */
    name: string;
    /** The time from an event to the push, and the shortest time between two pushes, in milliseconds. */
    pushDelay: number;
    type: PictureType;
    /** The quality of JPEG and WebP, from 1 to 100. */
    quality: number;
    /** True: a picture that has not changed is not pushed. */
    skipUnchanged: boolean;
    /** True: only the changed tiles are pushed where that is smaller. */
    tiles: boolean;
    /** The longest time between two whole pictures while something changes, in seconds. */
    wholeEvery: number;
    /** The largest width of a picture, in pixels; larger ones are scaled down. 0: no limit. */
    maxWidth: number;
    /** True: the pointer is on the picture. */
    pointer: boolean;
}

export const DEFAULTS: PushSettings = {
    server: "http://127.0.0.1:8080/cometd",
    channel: "/demo/screenpush/demo",
    name: "",
    pushDelay: 200,
    type: "image/jpeg",
    quality: 70,
    skipUnchanged: true,
    tiles: true,
    wholeEvery: 30,
    maxWidth: 0,
    pointer: true,
};

/** The settings of `stored` that are valid, and the defaults for all others. */
export function settingsOf<S extends PushSettings>(stored: unknown, defaults: S): S {
    const given = typeof stored === "object" && stored !== null ? (stored as Partial<Record<keyof PushSettings, unknown>>) : {};
    const read: PushSettings = {
        server: addressOf(given.server) ?? defaults.server,
        channel: channelOf(given.channel) ?? defaults.channel,
        name: typeof given.name === "string" ? given.name.slice(0, NAME_LENGTH_MAX) : defaults.name,
        pushDelay: within(given.pushDelay, 0, 60_000) ?? defaults.pushDelay,
        type: TYPES.find((type) => type === given.type) ?? defaults.type,
        quality: within(given.quality, 1, 100) ?? defaults.quality,
        skipUnchanged: truth(given.skipUnchanged) ?? defaults.skipUnchanged,
        tiles: truth(given.tiles) ?? defaults.tiles,
        wholeEvery: within(given.wholeEvery, 1, 3_600) ?? defaults.wholeEvery,
        maxWidth: within(given.maxWidth, 0, 16_384) ?? defaults.maxWidth,
        pointer: truth(given.pointer) ?? defaults.pointer,
    };
    return { ...defaults, ...read };
}

/** A URL of a Bayeux endpoint. A server without a path means its `/cometd`. */
export function addressOf(text: unknown): string | undefined {
    if (typeof text !== "string" || text.trim() === "") {
        return undefined;
    }
    const written = text.trim();
    const url = URL.parse(/^\w+:\/\//.test(written) ? written : `http://${written}`);
    if (url === null || !["http:", "https:", "ws:", "wss:"].includes(url.protocol)) {
        return undefined;
    }
    url.protocol = url.protocol.replace("ws", "http");
    url.hash = "";
    return url.pathname === "/" && url.search === "" ? `${url.origin}/cometd` : url.href;
}

/** A channel that may be published to. */
export function channelOf(text: unknown): string | undefined {
    const channel = typeof text === "string" ? text.trim() : "";
    const isPublic = !channel.startsWith("/meta/") && !channel.startsWith("/service/");
    return /^(\/[\w!~()$@.+-]+){1,12}$/.test(channel) && channel.length <= 200 && isPublic ? channel : undefined;
}

export function within(value: unknown, least: number, most: number): number | undefined {
    return typeof value === "number" && Number.isFinite(value) && value >= least && value <= most ? Math.round(value) : undefined;
}

export function truth(value: unknown): boolean | undefined {
    return typeof value === "boolean" ? value : undefined;
}
