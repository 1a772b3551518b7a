// A client under virtual time: transports, tokens, replies, sleep, pages that follow each other.

import assert from "node:assert/strict";
import { test } from "node:test";
import { persist as persistIn } from "../build/persist.js";
import { clientIn, world } from "./world.mjs";

const page = new EventTarget();
globalThis.addEventListener = page.addEventListener.bind(page);

/** A store of texts, as `sessionStorage` is one. */
function storeOf() {
    const texts = new Map();
    return { texts, getItem: (name) => texts.get(name) ?? null, setItem: (name, text) => void texts.set(name, text), removeItem: (name) => void texts.delete(name) };
}

for (const way of ["refused", "swallowed"]) {
    test(`a WebSocket that a proxy has ${way} is replaced within a second, and the next page does not try it`, async () => {
        const scene = world(1);
        const store = storeOf();
        scene.network[way].add("websocket");
        const client = clientIn(scene, { store });
        await scene.time.run(1_000);
        assert.deepEqual([client.state.name, client.state.transport], ["connected", "long-polling"]);
        const next = clientIn(scene, { store });
        await scene.time.run(200);
        assert.equal(next.state.transport, "long-polling");
        // An hour later a page tries again.
        scene.network[way].clear();
        await scene.time.run(3_700_000);
        const later = clientIn(scene, { store });
        await scene.time.run(500);
        assert.equal(later.state.transport, "websocket");
    });
}

test("after a break, a fallback that has lasted returns to the WebSocket, and loses nothing", async () => {
    const scene = world(2);
    scene.network.swallowed.add("websocket");
    const client = clientIn(scene, {});
    const got = [];
    client.subscribe("/p/x", ({ data }) => got.push(data.n));
    await scene.time.run(1_500);
    assert.equal(client.state.transport, "long-polling");
    scene.network.swallowed.clear();
    for (let n = 1; n <= 400; n++) {
        scene.server.publish("/p/x", { n });
        await scene.time.run(1_000);
    }
    scene.network.cut();
    await scene.time.run(40_000);
    assert.equal(client.state.transport, "websocket");
    assert.deepEqual(got, Array.from({ length: 400 }, (_, index) => index + 1));
});

test("a slow network is not taken for a proxy", async () => {
    const scene = world(3);
    const store = storeOf();
    const delayed = scene.time.later.bind(scene.time);
    scene.time.later = (run, ms) => delayed(run, ms < 25 ? ms + 900 : ms);
    const client = clientIn(scene, { store });
    await scene.time.run(30_000);
    assert.equal(client.state.name, "connected");
    assert.equal(store.texts.size, 0);
});

test("a server that is away is asked again after pauses that grow, differ and have a limit", async () => {
    const scene = world(4);
    scene.server.isUp = false;
    const times = [];
    const client = clientIn(scene, { transports: ["long-polling"], backoffMaxMs: 10_000 });
    client.on("state", () => times.push(scene.time.now));
    await scene.time.run(120_000);
    const pauses = times.slice(1).map((time, index) => time - times[index]);
    assert.ok(pauses.length > 10 && pauses.length < 40, `${pauses}`);
    assert.ok(Math.max(...pauses) <= 10_100 && pauses.at(-1) > 4_900, `${pauses}`);
    assert.ok(new Set(pauses).size > 5);
    scene.server.isUp = true;
    await scene.time.run(11_000);
    assert.equal(client.state.name, "connected");
});

test("offline is a state, and the network coming back ends the pause", async () => {
    const scene = world(5);
    const client = clientIn(scene, {});
    await scene.time.run(500);
    scene.network.isBroken = true;
    client.machine.isOnline = false;
    client.machine.happen("offline");
    scene.network.cut();
    await scene.time.run(60_000);
    assert.equal(client.state.name, "offline");
    scene.network.isBroken = false;
    client.machine.isOnline = true;
    client.machine.happen("online");
    await scene.time.run(300);
    assert.equal(client.state.name, "connected");
});

test("a connection that died in sleep is found after waking, in seconds", async () => {
    const scene = world(6);
    const client = clientIn(scene, {});
    await scene.time.run(500);
    // Nobody says that it is gone.
    scene.network.connections.forEach((wire) => (wire.isOpen = false));
    scene.network.connections.clear();
    await scene.time.run(2_000);
    assert.equal(client.state.name, "connected");
    client.machine.happen("slept");
    await scene.time.run(4_000);
    assert.equal(client.state.name, "connected");
    assert.equal(scene.network.connections.size, 1);
});

test("a page that sees itself shown does not give up a connection that works", async () => {
    const scene = world(7);
    const client = clientIn(scene, {});
    await scene.time.run(500);
    const [wire] = scene.network.connections;
    client.machine.happen("shown");
    await scene.time.run(10_000);
    assert.deepEqual([...scene.network.connections], [wire]);
});

test("publications resolve, wait for the connection, and fail when it breaks before the reply", async () => {
    const scene = world(8);
    const client = clientIn(scene, {});
    const early = client.publish("/p/x", { n: 1 });
    await scene.time.run(500);
    await early;
    const doubtful = client.publish("/p/x", { n: 2 });
    await Promise.resolve();
    scene.network.cut();
    const failure = assert.rejects(doubtful, { code: "connection_lost", isTransient: true });
    await scene.time.run(60_000);
    await failure;
});

test("a message that is too long is refused at once and never again transient", async () => {
    const scene = world(9);
    const client = clientIn(scene, { messageBytesMax: 1_000 });
    await scene.time.run(500);
    await assert.rejects(client.publish("/p/x", "é".repeat(400)), { code: "too_large", isTransient: false });
    const published = client.publish("/p/x", "é".repeat(300));
    await scene.time.run(500);
    await published;
});

test("texts with many subscriptions and positions stay below 33 KB", async () => {
    const scene = world(10);
    const client = clientIn(scene, {});
    for (let number = 0; number < 900; number++) {
        client.subscribe(`/p/channel-${number}`, () => undefined);
    }
    const positions = Object.fromEntries(Array.from({ length: 3_000 }, (_, number) => [`/h/channel-${number}`, { epoch: "abcdefgh", id: 1838428753971200 + number }]));
    client.subscribe("/h/*", { positions }, () => undefined);
    await scene.time.run(3_000);
    assert.equal(client.state.name, "connected");
    const longest = Math.max(...scene.server.texts.map((text) => text.length));
    assert.ok(longest < 33_000, `${longest}`);
    const asked = scene.server.texts.flatMap((text) => JSON.parse(text)).filter(({ subscription }) => subscription === "/h/*");
    assert.equal(Object.keys(Object.assign({}, ...asked.map(({ ext }) => ext.replay))).length, 3_001);
    assert.ok(asked.every(({ ext }) => Object.keys(ext.replay).length <= 1_000));
    client.subscribe("/g/*", { from: "earliest", positions: Object.fromEntries(Object.entries(positions).map(([name, position]) => [name.replace("/h/", "/g/"), position])) }, () => undefined);
    await scene.time.run(3_000);
    const begins = scene.server.texts.flatMap((text) => JSON.parse(text)).filter(({ subscription }) => subscription === "/g/*").map(({ ext }) => ext.replay["/g/*"]);
    assert.deepEqual([begins.slice(0, -1).every((begin) => begin.more === true), begins.at(-1), begins.length > 7], [true, -2, true]);
});

test("an abort and a time-out end the waiting", async (t) => {
    const scene = world(11);
    scene.server.isUp = false;
    const client = clientIn(scene, {});
    const abort = new AbortController();
    const aborted = assert.rejects(client.publish("/p/x", 1, { signal: abort.signal }), { code: "aborted" });
    abort.abort();
    await aborted;
    await assert.rejects(client.publish("/p/x", 1, { signal: AbortSignal.abort() }), { code: "aborted" });
    await assert.rejects(client.call("/service/echo", 1, { timeoutMs: 20 }), { code: "timed_out" });
    await assert.rejects(client.publish("/p/x", undefined), TypeError);
});

test("publications without end are refused, not stored", async () => {
    const scene = world(12);
    scene.server.isUp = false;
    const client = clientIn(scene, { pendingMax: 2 });
    const waiting = [client.publish("/p/x", 1), client.publish("/p/x", 2)];
    await assert.rejects(client.publish("/p/x", 3), { code: "too_many" });
    scene.server.isUp = true;
    await scene.time.run(5_000);
    await Promise.all(waiting);
});

test("an iterator gets the messages, and its end ends the subscription", async () => {
    const scene = world(13);
    const client = clientIn(scene, {});
    const subscription = client.subscribe("/p/x");
    await scene.time.run(500);
    await subscription.ready;
    [1, 2, 3].forEach((n) => scene.server.publish("/p/x", { n }));
    await scene.time.run(500);
    const got = [];
    for await (const { channel, data } of subscription) {
        got.push([channel, data.n]);
        if (data.n === 3) {
            break;
        }
    }
    assert.deepEqual(got, [["/p/x", 1], ["/p/x", 2], ["/p/x", 3]]);
    await scene.time.run(500);
    assert.equal([...scene.server.sessions.values()][0].names.size, 0);
});

test("a slow reader loses the oldest messages, and learns how many", async () => {
    const scene = world(14);
    const client = clientIn(scene, {});
    const gaps = [];
    const subscription = client.subscribe("/p/x", { messagesMax: 10, onGap: (gap) => gaps.push(gap) });
    await scene.time.run(500);
    for (let n = 1; n <= 25; n++) {
        scene.server.publish("/p/x", { n });
    }
    await scene.time.run(500);
    subscription.unsubscribe();
    const got = [];
    for await (const { data } of subscription) {
        got.push(data.n);
    }
    assert.equal(got.at(-1), 25);
    assert.equal(gaps.reduce((sum, { cause, discarded }) => sum + (cause === "slow" ? discarded : NaN), 0) + got.length, 25);
});

test("a page continues where the one before it was, in the same session", async () => {
    const scene = world(15);
    const persist = storeOf();
    const first = clientIn(scene, { persist: persistIn(persist) });
    const got = [];
    const read = ({ channel, data }) => got.push([channel, data.n]);
    first.subscribe("/h/a", read);
    first.subscribe("/p/x", read);
    await scene.time.run(500);
    scene.server.publish("/h/a", { n: 1 });
    scene.server.publish("/p/x", { n: 1 });
    await scene.time.run(500);
    leave();
    scene.server.publish("/h/a", { n: 2 });
    scene.server.publish("/p/x", { n: 2 });
    const second = clientIn(scene, { persist: persistIn(persist) });
    const gaps = [];
    second.subscribe("/h/a", { onGap: (gap) => gaps.push(gap) }, read);
    second.subscribe("/p/x", { onGap: (gap) => gaps.push(gap) }, read);
    await scene.time.run(500);
    assert.equal(second.state.resumed, true);
    scene.server.publish("/h/a", { n: 3 });
    await scene.time.run(500);
    assert.deepEqual(got.sort(), [["/h/a", 1], ["/h/a", 2], ["/h/a", 3], ["/p/x", 1], ["/p/x", 2]]);
    assert.deepEqual(gaps, []);
    assert.equal(scene.server.handshakes, 1);
});

test("a page continues at its positions when its session is gone, and learns what it cannot have", async () => {
    const scene = world(16);
    const persist = storeOf();
    const first = clientIn(scene, { persist: persistIn(persist) });
    const got = [];
    const read = ({ channel, data }) => got.push([channel, data.n]);
    first.subscribe("/h/a", read);
    first.subscribe("/p/x", read);
    await scene.time.run(500);
    scene.server.publish("/h/a", { n: 1 });
    await scene.time.run(500);
    leave();
    await scene.time.run(60_000);
    scene.server.publish("/h/a", { n: 2 });
    const gaps = [];
    const second = clientIn(scene, { persist: persistIn(persist) });
    second.subscribe("/h/a", { onGap: (gap) => gaps.push(gap.channel) }, read);
    second.subscribe("/p/x", { onGap: (gap) => gaps.push(gap.channel) }, read);
    await scene.time.run(1_000);
    assert.deepEqual(got, [["/h/a", 1], ["/h/a", 2]]);
    assert.deepEqual(gaps, ["/p/x"]);
});

test("what a page does not want any more is unsubscribed, and a copy of the tab opens a session of itself", async () => {
    const scene = world(17);
    const persist = storeOf();
    const first = clientIn(scene, { persist: persistIn(persist) });
    first.subscribe("/p/x", () => undefined);
    await scene.time.run(500);
    leave();
    const copy = storeOf();
    const second = clientIn(scene, { persist: persistIn(persist) });
    persist.texts.forEach((text, name) => copy.setItem(name, text));
    const third = clientIn(scene, { persist: persistIn(copy) });
    await scene.time.run(1_000);
    assert.equal(second.state.resumed, true);
    assert.equal(third.state.resumed, false);
    assert.deepEqual([...scene.server.sessions.values()].map(({ names }) => names.size), [0, 0]);
});

test("a token is asked for before the first handshake, and again when it was refused", async () => {
    const scene = world(18);
    const { take } = scene.server;
    scene.server.take = function (connection, text) {
        const [message] = JSON.parse(text);
        if (message.channel === "/meta/handshake" && message.ext.auth.token !== "third") {
            connection.send([{ channel: message.channel, id: message.id, successful: false, error: "401:token_expired:handshake_denied", advice: { reconnect: "none" } }]);
        } else {
            take.call(this, connection, text);
        }
    };
    const asked = [];
    const client = clientIn(scene, { token: async (why) => ["first", "second", "third"][asked.push(why) - 1] });
    await scene.time.run(5_000);
    assert.deepEqual(asked, ["first", "refused", "refused"]);
    assert.equal(client.state.name, "connected");
});

test("a token that is refused each time ends the client with the server's words", async () => {
    const scene = world(19);
    scene.server.take = (connection, text) => {
        const [{ channel, id }] = JSON.parse(text);
        connection.send([{ channel, id, successful: false, error: "401:token_signature_wrong:handshake_denied", advice: { reconnect: "none" } }]);
    };
    const client = clientIn(scene, { token: "bad" });
    const publication = assert.rejects(client.publish("/p/x", 1), { code: "refused", status: 401 });
    const iteration = assert.rejects(client.subscribe("/p/x")[Symbol.asyncIterator]().next(), { status: 401 });
    await scene.time.run(20_000);
    assert.equal(client.state.name, "closed");
    await assert.rejects(client.ready, { code: "refused", status: 401 });
    await publication;
    await iteration;
    await assert.rejects(client.publish("/p/x", 1), { code: "closed" });
});

/** The page goes away. */
function leave() {
    page.dispatchEvent(new Event("pagehide"));
}
