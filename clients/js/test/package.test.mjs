// The package as others get it: its size, and a fresh project that type-checks and builds with it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { brotliCompressSync } from "node:zlib";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const BYTES_MAX = { "encke.js": 10_000, "persist.js": 1_000, "presence.js": 1_000, "shared.js": 1_500 };

for (const [name, bytesMax] of Object.entries(BYTES_MAX)) {
    test(`${name} has at most ${bytesMax} bytes, compressed`, (t) => {
        const { length } = brotliCompressSync(readFileSync(join(HERE, "dist", name)));
        t.diagnostic(`${length} bytes`);
        assert.ok(length <= bytesMax, `${length}`);
    });
}

test("a fresh project installs the package, type-checks strictly, and builds with Vite", (t) => {
    const project = mkdtempSync(join(tmpdir(), "encke-project-"));
    t.after(() => rmSync(project, { recursive: true, force: true }));
    const run = (command, ...words) => execFileSync(command, words, { cwd: project, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    execFileSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", project], { cwd: HERE });
    const [archive] = readdirSync(project);
    writeFileSync(join(project, "package.json"), '{ "name": "fresh", "private": true, "type": "module" }');
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", `./${archive}`);
    assert.deepEqual(Object.keys(JSON.parse(readFileSync(join(project, "node_modules/encke/package.json"))).dependencies ?? {}), []);
    writeFileSync(join(project, "index.html"), '<script type="module" src="/main.ts"></script>');
    writeFileSync(join(project, "main.ts"), PROGRAM);
    cpSync(join(HERE, "examples/svelte.ts"), join(project, "svelte.ts"));
    for (const moduleResolution of ["bundler", "nodenext"]) {
        const module = moduleResolution === "bundler" ? "esnext" : "nodenext";
        const compilerOptions = { target: "es2022", lib: ["es2022", "dom", "dom.iterable"], types: [], module, moduleResolution, strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true };
        writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["main.ts", "svelte.ts"] }));
        try {
            run(join(HERE, "node_modules/.bin/tsc"));
        } catch (error) {
            assert.fail(error.stdout);
        }
    }
    run(join(HERE, "node_modules/.bin/vite"), "build", "--logLevel", "error");
    const built = readdirSync(join(project, "dist/assets"));
    assert.ok(built.some((name) => name.endsWith(".js")));
});

const PROGRAM = `
import { EnckeError, connect } from "encke";
import type { Gap, Message, Position, State } from "encke";
import { persist } from "encke/persist";
import { presence } from "encke/presence";
import { sharedWorker, tabs } from "encke/shared";

interface Price {
    price: number;
}

const client = connect("https://push.example.com", {
    token: async (why) => (await fetch("/login/token?why=" + why)).text(),
    persist: persist(),
    shared: tabs,
    transports: ["websocket", "long-polling"],
});
export const other = connect("https://push.example.com", { shared: sharedWorker("/worker.js"), persist: persist(localStorage) });
const stop: () => void = client.on("state", (state: State) => console.log(state.name, state.transport));
client.on("gap", (gap: Gap) => console.log(gap.channel, gap.lost?.from));
client.on("error", (error: EnckeError) => console.log(error.status));
const subscription = client.subscribe<Price>("/stock/*", { from: "earliest", onGap: (gap) => console.log(gap.cause) }, (message: Message<Price>) => {
    const position: Position | undefined = message.position;
    console.log(message.data.price.toFixed(2), position?.epoch);
});
await subscription.ready;
for await (const { channel, data } of client.subscribe<Price>("/stock/GOOG")) {
    console.log(channel, data.price);
    break;
}
try {
    const { position } = await client.publish("/stock/GOOG", { price: 17 }, { timeoutMs: 5_000, signal: AbortSignal.timeout(1_000) });
    console.log(position?.id, await client.call<{ a: number }>("/service/echo", { a: 1 }));
} catch (error) {
    console.log(error instanceof EnckeError && error.isTransient);
}
const room = presence(client, "/room/1", (room) => console.log([...room].map(({ user }) => user), room.size));
room.close();
stop();
await client.close();
`;
