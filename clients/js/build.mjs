// Builds dist/ from what tsc has written to build/: the modules, minified, for pages and Node, and their types.

import { build } from "esbuild";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

// Names of properties that stay inside of a module. None of them is public, on the wire, stored, or of the platform. Those that cross from
// one tab to another are here, too: all tabs and workers of a site would have to be of one build, so they are not.
const INSIDE = `
    isPartial below retain granted isChanging reportGaps connectionLost isRepeated received reached isRestart isGranted hasNoHistory
    beginsEarlier mayMiss isRepeat waiting connectionOpened hasReplied isConfirmed acknowledgesNow replays revive restore wakeAt wake
    patienceMs isFallback failed worked upgrade pauseMs isUsable isRefused mayRetry isAccepted fallbackMs_ random date later isOnline listen
    textBytesMax cookies link environment hasToken continueAt isReady miss hasPositions owner claim takeSession saveSession
    savePositions freeze thaw isSent patienceUntil`.trim().split(/\s+/);

const HERE = fileURLToPath(new URL(".", import.meta.url));
process.chdir(HERE);
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
const options = { bundle: true, minify: true, format: "esm", target: "es2022", legalComments: "none", outdir: "dist", mangleProps: new RegExp(`^(${INSIDE.join("|")})$`) };
await build({ ...options, entryPoints: { encke: "src/index.ts" } });
await build({ ...options, entryPoints: { shared: "src/shared.ts", worker: "src/worker.ts" } });
for (const file of readdirSync("build").filter((name) => name.endsWith(".d.ts"))) {
    cpSync(`build/${file}`, `dist/${file}`);
}
