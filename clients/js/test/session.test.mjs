// The session without I/O: messages and times go in, messages and events come out.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Positions, covers } from "../build/channels.js";
import { Session } from "../build/session.js";

/** A session in which the test is the server. */
class Peer {
    now = 0;

    constructor(options = {}) {
        const environment = { random: () => 0.5 };
        this.session = new Session({ ack: true, replay: true, replyTimeoutMs: 10_000, environment, ...options }, () => ({}));
    }

    /** The messages that the session sends now. */
    sent() {
        return this.session.out.splice(0).map(({ text }) => JSON.parse(text));
    }

    /** Its events, without those about positions. */
    events() {
        return this.session.events.splice(0).filter(({ on }) => on !== "reached" && on !== "turned");
    }

    receive(...messages) {
        this.session.received(messages, this.now);
    }

    /** Replies to the last message of a channel. */
    reply(sent, fields = {}) {
        const { channel, id, subscription } = sent.at(-1);
        this.receive({ channel, id, successful: true, ...(subscription && { subscription }), ...fields });
    }

    open(ext = { ack: true, replay: { positions: "ext" } }) {
        this.session.opened(this.now);
        this.reply(this.sent(), { clientId: "c1", ext, advice: { reconnect: "retry", interval: 0, timeout: 20_000 } });
        return this;
    }

    subscribe(name, from = "latest", fields = {}, positions = []) {
        this.session.names.subscribe({ key: 1, name, from, positions, intervalMs: 0 }, this.session.isOpen);
        this.reply(this.sent(), fields);
        this.events();
        return this;
    }
}

const MESSAGE = { channel: "/p/x", data: 1 };

test("messages wait for the reply that closes their batch, and come again if the connection breaks before", () => {
    const peer = new Peer().open();
    const [connect] = peer.sent();
    assert.deepEqual([connect.channel, connect.ext], ["/meta/connect", { ack: 0 }]);
    peer.events();
    peer.receive(MESSAGE);
    assert.deepEqual(peer.events(), []);
    peer.session.lost({ code: "connection_lost", message: "" });
    assert.deepEqual(peer.events().map(({ on }) => on), ["lost"]);
    peer.session.opened(peer.now);
    const [resume] = peer.sent();
    assert.deepEqual([resume.advice, resume.ext], [{ timeout: 0 }, { ack: 0 }]);
    peer.receive(MESSAGE, { channel: "/meta/connect", id: resume.id, successful: true, ext: { ack: 2 } });
    assert.deepEqual(peer.events().map(({ on, resumed }) => resumed ?? on), ["message", true]);
    assert.deepEqual(peer.sent().map(({ ext }) => ext), [{ ack: 2 }]);
});

test("a batch that comes twice is delivered once", () => {
    const peer = new Peer().open();
    const [connect] = peer.sent();
    peer.receive(MESSAGE, { channel: "/meta/connect", id: connect.id, successful: true, ext: { ack: 1 } });
    const [next] = peer.sent();
    peer.receive(MESSAGE, { channel: "/meta/connect", id: next.id, successful: true, ext: { ack: 1 } });
    assert.equal(peer.events().filter(({ on }) => on === "message").length, 1);
});

test("a session that the server does not know is opened again, with its subscriptions at their positions", () => {
    const peer = new Peer().open();
    peer.sent();
    peer.subscribe("/h/a", "latest", { ext: { replay: { "/h/a": { recovered: true, epoch: "e", from: 8, latest: 7, lost: null } } } });
    const connect = peer.session.out.splice(0);
    assert.deepEqual(connect, []);
    peer.session.lost({ code: "connection_lost", message: "" });
    peer.session.opened(peer.now);
    peer.reply(peer.sent(), { successful: false, error: "402::session_unknown", advice: { reconnect: "handshake", interval: 0 } });
    peer.reply(peer.sent(), { clientId: "c2", ext: { ack: true, replay: { positions: "ext" } } });
    const [subscribe] = peer.sent();
    assert.deepEqual([subscribe.clientId, subscribe.ext.replay], ["c2", { "/h/a": { epoch: "e", id: 7 } }]);
    peer.events();
    peer.reply([subscribe], { ext: { replay: { "/h/a": { recovered: true, epoch: "e", from: 8, latest: 9, lost: null } } } });
    assert.deepEqual(peer.events(), [{ on: "opened", resumed: false }]);
});

test("a subscription that the next session refuses ends, and the others go on", () => {
    const peer = new Peer().open();
    peer.sent();
    peer.subscribe("/p/x").subscribe("/p/y");
    peer.session.clientId = undefined;
    peer.session.lost({ code: "connection_lost", message: "" });
    peer.open();
    const [one, other] = peer.sent();
    peer.events();
    peer.reply([one], { successful: false, error: "403:denied:subscribe_denied" });
    peer.reply([other]);
    const [ended, , opened, gap] = peer.events();
    assert.deepEqual([ended.on, ended.name, ended.error.status], ["unsubscribed", "/p/x", 403]);
    assert.deepEqual([opened.on, gap], ["opened", { on: "gap", name: "/p/y" }]);
});

test("a name that is given up and wanted again at once is asked for again", () => {
    const peer = new Peer().open();
    peer.sent();
    peer.subscribe("/p/x");
    peer.session.names.unsubscribe("/p/x", true);
    peer.session.names.subscribe({ key: 2, name: "/p/x", from: "latest", positions: [], intervalMs: 0 }, true);
    assert.deepEqual(peer.sent().map(({ channel }) => channel), ["/meta/unsubscribe", "/meta/subscribe"]);
});

test("the shortest interval applies to a name, in the next session, too", () => {
    const peer = new Peer().open();
    peer.sent();
    peer.events();
    const ask = (key, intervalMs) => {
        peer.session.names.subscribe({ key, name: "/h/*", from: "latest", positions: [], intervalMs }, true);
        const sent = peer.sent();
        if (sent.length > 0) {
            peer.reply(sent);
        }
        assert.deepEqual(peer.events(), [{ on: "subscribed", keys: [key] }]);
        return sent.map(({ ext }) => ext);
    };
    assert.deepEqual(ask(1, 1_000), [{ min_interval_ms: 1_000 }]);
    assert.deepEqual(ask(2, 5_000), []);
    assert.deepEqual(ask(3, 500), [{ min_interval_ms: 500 }]);
    assert.deepEqual(peer.session.save().names, [["/h/*", 500]]);
    peer.session.clientId = undefined;
    peer.session.lost({ code: "connection_lost", message: "" });
    peer.open();
    assert.deepEqual(peer.sent().map(({ ext }) => ext), [{ min_interval_ms: 500 }]);
});

test("a page takes over the interval of the page before, or changes it", () => {
    for (const [intervalMs, asked] of [[500, []], [1_000, [{ min_interval_ms: 1_000 }]], [0, [{ replay: {}, min_interval_ms: 0 }]]]) {
        const peer = new Peer();
        peer.session.restore({ clientId: "c1", batch: 0, names: [["/h/a", 500]], acknowledges: true, replays: true });
        peer.session.names.subscribe({ key: 1, name: "/h/a", from: "latest", positions: [], intervalMs }, false);
        peer.session.opened(peer.now);
        peer.reply(peer.sent());
        assert.deepEqual(peer.sent().filter(({ channel }) => channel === "/meta/subscribe").map(({ ext }) => ext), asked, `${intervalMs}`);
    }
});

test("a pattern with too many unknown channels goes on with the known ones, and has a gap", () => {
    const peer = new Peer().open();
    peer.sent();
    peer.subscribe("/h/*", "earliest", { ext: { replay: { "/h/a": { recovered: true, epoch: "e", from: 8, latest: 7, lost: null } } } });
    peer.session.clientId = undefined;
    peer.session.lost({ code: "connection_lost", message: "" });
    peer.open();
    const first = peer.sent();
    assert.deepEqual(first[0].ext.replay, { "/h/*": -2, "/h/a": { epoch: "e", id: 7 } });
    peer.events();
    peer.reply(first, { successful: false, error: "413::replay_channels_max" });
    const second = peer.sent();
    assert.deepEqual(second[0].ext.replay, { "/h/a": { epoch: "e", id: 7 } });
    peer.reply(second);
    assert.ok(peer.events().some(({ on, name }) => on === "gap" && name === "/h/*"));
});

test("the end that the server wants is one, and a refusal for now is none", () => {
    const ended = new Peer().open();
    ended.reply(ended.sent(), { successful: false, error: "402::session_unknown", advice: { reconnect: "none" } });
    assert.equal(ended.events().at(-1).on, "ended");
    const later = new Peer();
    later.session.opened(0);
    later.reply(later.sent(), { successful: false, error: "503::draining", advice: { reconnect: "handshake", interval: 700 } });
    assert.equal(later.session.wakeAt, 700);
    later.now = 700;
    later.session.wake(700);
    later.reply(later.sent(), { successful: false, error: "503::draining", advice: { reconnect: "handshake", interval: 700 } });
    assert.ok(later.session.wakeAt > 2_000, "the pauses grow");
    const kicked = new Peer().open();
    kicked.receive({ channel: "/meta/disconnect", successful: true });
    assert.equal(kicked.events().at(-1).on, "ended");
});

test("a server that is silent is lost after the time for which it holds a connect", () => {
    const peer = new Peer().open();
    peer.events();
    assert.equal(peer.session.wakeAt, 30_000);
    peer.session.wake(30_000);
    assert.deepEqual(peer.events().map(({ on }) => on), ["lost"]);
});

test("names cover channels as Bayeux says, and positions have a limit", () => {
    for (const [name, channel, isCovered] of [
        ["/a", "/a", true],
        ["/a/*", "/a/b", true],
        ["/a/*", "/a", false],
        ["/a/*", "/a/b/c", false],
        ["/a/**", "/a/b/c", true],
        ["/a/**", "/a", false],
        ["/**", "/a", true],
        ["/a/*", "/ab/c", false],
        ["/a/**", "/ab/c", false],
    ]) {
        assert.equal(covers(name, channel), isCovered, `${name} ${channel}`);
    }
    const positions = new Positions();
    for (let number = 0; number <= 10_000; number++) {
        positions.set(`/a/${number}`, { epoch: "e", id: number });
    }
    assert.deepEqual([[...positions.entries()].length, positions.isPartial], [10_000, true]);
});
