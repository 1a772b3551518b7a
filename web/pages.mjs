// Checks of the built pages that need no browser: what a Content-Security-Policy would refuse, what is missing, what is too heavy.

import { posix } from "node:path";

/** A page with its scripts, style sheets and pictures, compressed. `.lazy.js` does not count: it is loaded when it is needed. */
const MAX_PAGE_BYTES = 100 * 1024;

/** The reasons why these files must not be served. */
export function faults(files) {
    const found = [];
    for (const [name, content] of files) {
        if (!name.endsWith(".html")) {
            continue;
        }
        const text = content.toString();
        for (const [pattern, reason] of REFUSED) {
            if (pattern.test(text)) {
                found.push(`${name} has ${reason}, which its policy refuses`);
            }
        }
        for (const part of parts(text)) {
            if (!files.has(part)) {
                found.push(`${name} names /${part}, which is not built`);
            }
        }
    }
    return found;
}

/** The compressed bytes of each page with what it loads: [page, bytes] pairs. Ends the build if one is too heavy. */
export function weights(files, forms) {
    const bytes = (name) => (forms.get(`${name}.br`) ?? files.get(name)).length;
    const pages = [...files.keys()].filter((name) => name.endsWith(".html"));
    return pages.map((page) => {
        const sum = [...reached(page, files)].reduce((sum, name) => sum + bytes(name), 0);
        if (sum > MAX_PAGE_BYTES) {
            throw new Error(`${page} takes ${sum} bytes compressed, over the limit of ${MAX_PAGE_BYTES}`);
        }
        return [posix.join("/", posix.dirname(page)), sum];
    });
}

/** A page and all files that it loads at once. */
function reached(page, files) {
    const all = new Set([page]);
    for (const name of all) {
        if (/\.(html|js|css)$/.test(name)) {
            parts(files.get(name).toString()).filter((part) => files.has(part)).forEach((part) => all.add(part));
        }
    }
    return all;
}

/** The files below assets/ that a text names. */
function parts(text) {
    const names = [...text.matchAll(/["'`(](\/assets\/[\w./-]+)/g)].map(([, path]) => path.slice(1));
    return names.filter((name) => !name.endsWith(".lazy.js"));
}

const REFUSED = [
    [/<style/i, "a style element"],
    [/\sstyle=/i, "a style attribute"],
    [/<script(?![^>]*\ssrc=)/i, "an inline script"],
    [/<[^>]*\son[a-z]+=/i, "a handler in an attribute"],
    [/<(script|link|img|iframe|source)\b[^>]*\s(src|href)="(https?:)?\/\//i, "a part of another host"],
];
