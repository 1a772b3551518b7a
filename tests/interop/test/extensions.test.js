// The official client's extensions: those that the server answers, and those that it has to ignore.

import assert from "node:assert/strict";
import {test} from "node:test";
import {setTimeout} from "node:timers/promises";

import {AckExtension} from "cometd/AckExtension.js";
import {BinaryExtension} from "cometd/BinaryExtension.js";
import {ReloadExtension} from "cometd/ReloadExtension.js";
import {TimeStampExtension} from "cometd/TimeStampExtension.js";
import {TimeSyncExtension} from "cometd/TimeSyncExtension.js";
import {LongPollingTransport, WebSocketTransport} from "cometd";
import {adapt} from "cometd-nodejs-client";

import {Proxy} from "../src/proxy.js";
import {Inbox, connect, disconnect, newClient, nextMeta, subscribe} from "../src/client.js";
import {SCHEME, Server} from "../src/server.js";

adapt();

const TRANSPORTS = {websocket: WebSocketTransport, "long-polling": LongPollingTransport};

/** Declares a test with a server and a way to make clients of it. */
function testWithServer(name, run) {
    test(name, async context => {
        const server = new Server({timestamps: "true", timeout_ms: "1000"});
        await server.start();
        context.after(() => server.dispose());
        await run((extensions, transport = "websocket", origin = server.origin) => {
            const client = newClient(origin + "/cometd", transport, new TRANSPORTS[transport]());
            Object.entries(extensions).forEach(([key, extension]) => client.registerExtension(key, extension));
            return client;
        }, server);
    });
}

/** Waits until the server has no WebSocket any more. */
async function socketsAreClosed(origin) {
    const isOpen = async () => !/^encke_websockets(\{.*\})? 0$/m.test(await (await fetch(origin + "/metrics")).text());
    while (await isOpen()) {
        await setTimeout(10);
    }
}

testWithServer("binary: bytes arrive as they were sent", async newClient => {
    const client = newClient({binary: new BinaryExtension()});
    await connect(client);
    const inbox = new Inbox();
    await subscribe(client, "/binary", inbox);
    const bytes = Uint8Array.from({length: 259}, (_, index) => index % 256);
    client.publishBinary("/binary", bytes, true, {name: "all"});
    const {data} = await inbox.next();
    assert.deepEqual(new Uint8Array(data.data), bytes);
    assert.deepEqual([data.last, data.meta], [true, {name: "all"}]);
    await disconnect(client);
});

testWithServer("reload: a new page resumes the session and receives the messages published meanwhile", async (newClient, server) => {
    const stored = new Map();
    globalThis.window.sessionStorage = {
        getItem: key => stored.get(key) ?? null,
        setItem: (key, value) => stored.set(key, value),
        removeItem: key => stored.delete(key)
    };
    const before = newClient({reload: new ReloadExtension()});
    await connect(before);
    await subscribe(before, "/news", new Inbox());
    const id = before.getClientId();
    before.reload();
    // Without acknowledgement, the messages that went to the old page's socket would be lost.
    await socketsAreClosed(server.origin);
    await server.control("publish", "/news", "1");

    const after = newClient({reload: new ReloadExtension()});
    const inbox = new Inbox();
    after.addListener("/meta/handshake", () => after.subscribe("/news", message => inbox.push(message)));
    const {handshake} = await connect(after);
    assert.deepEqual([handshake.ext.reload, after.getClientId()], [true, id]);
    assert.equal((await inbox.next()).data, 1);
    assert.equal(await server.control("sessions"), "sessions 1");
    await disconnect(after);
});

testWithServer("timesync and timestamp: the clocks agree, as both run on this machine", async newClient => {
    const timesync = new TimeSyncExtension();
    const client = newClient({timesync, timestamp: new TimeStampExtension()});
    const {connect: reply} = await connect(client);
    assert.ok(Number.isFinite(Date.parse(reply.timestamp)), reply.timestamp);
    assert.ok(Math.abs(timesync.getTimeOffset()) < 60_000, String(timesync.getTimeOffset()));
    await disconnect(client);
});

for (const transport of ["websocket", "long-polling"]) {
    testWithServer(`ack over ${transport}: messages lost with a connection come again, once and in order`, async (newClient, server) => {
        const proxy = new Proxy(Number(new URL(server.origin).port));
        await proxy.start();
        try {
            const client = newClient({ack: new AckExtension()}, transport, `${SCHEME}://127.0.0.1:${proxy.port}`);
            const {handshake} = await connect(client);
            assert.equal(handshake.ext.ack, true);
            const inbox = new Inbox();
            await subscribe(client, "/a", inbox);
            for (let number = 0; number < 40; ++number) {
                const lost = number % 10 === 5 ? proxy.swallow() : undefined;
                await server.control("publish", "/a", String(number));
                await lost;
                if (number % 10 === 7) {
                    proxy.cut();
                }
            }
            const received = [];
            while (received.length < 40) {
                received.push((await inbox.next()).data);
            }
            assert.deepEqual(received, Array.from({length: 40}, (_, number) => number));
            await disconnect(client);
        } finally {
            proxy.stop();
        }
    });
}
