/** Turns what is on a screen into pushes: compares, encodes, publishes. The page and the extension share it. */

import type { Session } from "../session";
import { changedTiles, corner, type Pixels } from "./changes";
import { changesMessage, wholeMessage, type Picture, type Publisher, type PublisherState, type Tiles } from "./format";
import type { PictureType } from "./picture-size";
import type { PushSettings } from "./settings";

/** The fate of a picture. */
export type Outcome =
    | { kind: "pushed"; bytes: number; what: "whole" | "tiles" }
    /** Nothing has changed. */
    | { kind: "same" }
    /** The message is longer than the server takes. `limit` is 0 if the server has not said it. */
    | { kind: "too-large"; bytes: number; limit: number }
    | { kind: "refused"; error: string }
    /** The connection is not there, or broke before the reply. */
    | { kind: "away" };

/** A source of pictures that a canvas can draw. */
export interface Frame {
    image: CanvasImageSource;
    width: number;
    height: number;
    /** The pointer, in the pixels of the frame. */
    pointer?: { x: number; y: number } | undefined;
}

/** The pictures of one publisher. */
export class Pusher {
    readonly #session: Session;
    readonly #publisher: Publisher;
    readonly #canvas = new OffscreenCanvas(1, 1);
    readonly #atlas = new OffscreenCanvas(1, 1);
    #settings: PushSettings;
    /** The last whole picture that the server has accepted. */
    #whole: { number: number; pixels: Pixels; bytes: number; at: number } | undefined;
    /** The picture that viewers see. */
    #shown: Pixels | undefined;
    /** The changes since the whole picture, as they were last published. */
    #tiles: Tiles | undefined;
    #state: PublisherState = "live";
    /** Begins at the time of day, so that it goes on when the publisher was started again. */
    #number = Date.now();
    /** The most bytes that the server takes in a message, as it says; 0 if it does not. */
    #limit = 0;
    /** The fewest bytes for which the server has closed the connection. It does not get a message of this length again. */
    #refused = Infinity;
    #type: PictureType | undefined;

    constructor(session: Session, publisher: Publisher, settings: PushSettings) {
        this.#session = session;
        this.#publisher = publisher;
        this.#settings = settings;
    }

    change(settings: PushSettings): void {
        this.#settings = settings;
    }

    /** True as long as the browser writes the type of picture that the settings ask for. */
    get writesType(): boolean {
        return this.#type === undefined || this.#type === this.#settings.type;
    }

    /** A new session: its server may be another one, or have forgotten everything. */
    opened(): void {
        this.#whole = undefined;
        this.#shown = undefined;
        this.#limit = 0;
        this.#refused = Infinity;
        this.#session.call("demo/limits", null, (data) => {
            const limit = (data as { message_bytes_max?: unknown } | null)?.message_bytes_max;
            this.#limit = typeof limit === "number" ? limit : 0;
        });
    }

    /** Pushes a frame. `isWanted`: somebody asked for this very picture, so it is pushed even if nothing has changed. */
    async push(frame: Frame, isWanted = false): Promise<Outcome> {
        const { skipUnchanged, tiles, wholeEvery } = this.#settings;
        const pixels = this.#draw(frame);
        const whole = this.#whole;
        if (whole !== undefined && !isWanted) {
            const isSame = this.#shown !== undefined && changedTiles(this.#shown, pixels, SIDE)?.length === 0;
            if (isSame && skipUnchanged && this.#state === "live") {
                return { kind: "same" };
            }
            const changed = changedTiles(whole.pixels, pixels, SIDE);
            const count = Math.ceil(pixels.width / SIDE) * Math.ceil(pixels.height / SIDE);
            const isRecent = Date.now() - whole.at < wholeEvery * 1_000;
            if (tiles && isRecent && changed !== undefined && changed.length <= count * TILES_SHARE_MAX) {
                const found = await this.#cut(changed, pixels);
                if (found === undefined || found.picture.bytes.length <= whole.bytes * TILES_SHARE_MAX) {
                    return this.#publishTiles(found, pixels);
                }
            }
        }
        return this.#publishWhole(pixels);
    }

    /** Publishes again what has changed, so that viewers know that the publisher is there, or that it is not any more. */
    tell(state: PublisherState): void {
        this.#state = state;
        if (this.#whole !== undefined) {
            const message = changesMessage(this.#publisher, ++this.#number, this.#session.now(), this.#whole.number, state, this.#tiles);
            this.#session.publish(this.#changes, message);
        }
    }

    get #channel(): string {
        return `${this.#settings.channel}/${this.#publisher.id}`;
    }

    get #changes(): string {
        return `${this.#channel}/changes`;
    }

    /** Draws the frame in the size of the push, with its pointer. */
    #draw({ image, width, height, pointer }: Frame): Pixels {
        const { maxWidth } = this.#settings;
        const scale = maxWidth > 0 && width > maxWidth ? maxWidth / width : 1;
        const canvas = sized(this.#canvas, Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
        const context = canvas.getContext("2d", { willReadFrequently: true, alpha: false })!;
        context.drawImage(image, 0, 0, canvas.width, canvas.height);
        if (pointer !== undefined) {
            drawPointer(context, pointer.x * scale, pointer.y * scale);
        }
        const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
        return { data: new Uint32Array(data.buffer), width: canvas.width, height: canvas.height };
    }

    /** A picture of these tiles of the frame that was drawn last; undefined without tiles. */
    async #cut(numbers: number[], pixels: Pixels): Promise<Tiles | undefined> {
        if (numbers.length === 0) {
            return undefined;
        }
        const columns = Math.ceil(Math.sqrt(numbers.length));
        const canvas = sized(this.#atlas, columns * SIDE, Math.ceil(numbers.length / columns) * SIDE);
        const context = canvas.getContext("2d", { alpha: false })!;
        numbers.forEach((number, index) => {
            const { x, y } = corner(number, SIDE, pixels.width);
            context.drawImage(this.#canvas, x, y, SIDE, SIDE, (index % columns) * SIDE, Math.floor(index / columns) * SIDE, SIDE, SIDE);
        });
        return { picture: await this.#encode(canvas), side: SIDE, columns, numbers };
    }

    async #encode(canvas: OffscreenCanvas): Promise<Picture> {
        const { type, quality } = this.#settings;
        const blob = await canvas.convertToBlob({ type, quality: quality / 100 });
        this.#type = blob.type as PictureType;
        return { type: this.#type, bytes: new Uint8Array(await blob.arrayBuffer()), width: canvas.width, height: canvas.height };
    }

    async #publishWhole(pixels: Pixels): Promise<Outcome> {
        const picture = await this.#encode(this.#canvas);
        const number = ++this.#number;
        const message = wholeMessage(this.#publisher, number, this.#session.now(), picture);
        return this.#publish(this.#channel, message, "whole", () => {
            this.#whole = { number, pixels, bytes: picture.bytes.length, at: Date.now() };
            this.#shown = pixels;
            this.#tiles = undefined;
            this.#state = "live";
        });
    }

    async #publishTiles(tiles: Tiles | undefined, pixels: Pixels): Promise<Outcome> {
        const message = changesMessage(this.#publisher, ++this.#number, this.#session.now(), this.#whole!.number, "live", tiles);
        return this.#publish(this.#changes, message, "tiles", () => {
            this.#shown = pixels;
            this.#tiles = tiles;
            this.#state = "live";
        });
    }

    #publish(channel: string, message: object, what: "whole" | "tiles", accepted: () => void): Promise<Outcome> {
        const bytes = new TextEncoder().encode(JSON.stringify(message)).length + ENVELOPE_BYTES;
        if ((this.#limit > 0 && bytes > this.#limit) || bytes >= this.#refused) {
            return Promise.resolve({ kind: "too-large", bytes, limit: this.#limit });
        }
        if (this.#session.state !== "connected") {
            return Promise.resolve({ kind: "away" });
        }
        return new Promise((resolve) => this.#session.publish(channel, message, (isAccepted, { error, isTooLarge }) => {
            if (isAccepted) {
                accepted();
                resolve({ kind: "pushed", bytes, what });
            } else if (isTooLarge) {
                this.#refused = Math.min(this.#refused, bytes);
                resolve({ kind: "too-large", bytes, limit: this.#limit });
            } else {
                resolve(error === "" ? { kind: "away" } : { kind: "refused", error });
            }
        }));
    }
}

function sized(canvas: OffscreenCanvas, width: number, height: number): OffscreenCanvas {
    if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
    }
    return canvas;
}

/** An arrow with a shadow, its tip at this point. */
export function drawPointer(context: OffscreenCanvasRenderingContext2D, x: number, y: number): void {
    context.save();
    context.translate(x, y);
    context.beginPath();
    for (const [dx, dy] of [[0, 0], [0, 17], [4, 13.2], [7, 19.5], [9.8, 18.2], [6.9, 12.2], [12, 12]] as const) {
        context.lineTo(dx, dy);
    }
    context.closePath();
    context.shadowColor = "rgb(0 0 0 / 45%)";
    context.shadowBlur = 4;
    context.shadowOffsetX = 2;
    context.shadowOffsetY = 3;
    context.fillStyle = "#fff";
    context.fill();
    context.shadowColor = "transparent";
    context.lineWidth = 1.2;
    context.strokeStyle = "#000";
    context.stroke();
    context.restore();
}

/** Tiles of a multiple of 16 pixels: the blocks of a JPEG do not cross their borders. */
const SIDE = 64;
/** Tiles are pushed only if they are at most this share of the whole picture: in number, and in bytes. */
const TILES_SHARE_MAX = 0.6;
/** Channel, client id and the like around the data of a message, at most. */
const ENVELOPE_BYTES = 600;
