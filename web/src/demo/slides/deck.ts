/** A deck of slides: pictures and pages of PDFs, in the order in which they were chosen. */

import { TYPES, type Picture } from "../../screenpush/format";
import { SLIDES_MAX } from "./protocol";

/** A PDF whose pages can be drawn. */
export interface Pdf {
    pages: number;
    draw(number: number, maxWidth: number, maxHeight: number): Promise<CanvasImageSource & { width: number; height: number }>;
}
export type OpenPdf = (bytes: Uint8Array) => Promise<Pdf>;

/** Draws a slide, at most this large. */
type Draw = (maxWidth: number, maxHeight: number) => Promise<CanvasImageSource & { width: number; height: number }>;

/** A slide before it is pushed. */
export interface Leaf {
    title: string;
    draw: Draw;
    notes: string;
    /** The picture as it was pushed last, with the limit that it was made for. */
    made: { picture: Picture; limit: number } | undefined;
}

/** Reads files. `problems` has a sentence for each file that is no slide. */
export async function read(files: readonly File[]): Promise<{ leaves: Leaf[]; problems: string[] }> {
    const leaves: Leaf[] = [];
    const problems: string[] = [];
    for (const file of files) {
        try {
            leaves.push(...(file.type === "application/pdf" || /\.pdf$/i.test(file.name) ? await pagesOf(file) : [await pictureOf(file)]));
        } catch {
            problems.push(`“${file.name}” is not shown: it is no picture and no PDF that can be read without a password.`);
        }
    }
    if (leaves.length > SLIDES_MAX) {
        problems.push(`Only the first ${SLIDES_MAX} slides are used.`);
    }
    return { leaves: leaves.slice(0, SLIDES_MAX), problems };
}

async function pictureOf(file: File): Promise<Leaf> {
    // A picture that cannot be decoded is found now, not in the middle of the talk.
    (await createImageBitmap(file)).close();
    const draw: Draw = async (maxWidth, maxHeight) => {
        const bitmap = await createImageBitmap(file);
        const scale = Math.min(1, maxWidth / bitmap.width, maxHeight / bitmap.height);
        return drawn(bitmap, Math.max(1, Math.round(bitmap.width * scale)), Math.max(1, Math.round(bitmap.height * scale)));
    };
    return { title: file.name, draw, notes: "", made: undefined };
}

async function pagesOf(file: File): Promise<Leaf[]> {
    const path = "/assets/slides-pdf.lazy.js";
    const { openPdf } = (await import(path)) as { openPdf: OpenPdf };
    const pdf = await openPdf(new Uint8Array(await file.arrayBuffer()));
    return Array.from({ length: pdf.pages }, (_, index) => ({
        title: file.name, notes: "", made: undefined,
        draw: (maxWidth, maxHeight) => pdf.draw(index + 1, maxWidth, maxHeight),
    }));
}

/**
 * The picture of a slide in a message of at most `limit` bytes: first the best one, then smaller ones. Undefined if even the smallest is
 * too large.
 */
export async function make(leaf: Leaf, limit: number): Promise<Picture | undefined> {
    if (leaf.made?.limit === limit) {
        return leaf.made.picture;
    }
    for (const { width, height, quality } of SIZES) {
        const source = await leaf.draw(width, height);
        const canvas = source instanceof OffscreenCanvas ? source : drawn(source, source.width, source.height);
        const blob = await canvas.convertToBlob({ type: "image/webp", quality });
        // A browser that does not write WebP writes PNG, which is far larger.
        const best = blob.type === "image/webp" ? blob : await canvas.convertToBlob({ type: "image/jpeg", quality });
        const type = TYPES.find((type) => type === best.type);
        if (type !== undefined && best.size * BASE64_GROWTH + ENVELOPE_BYTES <= limit) {
            const picture = { type, bytes: new Uint8Array(await best.arrayBuffer()), width: canvas.width, height: canvas.height };
            leaf.made = { picture, limit };
            return picture;
        }
    }
    return undefined;
}

function drawn(source: CanvasImageSource, width: number, height: number): OffscreenCanvas {
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { alpha: false })!;
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    context.drawImage(source, 0, 0, width, height);
    return canvas;
}

const SIZES = [
    { width: 1_920, height: 1_440, quality: 0.85 },
    { width: 1_920, height: 1_440, quality: 0.6 },
    { width: 1_280, height: 960, quality: 0.6 },
    { width: 800, height: 600, quality: 0.5 },
    { width: 400, height: 300, quality: 0.4 },
];
const BASE64_GROWTH = 4 / 3;
/** Everything but the picture in a message: names, notes in UTF-8, numbers of slides. */
const ENVELOPE_BYTES = 16_000;
