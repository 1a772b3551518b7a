// Builds dist/ from what tsc has written to build/: the modules, minified, for pages and Node, and their types.

import { build } from "esbuild";
import { cpSync, mkdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

// Properties that no program, platform, message, store or other module sees get short names.
const INSIDE = `
    beginsEarlier connectionLost continueAt hasNoHistory hasPositions hasReplied isAccepted isChanging isConfirmed isGranted isOrdered
    isPartial isRefused isRepeat isRestart isUsable mayMiss mayRetry attemptMs pauseMs reportGaps revive textBytesMax wakeAt`;

const HERE = fileURLToPath(new URL(".", import.meta.url));
process.chdir(HERE);
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
const options = { bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", outdir: "dist", mangleProps: new RegExp(`^(${INSIDE.trim().split(/\s+/).join("|")})$`) };
await build({ ...options, entryPoints: { encke: "src/index.ts", node: "src/node.ts", persist: "src/persist.ts", presence: "src/presence.ts", shared: "src/shared.ts", worker: "src/worker.ts" } });
for (const name of ["index", "client", "errors", "persist", "presence", "shared", "subscription", "types", "worker"]) {
    cpSync(`build/${name}.d.ts`, `dist/${name}.d.ts`);
}
