// Builds the extension for Chromium and for Firefox, and packs it:
//
//   node build.mjs FOLDER      FOLDER/chromium, FOLDER/firefox, FOLDER/screenpush-chromium.zip, FOLDER/screenpush-firefox.xpi
//
// The packages of ../web build it. The output depends on nothing but the sources.

import { createRequire } from "node:module";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { zip } from "./zip.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const WEB = join(HERE, "../web");
const { build } = createRequire(join(WEB, "package.json"))("esbuild");
const out = resolve(process.argv[2] ?? join(HERE, "../target/screenpush"));
const common = JSON.parse(await readFile(join(HERE, "manifest.json"), "utf8"));

/** The public key gives the extension the same id on every machine, which servers can let in. */
const CHROMIUM_KEY = (await readFile(join(HERE, "chromium.key.txt"), "utf8")).trim();
const BROWSERS = {
    chromium: {
        pack: "screenpush-chromium.zip",
        manifest: { key: CHROMIUM_KEY, minimum_chrome_version: "127", background: { service_worker: "background.js", type: "module" } },
    },
    firefox: {
        pack: "screenpush-firefox.xpi",
        manifest: {
            background: { scripts: ["background.js"], type: "module" },
            browser_specific_settings: { gecko: { id: "screenpush@encke.example", strict_min_version: "142.0", data_collection_permissions: { required: ["websiteContent"] } } },
        },
    },
};

for (const [browser, { pack, manifest }] of Object.entries(BROWSERS)) {
    const folder = join(out, browser);
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
    const bundle = (format, names) => build({
        absWorkingDir: HERE,
        entryPoints: names.map((name) => `src/${name}.ts`),
        outdir: folder,
        bundle: true,
        minify: true,
        format,
        target: "es2022",
        // The official client says `window`, which a service worker has not.
        define: { window: "globalThis" },
        nodePaths: [join(WEB, "node_modules")],
        legalComments: "none",
        banner: { js: "/*! Screenpush of Encke, with the cometd client (cometd.org), both Apache-2.0 */" },
    });
    await bundle("esm", ["background", "menu", "options"]);
    // It may be run twice in one page.
    await bundle("iife", ["content"]);
    await cp(join(HERE, "pages"), folder, { recursive: true });
    await cp(join(HERE, "icons"), folder, { recursive: true });
    await cp(join(WEB, "src/encke.css"), join(folder, "encke.css"));
    await writeFile(join(folder, "manifest.json"), JSON.stringify({ ...common, ...manifest }, null, 2));
    const files = (await readdir(folder)).sort();
    await writeFile(join(out, pack), zip(await Promise.all(files.map(async (name) => [name, await readFile(join(folder, name))]))));
    console.log(`packed ${join(out, pack)}`);
}
