// A ZIP file (APPNOTE 4.3) with the same bytes for the same files.

import * as zlib from "node:zlib";

/** Packs [name, content] pairs. */
export function zip(files) {
    const [parts, index] = [[], []];
    let offset = 0;
    for (const [name, content] of files) {
        const packed = zlib.deflateRawSync(content, { level: 9 });
        const path = Buffer.from(name);
        // Version 2.0, names in UTF-8, deflate, 1980-01-01.
        const common = Buffer.alloc(26);
        [[0, 20], [2, 0x800], [4, 8], [6, 0], [8, 0x21], [22, path.length], [24, 0]].forEach(([at, value]) => common.writeUInt16LE(value, at));
        [[10, crc32(content)], [14, packed.length], [18, content.length]].forEach(([at, value]) => common.writeUInt32LE(value, at));
        parts.push(signature(0x04034b50), common, path, packed);
        const rest = Buffer.alloc(14);
        rest.writeUInt32LE(offset, 10);
        index.push(signature(0x02014b50), Buffer.from([20, 0]), common, rest, path);
        offset += 30 + path.length + packed.length;
    }
    const directory = Buffer.concat(index);
    const end = Buffer.alloc(18);
    end.writeUInt16LE(files.length, 4);
    end.writeUInt16LE(files.length, 6);
    end.writeUInt32LE(directory.length, 8);
    end.writeUInt32LE(offset, 12);
    return Buffer.concat([...parts, directory, signature(0x06054b50), end]);
}

function signature(value) {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return bytes;
}

/** Node has it since 20.15. */
function crc32(content) {
    if (zlib.crc32 !== undefined) {
        return zlib.crc32(content);
    }
    let crc = 0xffffffff;
    for (const byte of content) {
        crc ^= byte;
        for (let bit = 0; bit < 8; bit++) {
            crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
        }
    }
    return (crc ^ 0xffffffff) >>> 0;
}
