// Builds the viewer's page of Screenpush as one file, which works from a disk and from any web server:
//
//   node viewer.mjs FILE

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));

const [script, style, page, icon] = await Promise.all([
    bundle({ entryPoints: ["src/demo/screenpush/watch.ts"], format: "esm", target: "es2022" }),
    bundle({ stdin: { contents: '@import "./src/encke.css"; @import "./src/demo/screenpush/style.css";', loader: "css", resolveDir: HERE } }),
    readFile(join(HERE, "src/pages/demo/screenpush/watch/index.html"), "utf8"),
    readFile(join(HERE, "src/assets/comet.svg"), "utf8"),
]);
const picture = `data:image/svg+xml;base64,${Buffer.from(icon).toString("base64")}`;
// The policy of the page that a server sends, for a page that no server sends.
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; connect-src http: https: ws: wss:; base-uri 'none'; form-action 'none'`;
const whole = page
    .replace("<html ", "<html data-alone ")
    .replace("<head>", () => `<head>\n  <meta http-equiv="Content-Security-Policy" content="${policy}">`)
    .replace(/ {2}<link rel="stylesheet"[^>]*>\n/g, "")
    .replace(/<script [^>]*><\/script>/, () => `<style>${style}</style>\n  <script type="module">${script}</script>`)
    .replace(/<a class="brand" href="\/">(.*)<\/a>/, '<span class="brand">$1</span>')
    .replaceAll("/assets/comet.svg", picture);
const file = resolve(process.argv[2] ?? "viewer.html");
await mkdir(dirname(file), { recursive: true });
await writeFile(file, whole);
console.log(`wrote ${file}, ${Buffer.byteLength(whole)} bytes`);

async function bundle(options) {
    const { outputFiles } = await build({ absWorkingDir: HERE, bundle: true, minify: true, write: false, legalComments: "none", ...options });
    // Nothing in it may end the element around it.
    return outputFiles[0].text.replaceAll("</script", "<\\/script").trim();
}

function hash(text) {
    return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}
