// Many official clients whose connections break again and again, and the messages that they receive nevertheless.

import {AckExtension} from "cometd/AckExtension.js";
import {WebSocketTransport} from "cometd";

import {BreakingProxy} from "./breaking-proxy.js";
import {connect, disconnect, newClient, sleep, subscribe} from "./client.js";
import {OwnBrowserLongPolling} from "./node.js";
import {SCHEME} from "./server.js";

/** Messages per second. */
const RATE = 2;

/** The time that clients have at the end to reconnect and to receive the rest. */
const RECOVERY_LIMIT_MS = 90000;

/**
 * Publishes twice a second to `clients` sessions that acknowledge, while each one's connections break every `cutEveryMs`
 * for `offlineMs`; resolves to what was wrong, in counts over all sessions.
 */
export async function jitter(server, transport, {clients, seconds, cutEveryMs, offlineMs}) {
    const sessions = [];
    try {
        for (let index = 0; index < clients; ++index) {
            sessions.push(await open(server, transport, {cutEveryMs, offlineMs}));
        }
        sessions.forEach(({proxy}) => proxy.begin());
        const count = seconds * RATE;
        for (let number = 0; number < count; ++number) {
            await server.control("publish", "/jitter", String(number));
            await sleep(1000 / RATE);
        }
        sessions.forEach(({proxy}) => proxy.end());
        const end = Date.now() + RECOVERY_LIMIT_MS;
        while (Date.now() < end && sessions.some(({received}) => new Set(received).size < count)) {
            await sleep(50);
        }
        // Duplicates arrive soon after.
        await sleep(300);
        return tally(sessions, count);
    } finally {
        await Promise.all(sessions.map(({client}) => disconnect(client).catch(() => undefined)));
        sessions.forEach(({proxy}) => proxy.stop());
    }
}

async function open(server, transport, times) {
    const proxy = new BreakingProxy(Number(new URL(server.origin).port), times);
    const url = `${SCHEME}://127.0.0.1:${await proxy.start()}/cometd`;
    const instance = transport === "websocket" ? new WebSocketTransport() : new OwnBrowserLongPolling();
    const client = newClient(url, transport, instance, {maxBackoff: 1000, logLevel: "off"});
    client.registerExtension("ack", new AckExtension());
    const received = [];
    await connect(client);
    await subscribe(client, "/jitter", {push: message => received.push(message.data)});
    // The wire log is dropped, because there are many clients.
    client.wire.push = () => 0;
    return {client, proxy, received, id: client.getClientId()};
}

function tally(sessions, count) {
    const sum = each => sessions.reduce((sum, session) => sum + each(session), 0);
    return {
        expected: sessions.length * count,
        lost: sum(({received}) => count - new Set(received).size),
        doubled: sum(({received}) => received.length - new Set(received).size),
        reordered: sum(({received}) => received.filter((number, index) => index > 0 && number < received[index - 1]).length),
        renewed: sum(({client, id}) => client.getClientId() === id ? 0 : 1),
        cuts: sum(({proxy}) => proxy.cuts)
    };
}
