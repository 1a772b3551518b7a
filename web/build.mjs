// Builds the pages from src/ into dist/, which is committed: who only runs `cargo build` needs no Node.
//
//   node build.mjs           write dist/
//   node build.mjs --check   build in memory and compare with dist/; exit 1 if dist/ is stale
//
// The build finds the entries by their paths:
//
//   src/pages/**/index.html        a page, served at its folder; csp.json beside it loosens its Content-Security-Policy
//   src/assets/*                   a file, served below /assets/ as it is
//   src/start.ts, src/start.css    the start page's
//   src/timer.ts, src/menu.ts, src/encke.css    every page's
//   src/demo/NAME/main.ts          /assets/NAME.js, for the page /demo/NAME
//   src/demo/NAME/style.css        /assets/NAME.css
//   src/demo/NAME/SUB.ts, .css     /assets/NAME-SUB.js, .css, if there is a page /demo/NAME/SUB
//   src/demo/NAME/SUB.worker.ts    /assets/NAME-SUB.worker.js, a module worker
//   src/demo/NAME/SUB.lazy.ts      /assets/NAME-SUB.lazy.js, a module that the page imports by this path when it needs it
//
// A `.tsx` counts as a `.ts`. Beside each file stand its compressed forms (.br, .gz). embedded.rs lists all of them for the program.
// The output is deterministic: the packages are pinned, and nothing here depends on the clock or the machine. The compressed bytes may
// differ between versions of Node, so those that unpack to the right content are left as they are.

import { build } from "esbuild";
import { existsSync } from "node:fs";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { withMenu } from "./demos.mjs";
import { compressed, listing, unpack } from "./embed.mjs";
import { faults, weights } from "./pages.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const DIST = join(HERE, "dist");

const present = new Map(existsSync(DIST) ? await copies("dist", ".") : []);
const policies = new Map();
const plain = new Map([...(await pages()), ...(await bundles()), ...(await copies("src/assets", "assets"))]
    .sort(([one], [other]) => (one < other ? -1 : 1)));
const found = faults(plain);
if (found.length > 0) {
    fail(found.join("\nweb: "));
}
const forms = compressed(plain, present);
const files = new Map([...plain, ...forms, ["embedded.rs", listing(plain, forms, policies)]]);
if (process.argv.includes("--check")) {
    check();
} else {
    await write();
}
for (const [page, bytes] of weights(plain, forms)) {
    console.log(`${String(bytes).padStart(8)} bytes compressed  ${page}`);
}

/** The pages: [path in dist, content] pairs. */
async function pages() {
    const all = await copies("src/pages", ".");
    for (const [name, content] of all.filter(([name]) => basename(name) === "csp.json")) {
        policies.set(dirname(name), JSON.parse(content));
    }
    const pages = all.filter(([name]) => basename(name) !== "csp.json");
    const names = new Set(pages.map(([name]) => name));
    return pages.map(([name, content]) => [name, Buffer.from(withMenu(name, content.toString(), names))]);
}

/** Scripts and style sheets, minified: [path in dist, content] pairs. */
async function bundles() {
    const result = await build({
        absWorkingDir: HERE,
        entryPoints: await entries(),
        outdir: "dist",
        bundle: true,
        minify: true,
        format: "esm",
        target: "es2022",
        write: false,
        // The licence of the bundled client asks for a notice; its own headers are dropped with the other comments.
        banner: { js: "/*! Encke's pages; chat, slides and Screenpush with the cometd client (cometd.org); all Apache-2.0 */" },
        legalComments: "inline",
    });
    return result.outputFiles.map((file) => [slashed(relative(DIST, file.path)), Buffer.from(file.contents)]);
}

/** The entries of esbuild: files of src/ with their paths in dist/, without the ending. */
async function entries() {
    const shared = ["start.ts", "start.css", "timer.ts", "menu.ts", "encke.css"].map((name) => ({ in: `src/${name}`, out: `assets/${stem(name)}` }));
    const demos = (await copies("src/demo", ".")).map(([name]) => name).sort();
    return [...shared, ...demos.flatMap((name) => {
        const out = bundleOf(name);
        return out === undefined ? [] : [{ in: `src/demo/${name}`, out }];
    })];
}

/** The path of the bundle that begins with a file of src/demo/; undefined for a module of others. */
function bundleOf(path) {
    const [demo, name, ...deeper] = path.split("/");
    if (name === undefined || deeper.length > 0 || !/\.(tsx?|css)$/.test(name)) {
        return undefined;
    }
    if (["main.ts", "main.tsx", "style.css"].includes(name)) {
        return `assets/${demo}`;
    }
    const isOwn = /\.(worker|lazy)\.tsx?$/.test(name) || existsSync(join(HERE, "src/pages/demo", demo, stem(name), "index.html"));
    return isOwn ? `assets/${demo}-${stem(name)}` : undefined;
}

/** Files of a folder and below, as they are. */
async function copies(from, to) {
    const names = (await readdir(join(HERE, from), { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    return Promise.all(names.map(async (entry) => {
        const path = join(entry.parentPath ?? entry.path, entry.name);
        return [slashed(join(to, relative(join(HERE, from), path))), await readFile(path)];
    }));
}

/** Fails unless dist/ holds exactly the files just built. */
function check() {
    const same = (name, content) => present.has(name) && unpack(name, present.get(name)).equals(unpack(name, content));
    const stale = [...files].filter(([name, content]) => !same(name, content)).map(([name]) => name);
    const extra = [...present.keys()].filter((name) => !files.has(name));
    if (stale.length + extra.length > 0) {
        fail(`dist/ is not what the sources build (stale: ${stale.join(", ") || "none"}; extra: ${extra.join(", ") || "none"}); run npm run build`);
    }
    console.log(`dist/ is up to date: ${files.size} files`);
}

async function write() {
    await rm(DIST, { recursive: true, force: true });
    for (const [name, content] of files) {
        const path = join(DIST, name);
        await mkdir(dirname(path), { recursive: true });
        await writeFile(path, content);
    }
    console.log(`wrote ${files.size} files`);
}

function stem(name) {
    return name.replace(/\.[^.]+$/, "");
}

function slashed(path) {
    return path.replaceAll("\\", "/");
}

function fail(reason) {
    console.error(`web: ${reason}`);
    process.exit(1);
}
