// The client against the real server, over each transport: what it does, and what it does while networks and servers break.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { persist } from "encke/persist";
import { presence } from "encke/presence";
import { BreakingProxy } from "../../../tests/interop/src/breaking-proxy.js";
import { Counter, Proxy, RULES, Server, client, page, pause, storeOf, until } from "./harness.mjs";

const TRANSPORTS = ["websocket", "eventsource", "long-polling"];

for (const transport of TRANSPORTS) {
    test(`${transport}: messages, answers, presence, and an end`, async (t) => {
        const server = await Server.start(t);
        const one = client(t, server.url, { transports: [transport], token: undefined });
        const got = [];
        const subscription = one.subscribe("/stock/*", (message) => got.push(message));
        await subscription.ready;
        assert.equal(one.state.transport, transport);
        const sent = [{ price: 1 }, [1, 2], "text", 5, null, { payload: { a: 1 } }, { payload: 5 }, { event: { replayId: 1 } }, { event: { kind: "own" } }, { event: 5 }, { "": "ü☄" }];
        for (const data of sent) {
            await one.publish("/stock/GOOG", data);
        }
        await until("all messages", () => got.length === sent.length);
        assert.deepEqual(got.map(({ data }) => data), sent);
        assert.ok(got.every(({ channel, position }) => channel === "/stock/GOOG" && typeof position.epoch === "string"));
        const late = one.subscribe("/stock/GOOG", { from: "earliest" });
        const again = [];
        for await (const { data } of late) {
            if (again.push(data) === sent.length) {
                break;
            }
        }
        assert.deepEqual(again, sent);
        assert.equal(got.length, sent.length, "the earlier subscription notices nothing");
        const page = await one.history("/stock/GOOG", { limit: 3 });
        assert.deepEqual([page.messages.map(({ data }) => data), page.earlier, page.later, page.latest], [sent.slice(-3), true, false, got.at(-1).position]);
        const before = await one.history("/stock/GOOG", { before: page.messages[0].position });
        assert.deepEqual([before.messages.map(({ data }) => data), before.earlier, before.later], [sent.slice(0, -3), false, true]);
        const after = await one.history("/stock/GOOG", { after: before.messages.at(-1).position, limit: 1 });
        assert.deepEqual(after.messages, page.messages.slice(0, 1));
        await assert.rejects(one.history("/stock/*"), { code: "refused" });
        await assert.rejects(one.subscribe("/meta/connect").ready, { code: "refused", status: 403 });
        await assert.rejects(one.publish("/not//valid", 1), { code: "refused" });
        await assert.rejects(one.call("/service/presence", { channel: "/stock/GOOG" }), { code: "refused", status: 403 });
        one.subscribe("/room/1", () => undefined);
        const members = presence(one, "/room/1");
        await members.ready;
        await until("the member", () => members.sessions === 1);
        await one.close();
        await assert.rejects(presence(client(t, server.url, { transports: [transport] }), "/stock/GOOG").ready, { code: "refused", status: 403 });
        assert.equal(one.state.name, "closed");
        await assert.rejects(one.publish("/stock/GOOG", 1), { code: "closed" });
    });

    test(`${transport}: connections that break again and again lose and double nothing`, async (t) => {
        const server = await Server.start(t);
        const proxy = new BreakingProxy(server.port, { cutEveryMs: 700, offlineMs: 150 });
        const port = await proxy.start();
        t.after(() => proxy.stop());
        const counter = new Counter();
        const reader = client(t, `http://127.0.0.1:${port}`, { transports: [transport], fallbackMs: 3_000 });
        reader.subscribe("/stock/*", counter, counter.receive);
        const plain = reader.subscribe("/plain/x", counter, counter.receive);
        await plain.ready;
        const writer = client(t, server.url);
        proxy.begin();
        const channels = ["/stock/a", "/stock/b", "/plain/x"];
        for (let n = 1; n <= 150; n++) {
            await Promise.all(channels.map((channel) => writer.publish(channel, { n })));
            await pause(20);
        }
        proxy.end();
        await until(() => `${counter.count()} of 450 messages`, () => counter.count() >= 450 || counter.gaps.length > 0);
        assert.ok(proxy.cuts > 0);
        assert.deepEqual(counter.gaps, []);
        counter.check(channels, 150);
    });

    test(`${transport}: offline for longer than the session lives`, async (t) => {
        const server = await Server.start(t, `max_interval_ms = 3000\n${RULES}`);
        const proxy = await Proxy.start(t, server.port);
        const counter = new Counter();
        const reader = client(t, proxy.url, { transports: [transport], backoffMaxMs: 500 });
        await reader.subscribe("/stock/*", { ...counter, from: "earliest" }, counter.receive).ready;
        await reader.subscribe("/plain/x", counter, counter.receive).ready;
        const writer = client(t, server.url);
        await writer.publish("/stock/a", { n: 1 });
        await until("the first message", () => counter.count() === 1);
        proxy.isOffline = true;
        proxy.cut();
        for (let n = 2; n <= 20; n++) {
            await writer.publish("/stock/a", { n });
        }
        await until("a state", () => reader.state.name === "reconnecting");
        await until("the end of the session", async () => (await server.sessions()) === 1);
        proxy.isOffline = false;
        await until("the connection", () => reader.state.name === "connected");
        assert.equal(reader.state.resumed, false);
        await until("the messages", () => counter.count() === 20);
        counter.check(["/stock/a"], 20);
        assert.deepEqual(counter.gaps, [{ channel: "/plain/x", cause: "unknown" }], "only the channel without a history has a gap");
    });

    test(`${transport}: a subscription begins with the latest message of each channel that retains it`, async (t) => {
        const server = await Server.start(t, `max_interval_ms = 3000\n[[channels]]\npattern = "/q/**"\nretain_last = true\n`);
        const proxy = await Proxy.start(t, server.port);
        const writer = client(t, server.url);
        const publish = (n) => Promise.all(["/q/a", "/q/b"].map((channel) => writer.publish(channel, { n })));
        await publish(1);
        const [counter, paced, later] = [new Counter(), new Counter(), new Counter()];
        const reader = client(t, proxy.url, { transports: [transport], backoffMaxMs: 500 });
        await reader.subscribe("/q/*", counter, counter.receive).ready;
        await until("the latest messages", () => counter.count() === 2);
        await client(t, proxy.url, { transports: [transport] }).subscribe("/q/*", { minIntervalMs: 60_000 }, paced.receive).ready;
        await until("those of a board", () => paced.count() === 2);
        await client(t, proxy.url, { transports: [transport] }).subscribe("/q/*", { from: { last: 0 } }, later.receive).ready;
        await publish(2);
        await until("new messages", () => counter.count() === 4 && later.count() === 2);
        // It goes on in its session, and in another one.
        proxy.cut();
        await publish(3);
        await until("the messages after a break", () => counter.count() === 6);
        proxy.isOffline = true;
        proxy.cut();
        await publish(4);
        await until("the end of the sessions", async () => (await server.sessions()) === 1);
        proxy.isOffline = false;
        await until("the messages of the next session", () => counter.count() === 8);
        counter.check(["/q/a", "/q/b"], 4);
        assert.deepEqual([...later.got.values()].flat().filter((n) => n === 1), [], "what was there before");
    });

    test(`${transport}: at most one message in an interval, over breaks`, async (t) => {
        const server = await Server.start(t, `max_interval_ms = 3000\n${RULES}`);
        const proxy = await Proxy.start(t, server.port);
        const [writer, all, paced] = [client(t, server.url), new Counter(), new Counter()];
        await client(t, server.url).subscribe("/stock/*", all, all.receive).ready;
        const reader = client(t, proxy.url, { transports: [transport], backoffMaxMs: 500 });
        await reader.subscribe("/stock/*", { minIntervalMs: 60_000 }, paced.receive).ready;
        const publish = async (n) => {
            await writer.publish("/stock/a", { n });
            await until(`message ${n}`, () => all.count() === n);
        };
        for (let n = 1; n <= 3; n++) {
            await publish(n);
        }
        await until("the first message", () => paced.count() === 1);
        proxy.isOffline = true;
        proxy.cut();
        await until("the end of the session", async () => (await server.sessions()) === 2);
        proxy.isOffline = false;
        await until("the next session", () => reader.state.name === "connected" && reader.state.resumed === false);
        for (let n = 4; n <= 6; n++) {
            await publish(n);
        }
        await until("the first message of the next session", () => paced.count() === 2);
        assert.deepEqual(paced.got.get("/stock/a"), [1, 4]);
        // A subscription to the same name wants all of them: what waits comes at once.
        const every = new Counter();
        await reader.subscribe("/stock/*", every.receive).ready;
        await publish(7);
        await until("all messages", () => paced.got.get("/stock/a").at(-1) === 7 && every.got.get("/stock/a")?.at(-1) === 7);
        assert.deepEqual([paced.got.get("/stock/a"), paced.wrong], [[1, 4, 6, 7], []]);
    });

    for (const [signal, name] of [["SIGTERM", "restarted"], ["SIGKILL", "killed"]]) {
        test(`${transport}: the server is ${name}`, async (t) => {
            const server = await Server.start(t, `drain_spread_ms = 200\n${RULES}`, { data: true });
            const counter = new Counter();
            const reader = client(t, server.url, { transports: [transport], backoffMaxMs: 300 });
            await reader.subscribe("/stock/*", counter, counter.receive).ready;
            await reader.subscribe("/stock/a", counter, () => undefined).ready;
            const writer = client(t, server.url, { backoffMaxMs: 300 });
            let n = 0;
            for (let round = 0; round < 3; round++) {
                for (let message = 0; message < 20; message++) {
                    n += 1;
                    await writer.publish("/stock/a", { n });
                }
                await until("the messages", () => counter.count() === n);
                await server.stop(signal);
                await until("both breaks", () => [reader, writer].every(({ state }) => state.name !== "connected"));
                await server.start();
                await until("both connections", () => [reader, writer].every(({ state }) => state.name === "connected"));
            }
            await writer.publish("/stock/a", { n: n + 1 });
            await until("the last message", () => counter.count() === n + 1);
            counter.check(["/stock/a"], n + 1);
        });
    }
}

test("a proxy that eats upgrades costs less than a second", async (t) => {
    const server = await Server.start(t);
    for (const way of ["swallow", "refuse"]) {
        const proxy = await Proxy.start(t, server.port, { [way]: /upgrade: websocket/i });
        const begin = performance.now();
        const one = client(t, proxy.url);
        await one.ready;
        const ms = performance.now() - begin;
        assert.equal(one.state.transport, "eventsource");
        // The attempt ends after 0.8 s. The rest is for a busy machine.
        assert.ok(ms < 800 + SLACK_MS, `${ms}`);
        const messages = one.subscribe("/stock/a")[Symbol.asyncIterator]();
        await one.publish("/stock/a", way);
        assert.equal((await messages.next()).value.data, way);
    }
});

test("a proxy that buffers streams leads to long-polling", async (t) => {
    const server = await Server.start(t);
    const proxy = await Proxy.start(t, server.port, { swallow: /upgrade: websocket/i, buffer: /text\/event-stream/i });
    const one = client(t, proxy.url);
    const messages = one.subscribe("/stock/a")[Symbol.asyncIterator]();
    await until("the transport", () => one.state.transport === "long-polling");
    await one.publish("/stock/a", 1);
    assert.equal((await messages.next()).value.data, 1);
});

test("a process that was stopped goes on, and has missed nothing", async (t) => {
    const server = await Server.start(t, `max_interval_ms = 500\ntimeout_ms = 1000\n${RULES}`);
    const program = `
        import { connect } from "encke";
        const client = connect("${server.url}");
        const subscription = client.subscribe("/stock/a", ({ data }) => console.log(data));
        await subscription.ready;
        console.log("ready");`;
    const sleeper = spawn(process.execPath, ["--experimental-websocket", "--no-warnings", "--input-type=module", "--eval", program], { cwd: import.meta.dirname ?? new URL(".", import.meta.url).pathname, stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => sleeper.kill("SIGKILL"));
    let text = "";
    sleeper.stdout.on("data", (part) => (text += part));
    const lines = () => text.trim().split("\n");
    await until("the program", () => text.includes("ready"));
    const writer = client(t, server.url);
    await writer.publish("/stock/a", 1);
    await until("a message", () => lines().length === 2);
    sleeper.kill("SIGSTOP");
    await writer.publish("/stock/a", 2);
    await pause(3_000);
    await writer.publish("/stock/a", 3);
    sleeper.kill("SIGCONT");
    await until(() => `all messages: ${text}`, () => lines().length === 4);
    assert.deepEqual(lines(), ["ready", "1", "2", "3"]);
});

test("a token is refreshed before it ends, and the session goes on", async (t) => {
    const secret = "0123456789abcdef0123456789abcdef";
    const server = await Server.start(t, `auth_expiry_notice_ms = 5000\n${RULES}\n[auth]\nsecret = "${secret}"\nleeway_s = 0\n`);
    const asked = [];
    const token = (why) => {
        asked.push(why);
        return jwt({ sub: "ann", exp: Math.ceil(Date.now() / 1000) + 6 }, secret);
    };
    const one = client(t, server.url, { token });
    const states = [];
    one.on("state", ({ name }) => states.push(name));
    const counter = new Counter();
    await one.subscribe("/plain/x", counter, counter.receive).ready;
    for (let n = 1; n <= 30; n++) {
        await one.publish("/plain/x", { n });
        await pause(200);
    }
    await until("the messages", () => counter.count() === 30);
    counter.check(["/plain/x"], 30);
    assert.deepEqual(states, ["connected"]);
    assert.ok(asked.length >= 3 && asked[0] === "first" && asked.slice(1).every((why) => why === "expiring"), `${asked}`);
});

test("a token that ended while the machine slept is replaced", async (t) => {
    const secret = "0123456789abcdef0123456789abcdef";
    const server = await Server.start(t, `auth_expiry_notice_ms = 0\n${RULES}\n[auth]\nsecret = "${secret}"\nleeway_s = 0\n`);
    const asked = [];
    const one = client(t, server.url, { token: (why) => asked.push(why) && jwt({ sub: "ann", exp: Math.ceil(Date.now() / 1000) + 1 }, secret) });
    await one.ready;
    await until("another token", () => asked.length >= 2);
    await until("the connection", () => one.state.name === "connected");
});

const SHORT = `max_interval_ms = 3000\n${RULES}`;
for (const [name, config, from] of [["in the same session", RULES, "latest"], ["in a new session", SHORT, "latest"], ["in a new session", SHORT, "earliest"]]) {
    test(`3,000 channels with a history go on over a reload, ${name}, from the ${from} message`, async (t) => {
        const server = await Server.start(t, config);
        const channels = Array.from({ length: 3_000 }, (_, number) => `/quote/channel-${number}`);
        const writer = client(t, server.url, { pendingMax: 4_000 });
        const publish = (n) => Promise.all(channels.map((channel) => writer.publish(channel, { n }, { timeoutMs: 60_000 })));
        const counter = Object.assign(new Counter(), { from });
        const store = storeOf();
        const first = client(t, server.url, { persist: persist(store) });
        await first.subscribe("/quote/*", counter, counter.receive).ready;
        await publish(1);
        await until(() => `${counter.count()} of 3,000`, () => counter.count() === 3_000);
        for (let reload = 0; reload < 2; reload++) {
            const published = publish(2 + 2 * reload);
            page.dispatchEvent(new Event("pagehide"));
            await published;
            await until("the end of the session", async () => name === "in the same session" || (await server.sessions()) === 1);
            const next = client(t, server.url, { persist: persist(store) });
            await next.subscribe("/quote/*", counter, counter.receive).ready;
            await publish(3 + 2 * reload);
            await until(() => `${counter.count()} of ${3_000 * (3 + 2 * reload)}`, () => counter.count() >= 3_000 * (3 + 2 * reload));
        }
        counter.check(channels, 5);
        // Which channels are new since then, nobody can tell, unless those begin with their first message.
        assert.ok(counter.gaps.every(({ channel, cause }) => config === SHORT && from === "latest" && channel === "/quote/*" && cause === "unknown"), JSON.stringify(counter.gaps));
    });
}

test("an interval goes on over a reload, until a page wants all messages", async (t) => {
    const server = await Server.start(t);
    const store = storeOf();
    const [writer, counter, mark] = [client(t, server.url), new Counter(), new Counter()];
    const visit = async (options) => {
        page.dispatchEvent(new Event("pagehide"));
        const next = client(t, server.url, { persist: persist(store) });
        await Promise.all([next.subscribe("/plain/x", mark, mark.receive), next.subscribe("/stock/a", options, counter.receive)].map(({ ready }) => ready));
    };
    const publish = async (n) => {
        await writer.publish("/stock/a", { n });
        await writer.publish("/plain/x", { n });
        await until("what comes after it", () => mark.got.get("/plain/x")?.at(-1) === n);
    };
    await visit({ minIntervalMs: 60_000 });
    await publish(1);
    await publish(2);
    await visit({ minIntervalMs: 60_000 });
    assert.equal(await server.sessions(), 2, "the session goes on");
    await publish(3);
    assert.deepEqual(counter.got.get("/stock/a"), [1]);
    await visit({});
    await publish(4);
    await until("all messages", () => counter.got.get("/stock/a").at(-1) === 4);
    assert.deepEqual([counter.got.get("/stock/a"), counter.wrong], [[1, 3, 4], []]);
});

test("a message that is too long for the server is refused permanently, and the others go on", async (t) => {
    const server = await Server.start(t, `message_bytes_max = 10000\n${RULES}`);
    for (const transport of TRANSPORTS) {
        const one = client(t, server.url, { transports: [transport] });
        await one.ready;
        await assert.rejects(one.publish("/stock/a", "x".repeat(20_000)), { code: "too_large", isTransient: false, message: /above the limit/ }, transport);
        await one.publish("/stock/a", "short");
    }
});

/** A token that HS256 signs. */
function jwt(claims, secret) {
    const text = [{ alg: "HS256", typ: "JWT" }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
    return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
}

/** The time that a busy machine may add. */
const SLACK_MS = Number(process.env.SLACK_MS ?? 5_000);
