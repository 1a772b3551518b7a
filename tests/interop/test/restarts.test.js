// A server that keeps its data, stopped and started again: the official client goes on with a connect, not with a handshake.

import assert from "node:assert/strict";
import {mkdtemp, rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {test} from "node:test";

import {AckExtension} from "cometd/AckExtension.js";
import {LongPollingTransport, WebSocketTransport} from "cometd";
import {adapt} from "cometd-nodejs-client";

import {Inbox, connect, disconnect, newClient, subscribe} from "../src/client.js";
import {IS_COMETD, Server} from "../src/server.js";

adapt();

const TRANSPORTS = {websocket: WebSocketTransport, "long-polling": LongPollingTransport};

for (const transport of Object.keys(TRANSPORTS)) {
    for (const acknowledges of [false, true]) {
        const name = `a restart over ${transport}${acknowledges ? " with ack" : ""}: the session goes on, with every message once`;
        test(name, {skip: IS_COMETD}, async context => {
            const data = await mkdtemp(join(tmpdir(), "encke-interop-"));
            const server = new Server({data, drain_spread_ms: "500"});
            context.after(async () => {
                await server.dispose();
                await rm(data, {recursive: true});
            });
            await server.start();
            await survivesRestarts(server, transport, acknowledges);
        });
    }
}

async function survivesRestarts(server, transport, acknowledges) {
    const client = newClient(server.origin + "/cometd", transport, new TRANSPORTS[transport]());
    if (acknowledges) {
        client.registerExtension("ack", new AckExtension());
    }
    let handshakes = 0;
    client.addListener("/meta/handshake", () => ++handshakes);
    await connect(client);
    const clientId = client.getClientId();
    const inbox = new Inbox();
    await subscribe(client, "/news", inbox);
    let published = 0;
    for (let round = 0; round < 3; ++round) {
        for (let number = 0; number < 20; ++number) {
            assert.equal(await server.control("publish", "/news", String(published++)), "ok");
        }
        assert.equal(await server.control("stop"), 0);
        await server.start();
        assert.equal(await server.control("sessions"), "sessions 1");
        // These wait for the client.
        for (let number = 0; number < 20; ++number) {
            assert.equal(await server.control("publish", "/news", String(published++)), "ok");
        }
        const received = [];
        while (received.length < 40) {
            received.push((await inbox.next()).data);
        }
        assert.deepEqual(received, Array.from({length: 40}, (_, number) => published - 40 + number));
    }
    await inbox.staysEmpty();
    assert.deepEqual([client.getClientId(), handshakes, client.getStatus()], [clientId, 1, "connected"]);
    await disconnect(client);
}
