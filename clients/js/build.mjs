// Builds dist/ from what tsc has written to build/: the modules, minified, for pages and Node, and their types.

import { build } from "esbuild";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
process.chdir(HERE);
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
const options = { bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", outdir: "dist" };
await build({ ...options, entryPoints: { encke: "src/index.ts" } });
await build({ ...options, entryPoints: { presence: "src/presence.ts", shared: "src/shared.ts", worker: "src/worker.ts" } });
for (const file of readdirSync("build").filter((name) => name.endsWith(".d.ts"))) {
    cpSync(`build/${file}`, `dist/${file}`);
}
