// The client against other servers: Faye's, and CometD's where `REFERENCE_SERVER` names a program that starts it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { test } from "node:test";
import faye from "faye";
import { freePort } from "../../../tests/free-port.mjs";
import { Counter, Proxy, client, pause, until } from "./harness.mjs";

const { REFERENCE_SERVER } = process.env;

/** Each starts a server on a port, and returns what stops it. */
const SERVERS = {
    Faye: { start: startFaye, transports: ["websocket", "eventsource", "long-polling"], acknowledges: false },
    ...(REFERENCE_SERVER && {
        CometD: { start: (port) => startCometD(port), transports: ["websocket", "long-polling"], acknowledges: false },
        "CometD with its extension ack": { start: (port) => startCometD(port, "--set", "ack=true"), transports: ["websocket", "long-polling"], acknowledges: true },
    }),
};

for (const [name, { start, transports, acknowledges }] of Object.entries(SERVERS)) {
    for (const transport of transports) {
        test(`${name}, ${transport}: messages, and an end`, async (t) => {
            const port = await freePort();
            t.after(await start(port));
            const one = client(t, `http://127.0.0.1:${port}`, { transports: [transport] });
            const got = [];
            await one.subscribe("/stock/*", ({ channel, data }) => got.push([channel, data])).ready;
            assert.equal(one.state.transport, transport);
            const sent = [{ price: 1 }, [1, 2], "text", { event: { replayId: 1 } }];
            for (const data of sent) {
                await one.publish("/stock/GOOG", data);
            }
            await until("all messages", () => got.length === sent.length);
            assert.deepEqual(got, sent.map((data) => ["/stock/GOOG", data]));
            await assert.rejects(one.subscribe("/meta/connect").ready, { code: "refused" });
            await one.close();
        });

        test(`${name}, ${transport}: a broken connection${acknowledges ? " loses nothing" : " is a gap"}`, async (t) => {
            const port = await freePort();
            t.after(await start(port));
            const proxy = await Proxy.start(t, port);
            const counter = new Counter();
            const reader = client(t, proxy.url, { transports: [transport], backoffMaxMs: 300 });
            await reader.subscribe("/stock/a", counter, counter.receive).ready;
            const writer = client(t, `http://127.0.0.1:${port}`);
            for (let n = 1; n <= 40; n++) {
                await writer.publish("/stock/a", { n });
                if (n % 10 === 0) {
                    proxy.cut();
                }
            }
            // The last break may not have been noticed yet.
            let last = 40;
            await until("a message after the breaks", async () => {
                await writer.publish("/stock/a", { n: (last += 1) });
                await pause(50);
                return counter.got.get("/stock/a")?.at(-1) > 40;
            });
            await until("the last message", () => counter.got.get("/stock/a").at(-1) === last);
            assert.deepEqual(counter.wrong, []);
            assert.ok(counter.count() === last || counter.gaps.length > 0, "lost without a gap");
            if (acknowledges) {
                assert.equal(counter.count(), last);
                assert.deepEqual(counter.gaps, []);
            }
        });

        test(`${name}, ${transport}: another process takes the place of the server`, async (t) => {
            const port = await freePort();
            const stop = await start(port);
            const counter = new Counter();
            const one = client(t, `http://127.0.0.1:${port}`, { transports: [transport], backoffMaxMs: 300 });
            await one.subscribe("/stock/a", counter, counter.receive).ready;
            await stop();
            await until("the break", () => one.state.name === "reconnecting");
            t.after(await start(port));
            await until("the connection", () => one.state.name === "connected");
            await one.publish("/stock/a", { n: 1 });
            await until("the message", () => counter.count() === 1);
            assert.deepEqual(counter.gaps, [{ channel: "/stock/a", cause: "unknown" }]);
        });
    }
}

test("Faye: the best transport is a WebSocket", async (t) => {
    const port = await freePort();
    t.after(await startFaye(port));
    const one = client(t, `http://127.0.0.1:${port}`);
    await one.ready;
    assert.equal(one.state.transport, "websocket");
});

async function startFaye(port) {
    const server = createServer((_request, response) => response.writeHead(404).end());
    const sockets = new Set();
    server.on("connection", (socket) => sockets.add(socket));
    new faye.NodeAdapter({ mount: "/cometd", timeout: 5 }).attach(server);
    await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
    return async () => {
        sockets.forEach((socket) => socket.destroy());
        await new Promise((resolve) => server.close(resolve));
    };
}

async function startCometD(port, ...options) {
    const program = spawn(REFERENCE_SERVER, ["--port", String(port), ...options], { stdio: ["pipe", "pipe", "inherit"] });
    await new Promise((resolve) => createInterface({ input: program.stdout }).on("line", (line) => line.startsWith("listening on ") && resolve()));
    return async () => {
        if (program.exitCode === null && program.signalCode === null) {
            program.kill("SIGKILL");
            await once(program, "exit");
        }
    };
}
