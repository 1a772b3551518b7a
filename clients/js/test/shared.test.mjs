// Tabs that share a connection, under virtual time: the tab with the connection closes or crashes, others come and go.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../build/client.js";
import { Connection } from "../build/connection.js";
import { optionsOf } from "../build/index.js";
import { Hub, tabs } from "../build/shared.js";
import { clientIn, randomOf, world } from "./world.mjs";

const URL_OF_MODEL = "http://model/cometd";
/** The tab whose code runs: what it opens and locks is its own. */
let current;

/** The channels and locks of a site, as all of its tabs see them. */
class Site {
    channels = new Set();
    queues = new Map();

    install() {
        const site = this;
        globalThis.BroadcastChannel = class {
            constructor(name) {
                Object.assign(this, { name, tab: current });
                site.channels.add(this);
            }
            postMessage(note) {
                const text = JSON.stringify(note);
                for (const other of site.channels) {
                    if (other !== this && other.name === this.name) {
                        queueMicrotask(() => site.channels.has(other) && other.onmessage?.({ data: JSON.parse(text) }));
                    }
                }
            }
            close() {
                site.channels.delete(this);
            }
        };
        Object.defineProperty(globalThis, "navigator", { configurable: true, value: { locks: { request: (name, run) => site.lock(name, run) } } });
        globalThis.addEventListener = () => undefined;
    }

    lock(name, run) {
        const queue = this.queues.get(name) ?? [];
        this.queues.set(name, queue);
        queue.push({ tab: current, run, isHeld: false });
        this.#grant(queue);
    }

    #grant(queue) {
        const [first] = queue;
        if (first !== undefined && !first.isHeld) {
            first.isHeld = true;
            void Promise.resolve()
                .then(first.run)
                .then(() => this.#remove(queue, first));
        }
    }

    #remove(queue, entry) {
        const at = queue.indexOf(entry);
        if (at !== -1) {
            queue.splice(at, 1);
            this.#grant(queue);
        }
    }

    /** A tab is gone, without a word. */
    crash(tab) {
        tab.isGone = true;
        [...this.channels].filter((channel) => channel.tab === tab).forEach((channel) => this.channels.delete(channel));
        this.queues.forEach((queue) => queue.filter((entry) => entry.tab === tab).forEach((entry) => this.#remove(queue, entry)));
        tab.wires.forEach((wire) => wire.end?.());
    }
}

/** A tab with a client that shares. */
function openTab(scene) {
    const tab = { isGone: false, wires: new Set() };
    current = tab;
    const environment = { now: () => scene.time.now, date: () => scene.time.now, random: scene.random, later: (run, ms) => scene.time.later(() => tab.isGone || run(), ms), isOnline: () => true, listen: () => () => undefined };
    const WebSocket = class extends scene.network.WebSocket {
        constructor() {
            super();
            tab.wires.add(this.wire);
        }
    };
    const options = { WebSocket, transports: ["websocket"], shared: tabs };
    const make = (emit) => new Connection({ ...optionsOf(URL_OF_MODEL, options), environment, store: undefined }, (event) => tab.isGone || emit(event));
    tab.client = new Client(URL_OF_MODEL, options, (emit) => tabs.open(URL_OF_MODEL, options, (event) => tab.isGone || emit(event), make));
    return tab;
}

test("tabs have one session, and each gets what it subscribes to", async () => {
    new Site().install();
    const scene = world(1);
    const [one, other] = [openTab(scene), openTab(scene)];
    const got = [];
    one.client.subscribe("/p/x", ({ channel, data }) => got.push(["one", channel, data.n]));
    other.client.subscribe("/p/*", ({ channel, data }) => got.push(["other", channel, data.n]));
    const published = other.client.publish("/p/x", { n: 1 });
    await scene.time.run(1_000);
    await published;
    scene.server.publish("/p/y", { n: 2 });
    await scene.time.run(500);
    assert.equal(scene.server.sessions.size, 1);
    assert.deepEqual(got.sort(), [["one", "/p/x", 1], ["other", "/p/x", 1], ["other", "/p/y", 2]]);
    assert.deepEqual([one, other].map(({ client }) => client.state.name), ["connected", "connected"]);
    other.client.close();
    await scene.time.run(500);
    assert.equal(other.client.state.name, "closed");
    assert.deepEqual([...scene.server.sessions.values()].map(({ names }) => [...names]), [["/p/x"]]);
});

for (const way of ["close", "crash"]) {
    test(`when tabs ${way}, the others lose nothing of a history, and have a gap where there is none`, async () => {
        for (let seed = 1; seed <= 40; seed++) {
            const site = new Site();
            site.install();
            const scene = world(seed);
            const random = randomOf(seed);
            const open = [];
            const readers = [];
            let n = 0;
            const enter = () => {
                const tab = openTab(scene);
                const reader = { got: [], plain: [], gaps: [], wrong: [], since: undefined };
                const take = (list) => ({ channel, data }) => {
                    if (data.n <= (list.at(-1) ?? 0)) {
                        reader.wrong.push(`${channel} ${data.n} after ${list.at(-1)}`);
                    }
                    list.push(data.n);
                };
                const subscription = tab.client.subscribe("/h/a", { onGap: (gap) => reader.wrong.push(gap) }, take(reader.got));
                tab.client.subscribe("/p/x", { onGap: (gap) => reader.gaps.push(gap) }, take(reader.plain));
                void subscription.ready.then(() => (reader.since ??= n), () => undefined);
                open.push(tab);
                readers.push(Object.assign(reader, { tab }));
            };
            enter();
            await scene.time.run(1_000);
            for (let step = 0; step < 40; step++) {
                if (open.length === 0 || random() < 0.1) {
                    enter();
                } else if (open.length > 1 && random() < 0.15) {
                    const [tab] = open.splice(Math.floor(random() * open.length), 1);
                    current = tab;
                    tab.hasLeft = n;
                    if (way === "crash") {
                        site.crash(tab);
                    } else {
                        void tab.client.close();
                    }
                } else if (random() < 0.1) {
                    scene.network.cut();
                }
                for (let count = Math.floor(random() * 4); count > 0; count--) {
                    n += 1;
                    scene.server.publish("/h/a", { n });
                    scene.server.publish("/p/x", { n });
                }
                await scene.time.run(random() * 2_000);
            }
            await scene.time.run(60_000);
            n += 1;
            scene.server.publish("/h/a", { n });
            scene.server.publish("/p/x", { n });
            await scene.time.run(5_000);
            for (const { tab, got, plain, gaps, wrong, since } of readers.filter(({ tab }) => tab.hasLeft === undefined)) {
                const what = `seed ${seed}`;
                assert.deepEqual(wrong, [], what);
                assert.equal(tab.client.state.name, "connected", what);
                assert.equal(got.at(-1), n, what);
                const missing = Array.from({ length: n - since }, (_, index) => since + index + 1).filter((number) => !got.includes(number));
                assert.deepEqual(missing, [], `${what}: lost`);
                assert.ok(gaps.length > 0 || plain.length === got.length || plain.length >= n - since, `${what}: lost without a gap`);
            }
            assert.ok(scene.server.sessions.size >= 1);
            open.forEach((tab) => site.crash(tab));
        }
    });
}

test("a hub asks the newest tab for a token, and asks again when that one goes", () => {
    const commands = [];
    let emit;
    const hub = new Hub((to) => {
        emit = to;
        return { command: (command) => commands.push(command) };
    });
    const [one, other] = [[], []];
    hub.join("one", (event) => one.push(event.on));
    emit({ on: "token", why: "first" });
    hub.leave("one");
    hub.join("other", (event) => other.push(event.on));
    assert.deepEqual([one, other], [["state", "token"], ["state", "token"]]);
    hub.command("other", { do: "token", token: "good" });
    assert.deepEqual(commands, [{ do: "token", token: "good" }]);
    hub.join("third", (event) => one.push(event.on));
    assert.deepEqual(one, ["state", "token", "state"]);
});

test("where tabs cannot share, each has a connection", async () => {
    delete globalThis.BroadcastChannel;
    const scene = world(2);
    const [one, other] = [clientIn(scene, { shared: tabs }), clientIn(scene, { shared: tabs })];
    await scene.time.run(500);
    assert.deepEqual([one, other].map(({ state }) => state.name), ["connected", "connected"]);
    assert.equal(tabs.open(URL_OF_MODEL, {}, () => undefined, () => undefined), undefined);
});
