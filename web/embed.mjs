// The files of dist/ as the program embeds them: their compressed forms, and the list in Rust.

import { createHash } from "node:crypto";
import { basename, dirname, extname } from "node:path";
import { brotliCompressSync, brotliDecompressSync, constants, gunzipSync, gzipSync } from "node:zlib";

/** Media types by the ending of a file. */
const TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".pdf": "application/pdf",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
};
/** Files of other types are compressed in themselves. */
const COMPRESSIBLE = [".html", ".css", ".js", ".txt", ".svg", ".json", ".wasm"];
/** A smaller file fits one packet anyway. */
const MIN_BYTES = 400;

/** The policy of a page; its csp.json replaces or adds directives. */
const POLICY = {
    "default-src": "'self'",
    "object-src": "'none'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
};

const CODINGS = [
    { ending: ".br", name: "br", pack: brotli, unpack: brotliDecompressSync },
    { ending: ".gz", name: "gzip", pack: (content) => gzipSync(content, { level: 9 }), unpack: gunzipSync },
];

function brotli(content) {
    const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
    return brotliCompressSync(content, { params });
}

/** The compressed forms of these files. One that is `present` and unpacks to the right content is taken as it is. */
export function compressed(files, present) {
    const forms = new Map();
    for (const [name, content] of files) {
        if (!COMPRESSIBLE.includes(extname(name)) || content.length < MIN_BYTES) {
            continue;
        }
        for (const { ending, pack } of CODINGS) {
            const before = present.get(name + ending);
            const isRight = before !== undefined && unpack(name + ending, before).equals(content);
            forms.set(name + ending, isRight ? before : pack(content));
        }
    }
    return forms;
}

/** The content of a compressed form, or of any other file itself. Nothing if a form is damaged. */
export function unpack(name, content) {
    const coding = CODINGS.find(({ ending }) => name.endsWith(ending));
    try {
        return coding === undefined ? content : coding.unpack(content);
    } catch {
        return Buffer.alloc(0);
    }
}

/** The list of all files as an expression of Rust, which `crates/encke-cli/src/assets.rs` includes. */
export function listing(files, forms, policies) {
    const assets = [...files].flatMap(([name, content]) => pathsOf(name).map((path) => {
        const tag = createHash("sha256").update(content).digest("hex").slice(0, 16);
        const encoded = CODINGS.filter(({ ending }) => forms.has(name + ending)).map((coding) =>
            `Encoded::new(${quoted(coding.name)}, include_bytes!(${quoted(name + coding.ending)}), ${quoted(`"${tag}-${coding.name}"`)})`);
        const type = TYPES[extname(name)];
        if (type === undefined) {
            throw new Error(`${name}: embed.mjs knows no media type of it`);
        }
        return [
            `    Asset::new(${quoted(path)}, ${quoted(type)}, include_bytes!(${quoted(name)}), ${quoted(`"${tag}"`)})`,
            ...(name.endsWith(".html") ? [`        .content_security_policy(${quoted(policy(policies.get(dirname(name))))})`] : []),
            ...(encoded.length > 0 ? [`        .encoded(&[${encoded.join(", ")}])`] : []),
        ].join("\n");
    }));
    return Buffer.from(`// Written by web/build.mjs: all files beside this one.\n&[\n${assets.map((asset) => `${asset},\n`).join("")}]\n`);
}

/** The paths at which a file is served. A page answers with and without a slash at the end. */
function pathsOf(name) {
    if (basename(name) !== "index.html") {
        return [`/${name}`];
    }
    return name === "index.html" ? ["/"] : [`/${dirname(name)}`, `/${dirname(name)}/`];
}

function policy(own = {}) {
    return Object.entries({ ...POLICY, ...own }).map(([directive, sources]) => `${directive} ${sources}`).join("; ");
}

/** A text as a literal of Rust. */
function quoted(text) {
    return JSON.stringify(text);
}
