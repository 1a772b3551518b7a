/** Reads type and size of a picture from its first bytes, before a decoder makes memory for as many pixels as it claims. */

export type PictureType = "image/jpeg" | "image/png" | "image/webp";

/** The type and the size of a picture. */
export interface PictureSize {
    type: PictureType;
    width: number;
    height: number;
}

/** Returns undefined for anything that does not begin as a JPEG, PNG or WebP. */
export function pictureSize(bytes: Uint8Array): PictureSize | undefined {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    try {
        return png(view) ?? webp(view) ?? jpeg(view);
    } catch (error) {
        if (error instanceof RangeError) {
            return undefined;
        }
        throw error;
    }
}

/** PNG (W3C) §5.2, §11.2.1: the header is the first chunk. */
function png(view: DataView): PictureSize | undefined {
    const isPng = view.getUint32(0) === 0x89504e47 && view.getUint32(4) === 0x0d0a1a0a && view.getUint32(12) === IHDR;
    return isPng ? { type: "image/png", width: view.getUint32(16), height: view.getUint32(20) } : undefined;
}

/** RFC 9649 §2: the first chunk says which of the three forms follows. */
function webp(view: DataView): PictureSize | undefined {
    if (view.getUint32(0) !== RIFF || view.getUint32(8) !== WEBP) {
        return undefined;
    }
    const size = (width: number, height: number): PictureSize => ({ type: "image/webp", width, height });
    switch (view.getUint32(12)) {
        case VP8X:
            return size(1 + uint24(view, 24), 1 + uint24(view, 27));
        case VP8L: {
            const bits = view.getUint32(21, true);
            return size(1 + (bits & 0x3fff), 1 + ((bits >>> 14) & 0x3fff));
        }
        case VP8:
            return size(view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff);
        default:
            return undefined;
    }
}

/** ITU-T T.81 §B.2.2: segments follow each other until the one that begins the frame. */
function jpeg(view: DataView): PictureSize | undefined {
    if (view.getUint16(0) !== 0xffd8) {
        return undefined;
    }
    let at = 2;
    while (view.getUint8(at) === 0xff) {
        const marker = view.getUint8(at + 1);
        const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
        if (isFrame) {
            return { type: "image/jpeg", width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
        }
        // A marker may have fill bytes before it.
        at += marker === 0xff ? 1 : 2 + view.getUint16(at + 2);
    }
    return undefined;
}

function uint24(view: DataView, at: number): number {
    return view.getUint16(at, true) | (view.getUint8(at + 2) << 16);
}

const [IHDR, RIFF, WEBP, VP8X, VP8L, VP8] = [0x49484452, 0x52494646, 0x57454250, 0x56503858, 0x5650384c, 0x56503820];
