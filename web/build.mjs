// Builds the pages from src/ into dist/, which is committed: who only runs `cargo build` needs no Node.
//
//   node build.mjs           write dist/
//   node build.mjs --check   build in memory and compare with dist/; exit 1 if dist/ is stale
//
// The output is deterministic: esbuild's version is pinned, and nothing here depends on the clock or the machine.

import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const DIST = join(HERE, "dist");

// All of dist/ is embedded in the program and is what a first visit may download.
const MAX_DIST_BYTES = 150 * 1024;

const files = new Map([...(await bundles()), ...(await copies("src/pages", ".")), ...(await copies("src/assets", "assets"))]);
const bytes = [...files.values()].reduce((sum, content) => sum + content.length, 0);
if (bytes > MAX_DIST_BYTES) {
    fail(`the pages take ${bytes} bytes, over the limit of ${MAX_DIST_BYTES}`);
}
if (process.argv.includes("--check")) {
    await check();
} else {
    await write();
}

/** Scripts and style sheets, minified: [path in dist, content] pairs. */
async function bundles() {
    const result = await build({
        absWorkingDir: HERE,
        entryPoints: ["src/start.ts", "src/chat.ts", "src/timer.ts", "src/encke.css"],
        outdir: "dist/assets",
        bundle: true,
        minify: true,
        format: "esm",
        target: "es2022",
        write: false,
        // The licence of the bundled client asks for a notice; its own headers are dropped with the other comments.
        banner: { js: "/*! Encke's pages, with the cometd client (cometd.org), both Apache-2.0 */" },
        legalComments: "inline",
    });
    return result.outputFiles.map((file) => [slashed(relative(DIST, file.path)), Buffer.from(file.contents)]);
}

/** Files that go to dist/ as they are. */
async function copies(from, to) {
    const names = (await readdir(join(HERE, from), { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    return Promise.all(names.map(async (entry) => {
        const path = join(entry.parentPath, entry.name);
        return [slashed(join(to, relative(join(HERE, from), path))), await readFile(path)];
    }));
}

/** Fails unless dist/ holds exactly the files just built. */
async function check() {
    const present = new Map((await copies("dist", ".")));
    const stale = [...files].filter(([name, content]) => !present.get(name)?.equals(content)).map(([name]) => name);
    const extra = [...present.keys()].filter((name) => !files.has(name));
    if (stale.length + extra.length > 0) {
        fail(`dist/ is not what the sources build (stale: ${stale.join(", ") || "none"}; extra: ${extra.join(", ") || "none"}); run npm run build`);
    }
    console.log(`dist/ is up to date: ${files.size} files, ${bytes} bytes`);
}

async function write() {
    await rm(DIST, { recursive: true, force: true });
    for (const [name, content] of files) {
        const path = join(DIST, name);
        await mkdir(dirname(path), { recursive: true });
        await writeFile(path, content);
    }
    console.log(`wrote ${files.size} files, ${bytes} bytes`);
}

function slashed(path) {
    return path.replaceAll("\\", "/");
}

function fail(reason) {
    console.error(`web: ${reason}`);
    process.exit(1);
}
