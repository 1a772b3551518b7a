/** The pictures of all publishers of a channel, as a viewer sees them. The latest picture wins: none waits in a queue. */

import { corner } from "./changes";
import { read, type Picture, type PublisherState, type Received, type Tiles } from "./format";

/** A publisher, as the viewer knows it. */
export class Screen {
    /** The last segment of its channel, or "" for all programs that have none. */
    readonly id: string;
    /** Its picture. */
    readonly canvas = document.createElement("canvas");
    name = "";
    state: PublisherState = "live";
    /** The reason, as a sentence, for which its last message was not shown, or "". */
    broken = "";
    /** The number of its pictures that were shown. */
    pictures = 0;
    /** The bytes of the last picture, without those of the message around it. */
    bytes = 0;
    type = "";
    /** The publisher's time of the last picture, if it has said it. */
    sent: number | undefined;
    /** The time at which a message of it came last, by this page's clock. */
    receivedAt = 0;

    readonly #changed: (screen: Screen) => void;
    #whole: { number: number; bitmap: ImageBitmap } | undefined;
    #nextWhole: Extract<Received, { kind: "whole" }> | undefined;
    #nextChanges: Extract<Received, { kind: "changes" }> | undefined;
    #lastNumber = 0;
    #isDrawing = false;

    constructor(id: string, changed: (screen: Screen) => void) {
        this.id = id;
        this.#changed = changed;
        this.canvas.width = this.canvas.height = 0;
    }

    /** A message of this publisher. A picture that is not drawn yet when the next one comes is never drawn. */
    receive(message: Received): void {
        this.receivedAt = Date.now();
        this.name = message.from.name || this.name;
        if (message.kind === "broken") {
            this.broken = message.why;
            this.#changed(this);
            return;
        }
        // Stored messages of its two channels come in any order. A program without numbers is live.
        if (message.number >= this.#lastNumber) {
            this.#lastNumber = message.number;
            this.state = message.kind === "whole" ? "live" : message.state;
        }
        if (message.kind === "whole") {
            this.#nextWhole = message;
        } else {
            this.#nextChanges = message;
        }
        void this.#draw();
    }

    async #draw(): Promise<void> {
        if (this.#isDrawing) {
            return;
        }
        this.#isDrawing = true;
        try {
            while (await this.#drawNext()) {
                this.#changed(this);
            }
        } finally {
            this.#isDrawing = false;
        }
        this.#changed(this);
    }

    /** Draws what came last; false if there is nothing to draw. */
    async #drawNext(): Promise<boolean> {
        const [whole, changes] = [this.#nextWhole, this.#nextChanges];
        try {
            if (whole !== undefined) {
                this.#nextWhole = undefined;
                const bitmap = await decoded(whole.picture);
                this.#whole?.bitmap.close();
                this.#whole = { number: whole.number, bitmap };
                this.#paint(bitmap);
                this.#shown(whole.picture, whole.sent);
                return true;
            }
            // Changes of another whole picture than the one here: that one is still to come.
            if (changes !== undefined && changes.whole === this.#whole?.number) {
                this.#nextChanges = undefined;
                if (changes.tiles === undefined) {
                    this.#paint(this.#whole.bitmap);
                    this.#shown(undefined, changes.sent);
                } else {
                    const bitmap = await decoded(changes.tiles.picture);
                    this.#paint(this.#whole.bitmap);
                    this.#paintTiles(changes.tiles, bitmap);
                    bitmap.close();
                    this.#shown(changes.tiles.picture, changes.sent);
                }
                return true;
            }
        } catch {
            this.broken = "The picture is broken: the browser cannot decode it.";
            return this.#nextWhole !== undefined;
        }
        return false;
    }

    #shown(picture: Picture | undefined, sent: number | undefined): void {
        this.broken = "";
        this.sent = sent;
        this.pictures++;
        this.bytes = picture?.bytes.length ?? this.bytes;
        this.type = picture?.type ?? this.type;
    }

    #paint(bitmap: ImageBitmap): void {
        if (this.canvas.width !== bitmap.width || this.canvas.height !== bitmap.height) {
            this.canvas.width = bitmap.width;
            this.canvas.height = bitmap.height;
        }
        this.canvas.getContext("2d")!.drawImage(bitmap, 0, 0);
    }

    #paintTiles({ side, columns, numbers }: Tiles, bitmap: ImageBitmap): void {
        const context = this.canvas.getContext("2d")!;
        numbers.forEach((number, index) => {
            const { x, y } = corner(number, side, this.canvas.width);
            context.drawImage(bitmap, (index % columns) * side, Math.floor(index / columns) * side, side, side, x, y, side, side);
        });
    }
}

/** All publishers of a channel. */
export class Viewer {
    readonly screens = new Map<string, Screen>();
    readonly #base: string;
    readonly #changed: (screen: Screen) => void;

    /** `base` is the channel that the visitor named. `changed` is called when something of a publisher is another. */
    constructor(base: string, changed: (screen: Screen) => void) {
        this.#base = base;
        this.#changed = changed;
    }

    /** The channels to subscribe to. */
    get channels(): string[] {
        return [this.#base, `${this.#base}/**`];
    }

    /** A message on one of these channels. */
    receive(data: unknown, channel: string): Received {
        const message = read(channel, this.#base, data);
        let screen = this.screens.get(message.from.id);
        if (screen === undefined) {
            this.#forgetOldest();
            screen = new Screen(message.from.id, this.#changed);
            this.screens.set(message.from.id, screen);
        }
        screen.receive(message);
        return message;
    }

    /** Anybody can publish under any number of ids. */
    #forgetOldest(): void {
        if (this.screens.size >= SCREENS_MAX) {
            const [oldest] = [...this.screens.values()].sort((one, other) => one.receivedAt - other.receivedAt);
            this.screens.delete(oldest!.id);
        }
    }
}

/** The pixels of a picture. Nothing of it can run: a decoder reads the bytes as a picture of one of three types. */
export function decoded({ bytes, type }: Picture): Promise<ImageBitmap> {
    return createImageBitmap(new Blob([bytes], { type }));
}

const SCREENS_MAX = 24;
