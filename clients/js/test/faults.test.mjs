// Seeded faults under virtual time: breaks, restarts, lost histories, proxies, sleep, clocks that jump. Nothing is lost without a gap, and
// nothing comes twice.

import assert from "node:assert/strict";
import { test } from "node:test";
import { clientIn, world } from "./world.mjs";

const SEEDS = Number(process.env.SEEDS ?? 60);
const FIRST = Number(process.env.SEED ?? 1);

for (const [name, serverOptions, options] of [
    ["with ack and replay", {}, {}],
    ["with replay alone", { ack: false }, {}],
    ["with ack alone", { replay: false }, {}],
    ["with neither", { ack: false, replay: false }, {}],
    ["over long-polling", {}, { transports: ["long-polling"] }],
    ["over long-polling, with replay alone", { ack: false }, { transports: ["long-polling"] }],
]) {
    test(`faults ${name}`, async () => {
        for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
            await life(seed, serverOptions, options, name).catch((error) => {
                throw new Error(`seed ${seed}: ${error.message}`);
            });
        }
    });
}

test("texts that are spoilt end a connection at most", async () => {
    for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
        const scene = world(seed);
        const { time, random, server, network } = scene;
        const client = clientIn(scene, { transports: [seed % 2 === 0 ? "websocket" : "long-polling"], backoffMaxMs: 1_000 });
        const got = [];
        client.subscribe("/h/*", ({ data }) => got.push(data));
        client.subscribe("/p/x", ({ data }) => got.push(data));
        network.write = (messages) => (random() < 0.5 ? JSON.stringify(messages) : spoilt(messages, random));
        for (let n = 0; n < 60; n++) {
            server.publish(n % 2 === 0 ? "/h/a" : "/p/x", { n });
            await time.run(random() * 1_000);
        }
        network.write = JSON.stringify;
        // A spoilt refusal may have ended the client, or one of its subscriptions.
        await time.run(600_000);
        assert.ok(["connected", "closed"].includes(client.state.name), `seed ${seed}: ${client.state.name} ${client.state.error}`);
    }
});

/** A text in which some value is another one. */
function spoilt(messages, random) {
    const pick = () => [null, 0, -1, 1e400, "", "x", [], {}, [[]], true, { channel: 5 }, "/meta/connect", 9007199254740993][Math.floor(random() * 13)];
    const text = JSON.stringify(messages, function (key, value) {
        // A session of which one side thinks that it acknowledges gets its messages again and again. An interval may be a day.
        return random() < 0.1 && !["ext", "ack", "replay", "interval"].includes(key) ? pick() : value;
    });
    return random() < 0.1 ? String(text).slice(0, random() * 40) : String(text);
}

/** One life of a client: some minutes of messages and faults, then a quiet time in which everything arrives. */
async function life(seed, serverOptions, options, name) {
    const scene = world(seed, serverOptions);
    const { time, random, server, network } = scene;
    const client = clientIn(scene, options);
    const readers = ["/h/a", "/h/*", "/p/x"].map((name) => reader(client, name));
    const channels = ["/h/a", "/h/b", "/p/x"];
    const sent = Object.fromEntries(channels.map((channel) => [channel, 0]));
    await time.run(1_000);
    // Messages from before the first subscription are of no interest.
    assert.equal(client.state.name, "connected", `${name}: ${client.state.error}`);
    const steps = 30 + Math.floor(random() * 30);
    for (let step = 0; step < steps; step++) {
        fault(random(), client, network, server, time);
        if (random() < 0.03 && serverOptions.replay !== false && !server.isWiped) {
            // They begin with all that is retained, and the earlier ones notice nothing.
            readers.push(reader(client, ["/h/a", "/h/*", "/h/b"][Math.floor(random() * 3)], { from: "earliest" }));
        }
        for (let burst = Math.floor(random() * 5); burst > 0; burst--) {
            const channel = channels[Math.floor(random() * channels.length)];
            server.publish(channel, { n: (sent[channel] += 1) });
        }
        await time.run(random() < 0.1 ? random() * 40_000 : random() * 1_500);
    }
    network.isBroken = false;
    network.refused.clear();
    network.swallowed.clear();
    server.isUp = true;
    await time.run(180_000);
    for (const channel of channels) {
        server.publish(channel, { n: (sent[channel] += 1) });
    }
    await time.run(5_000);
    assert.equal(client.state.name, "connected");
    readers.forEach((one) => one.check(sent, serverOptions.replay !== false, server.isWiped));
    void client.close();
    await time.run(5_000);
    assert.equal(client.state.name, "closed");
}

function fault(dice, client, network, server, time) {
    if (dice < 0.15) {
        network.cut();
    } else if (dice < 0.2) {
        network.isBroken = true;
        network.cut();
    } else if (dice < 0.4) {
        network.isBroken = false;
    } else if (dice < 0.44) {
        server.restart(false);
        network.cut();
    } else if (dice < 0.45) {
        server.restart(true);
        network.cut();
    } else if (dice < 0.48) {
        network.refused.add("websocket");
    } else if (dice < 0.51) {
        network.swallowed.add("websocket");
    } else if (dice < 0.56) {
        network.refused.clear();
        network.swallowed.clear();
    } else if (dice < 0.6) {
        client.machine.happen(["online", "offline", "shown", "slept"][Math.floor(dice * 1e4) % 4]);
    } else if (dice < 0.62) {
        // Timers stand still.
        time.now += 120_000;
        client.machine.happen("slept");
    } else if (dice < 0.64) {
        client.machine.dateOffset += (dice - 0.63) * 1e9;
    }
}

/** Collects what a subscription gets. */
function reader(client, name, options = {}) {
    const got = {};
    const gaps = new Set();
    const errors = [];
    client.subscribe(name, { ...options, onGap: ({ channel }) => gaps.add(channel) }, ({ channel, data }) => {
        const last = got[channel]?.at(-1) ?? 0;
        if (data.n <= last) {
            errors.push(`${name}: ${channel} ${data.n} came after ${last}: doubled or out of order`);
        }
        (got[channel] ??= []).push(data.n);
    });
    return {
        check(sent, replays, isWiped) {
            assert.deepEqual(errors, []);
            for (const [channel, count] of Object.entries(sent)) {
                if (name !== channel && !(name === "/h/*" && channel.startsWith("/h/"))) {
                    continue;
                }
                const numbers = got[channel] ?? [];
                assert.equal(numbers.at(-1), count, `${name}: the last message of ${channel}`);
                // A late reader of a history that was lost before begins with the new one.
                const begin = options.from === "earliest" && isWiped ? numbers[0] - 1 : 0;
                const isWhole = numbers.length === count - begin;
                // Of a channel that was never known, nobody can tell; another one of the pattern tells that histories are gone.
                const isReported = gaps.has(channel) || gaps.has(name) || (isWiped && name.endsWith("*") && gaps.size > 0);
                assert.ok(isWhole || isReported, `${name}: messages of ${channel} are lost without a gap: ${missing(numbers)}`);
                if (replays && channel.startsWith("/h/") && name === channel && !gaps.has(channel)) {
                    assert.ok(isWhole);
                }
            }
        },
    };
}

/** The numbers that are missing in a row. */
function missing(numbers) {
    return numbers.flatMap((number, index) => Array.from({ length: number - (numbers[index - 1] ?? 0) - 1 }, (_, before) => number - before - 1));
}
