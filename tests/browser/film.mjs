// Pictures for documents: stills and short films of pages, as WebP, which Chromium encodes.

/** The canvas on which a picture is put together, on a separate page that has no policy. */
export class Studio {
    #page;

    static async open(browser, server) {
        const studio = new Studio();
        studio.#page = await browser.open(`${server.url}/healthz`);
        return studio;
    }

    /**
     * A picture of this size with these parts: `{ png, x, y, width }`, each a screenshot and where it goes. Returns the bytes of a still
     * WebP.
     */
    async picture(width, height, parts, quality) {
        const encoded = parts.map(({ png, ...rest }) => ({ ...rest, url: `data:image/png;base64,${png.toString("base64")}` }));
        const base64 = await this.#page.evaluate(draw, { width, height, parts: encoded, quality });
        return Buffer.from(base64, "base64");
    }

    /** The size of a film and the number of its frames, as the browser reads them. */
    sizeOf(webp) {
        return this.#page.evaluate(async (base64) => {
            const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
            const decoder = new ImageDecoder({ type: "image/webp", data: bytes });
            await decoder.completed;
            const { image } = await decoder.decode();
            return { width: image.displayWidth, height: image.displayHeight, frames: decoder.tracks.selectedTrack.frameCount };
        }, webp.toString("base64"));
    }
}

/** A film of still WebPs of one size, each shown for so long, again and again. */
export function film(stills, width, height, frameMs) {
    const frames = stills.map((still) => {
        const head = Buffer.alloc(16);
        head.writeUIntLE(width - 1, 6, 3);
        head.writeUIntLE(height - 1, 9, 3);
        head.writeUIntLE(frameMs, 12, 3);
        head[15] = REPLACES;
        return chunk("ANMF", Buffer.concat([head, pictureOf(still)]));
    });
    const extended = Buffer.alloc(10);
    extended[0] = HAS_ANIMATION;
    extended.writeUIntLE(width - 1, 4, 3);
    extended.writeUIntLE(height - 1, 7, 3);
    const body = Buffer.concat([Buffer.from("WEBP"), chunk("VP8X", extended), chunk("ANIM", Buffer.alloc(6)), ...frames]);
    return chunk("RIFF", body);
}

/** The chunk with the pixels in a still WebP, which may have others before it, such as a profile of colours. */
function pictureOf(still) {
    for (let at = FILE_HEAD_BYTES; at < still.length;) {
        const end = at + 8 + still.readUInt32LE(at + 4);
        if (["VP8 ", "VP8L"].includes(still.toString("latin1", at, at + 4))) {
            return chunk(still.toString("latin1", at, at + 4), still.subarray(at + 8, end));
        }
        at = end + (end % 2);
    }
    throw new Error("the still has no picture");
}

/** A chunk of RIFF: its name, its length, its bytes, and one more where these are odd. */
function chunk(name, bytes) {
    const head = Buffer.alloc(8);
    head.write(name);
    head.writeUInt32LE(bytes.length, 4);
    return Buffer.concat([head, bytes, Buffer.alloc(bytes.length % 2)]);
}

/** Runs in the page. */
async function draw({ width, height, parts, quality }) {
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { alpha: false });
    context.fillStyle = "#e7eeee";
    context.fillRect(0, 0, width, height);
    context.imageSmoothingQuality = "high";
    for (const { url, x, y, width: wide } of parts) {
        const image = new Image();
        image.src = url;
        await image.decode();
        const high = (wide * image.height) / image.width;
        context.save();
        context.beginPath();
        context.roundRect(x, y, wide, high, 10);
        context.clip();
        context.drawImage(image, x, y, wide, high);
        context.restore();
    }
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

const FILE_HEAD_BYTES = 12;
const HAS_ANIMATION = 0x02;
/** A frame replaces what was there. */
const REPLACES = 0x02;
