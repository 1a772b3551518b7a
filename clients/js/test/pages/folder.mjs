// A folder of pages that import the package as it is; the server under test serves it.

import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { RULES } from "../harness.mjs";

const HERE = fileURLToPath(new URL("../..", import.meta.url));

/** Makes it for the tests of a file. Returns a function from further settings to the configuration of a server. */
export async function pages() {
    const files = mkdtempSync(join(tmpdir(), "encke-pages-"));
    after(() => rmSync(files, { recursive: true, force: true }));
    readdirSync(join(HERE, "dist"))
        .filter((name) => name.endsWith(".js"))
        .forEach((name) => cpSync(join(HERE, "dist", name), join(files, name)));
    cpSync(join(HERE, "examples/page.html"), join(files, "prices.html"));
    writeFileSync(join(files, "blank.html"), "<!doctype html><title>blank</title>");
    writeFileSync(join(files, "thread.js"), 'import { connect } from "/encke.js"; connect("/cometd").subscribe("/stock/a", ({ data }) => postMessage(data));');
    const entryPoints = ["svelte.ts", "react.tsx"].map((name) => join(HERE, "test/pages", name));
    await build({ entryPoints, bundle: true, format: "esm", outdir: files, jsx: "automatic", define: { "process.env.NODE_ENV": '"production"' }, logLevel: "error", alias: { encke: join(HERE, "dist/encke.js") } });
    for (const name of ["svelte", "react"]) {
        writeFileSync(join(files, `${name}.html`), `<!doctype html><title>${name}</title><div id="root"></div><script type="module" src="/${name}.js"></script>`);
    }
    return (more = "") => `files = "${files}"\n${more}${RULES}`;
}
