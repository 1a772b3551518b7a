// The replay extension of docs/clients, with the official client: a page that copies it loses nothing and gets nothing twice.

import assert from "node:assert/strict";
import {mkdtemp, rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {test} from "node:test";

import {AckExtension} from "cometd/AckExtension.js";
import {LongPollingTransport, WebSocketTransport} from "cometd";
import {adapt} from "cometd-nodejs-client";

import {ReplayExtension} from "../../../docs/clients/replay-extension.js";
import {Inbox, connect, disconnect, eventually, newClient} from "../src/client.js";
import {IS_COMETD, Server} from "../src/server.js";

adapt();

const TRANSPORTS = {websocket: WebSocketTransport, "long-polling": LongPollingTransport};
const channels = rule => JSON.stringify([{pattern: "/stored/**", ...rule}]);

for (const transport of Object.keys(TRANSPORTS)) {
    testWith(`over ${transport} a page resumes at its position after the server was killed`, {history_messages: 100}, true,
        async server => {
            const page = await open(server, transport, {"/stored/news": -2});
            await publish(server, 1, 2);
            assert.deepEqual(await page.numbers(2), [1, 2]);
            await server.control("kill");
            await server.start();
            await publish(server, 3, 4);
            assert.deepEqual(await page.numbers(2), [3, 4]);
            await page.inbox.staysEmpty();
            await disconnect(page.client);
            await publish(server, 5);
            const positions = JSON.parse(JSON.stringify(page.positions));
            const next = await open(server, transport, positions);
            assert.deepEqual(await next.numbers(1), [5]);
            await next.inbox.staysEmpty();
            assert.deepEqual([...page.lost, ...next.lost], []);
            await disconnect(next.client);
        });

    testWith(`over ${transport} a page learns which messages are gone`, {history_messages: 3}, false, async server => {
        const page = await open(server, transport, {"/stored/news": -1});
        await publish(server, 1);
        assert.deepEqual(await page.numbers(1), [1]);
        await disconnect(page.client);
        const {id} = page.positions["/stored/news"];
        await publish(server, 2, 3, 4, 5, 6);
        const next = await open(server, transport, page.positions);
        assert.deepEqual(await next.numbers(3), [4, 5, 6]);
        assert.deepEqual(next.lost, [["/stored/news", {from: id + 1, to: id + 2}]]);
        // The history itself is gone.
        await server.control("kill");
        await server.start();
        await publish(server, 7);
        assert.deepEqual(await next.numbers(1), [7]);
        // Over long-polling the message may arrive before the answer that reports the loss.
        await eventually("a report of the lost history", () => next.lost.length > 1);
        assert.deepEqual(next.lost.slice(1), [["/stored/news", null]]);
        await disconnect(next.client);
    });
}

for (const [request, requested, answer] of [
    ["a request for all retained messages", -2, {recovered: true, epoch: "e", from: 5, latest: 6, lost: null}],
    ["a position after which messages are gone", {id: 1, epoch: "e"}, {recovered: false, epoch: "e", from: 5, latest: 6, lost: {from: 2, to: 4}}],
    ["a position in a history that is gone", {id: 9, epoch: "d"}, {recovered: false, epoch: "e", from: 5, latest: 6, lost: null}],
]) {
    test(`the answer to ${request} does not move the position back before messages that arrived earlier`, () => {
        const extension = new ReplayExtension({"/stored/news": requested});
        extension.outgoing({channel: "/meta/subscribe", subscription: "/stored/news"});
        for (const id of [5, 6, 7]) {
            extension.incoming({channel: "/stored/news", data: id, ext: {replay: {id, epoch: "e"}}});
        }
        extension.incoming({channel: "/meta/subscribe", ext: {replay: {"/stored/news": answer}}});
        assert.deepEqual(extension.positions, {"/stored/news": {id: 7, epoch: "e"}});
    });
}

test("an answer moves the position back if the server has fewer messages than the page", () => {
    const extension = new ReplayExtension({"/stored/news": {id: 9, epoch: "e"}});
    extension.outgoing({channel: "/meta/subscribe", subscription: "/stored/news"});
    const answer = {recovered: false, epoch: "e", from: 5, latest: 4, lost: null};
    extension.incoming({channel: "/meta/subscribe", ext: {replay: {"/stored/news": answer}}});
    assert.deepEqual(extension.positions, {"/stored/news": {id: 4, epoch: "e"}});
});

for (const transport of Object.keys(TRANSPORTS)) {
    testWith(`over ${transport} a page with a pattern of 3,000 channels goes on over a reload`, {history_messages: 10}, false, async server => {
        const channel = number => `/stored/quotes/number-${number}`;
        const publishRound = async round => {
            for (let number = 0; number < 3000; number++) {
                assert.equal(await server.control("publish", channel(number), String(round)), "ok");
            }
        };
        const openPage = async positions => {
            const page = newPage(server, transport, positions);
            const rounds = new Map();
            page.subscribeTo("/stored/quotes/*", ({channel, data}) => rounds.set(channel, [...rounds.get(channel) ?? [], data]));
            await connect(page.client);
            const has = (count, expected) => eventually(`${count} messages`, () => [...rounds.values()].flat().length >= count)
                .then(() => assert.ok([...rounds.values()].every(own => String(own) === String(expected)), "in order and once"));
            return {...page, rounds, has};
        };
        await publishRound(1);
        const first = await openPage({"/stored/quotes/*": -2});
        await first.has(3000, [1]);
        const stored = JSON.parse(JSON.stringify(first.positions));
        assert.equal(Object.keys(stored).length, 3001);
        await disconnect(first.client);
        await publishRound(2);
        const next = await openPage(stored);
        // Live messages come meanwhile.
        await publishRound(3);
        await next.has(6000, [2, 3]);
        assert.equal(await server.control("publish", "/stored/quotes/new", "4"), "ok");
        await eventually("a new channel", () => next.rounds.has("/stored/quotes/new"));
        assert.deepEqual([next.rounds.size, next.rounds.get("/stored/quotes/new"), first.lost, next.lost], [3001, [4], [], []]);
        const sent = next.client.wire.filter(text => text.startsWith("> ") && text.includes("/meta/subscribe"));
        assert.ok(sent.length > 20 && sent.every(text => text.length < 8192 + 10), "in messages that the client may send");
        await disconnect(next.client);
    });
}

test("a message that the page has is dropped", () => {
    const extension = new ReplayExtension({"/stored/*": -2});
    const message = id => ({channel: "/stored/a", data: id, ext: {replay: {id, epoch: "e"}}});
    assert.deepEqual([7, 8, 7, 8, 9].map(id => extension.incoming(message(id))?.data), [7, 8, undefined, undefined, 9]);
    assert.equal(extension.incoming({channel: "/stored/a", data: 1, ext: {replay: {id: 1, epoch: "f"}}}).data, 1, "of another history");
});

test("only positions of recent channels are stored, and none of those that the page has left", () => {
    const extension = new ReplayExtension({"/stored/*": -2});
    for (let id = 1; id <= 25_000; id++) {
        extension.incoming({channel: `/stored/${id}`, data: id, ext: {replay: {id, epoch: "e"}}});
    }
    const {positions} = extension;
    assert.ok(Object.keys(positions).length <= 3_701);
    assert.deepEqual([positions["/stored/*"], positions["/stored/25000"], positions["/stored/1"]], [-2, {id: 25_000, epoch: "e"}, undefined]);
    extension.outgoing({channel: "/meta/unsubscribe", subscription: "/stored/*"});
    assert.deepEqual(Object.keys(positions), ["/stored/*"]);
});

function testWith(name, rule, isDurable, run) {
    test(name, {skip: IS_COMETD}, async context => {
        const data = isDurable ? {data: await mkdtemp(join(tmpdir(), "encke-interop-"))} : {};
        const server = new Server({...data, channels: channels(rule)});
        context.after(async () => {
            await server.dispose();
            await (isDurable && rm(data.data, {recursive: true}));
        });
        await server.start();
        await run(server);
    });
}

/** A page with the extensions. It subscribes in each of its sessions. */
function newPage(server, transport, positions) {
    const client = newClient(server.origin + "/cometd", transport, new TRANSPORTS[transport]());
    const lost = [];
    client.registerExtension("ack", new AckExtension());
    const replay = new ReplayExtension(positions, (channel, range) => lost.push([channel, range]));
    client.registerExtension("replay", replay);
    const subscribeTo = (channel, take) =>
        client.addListener("/meta/handshake", ({successful}) => successful && replay.subscribe(client, channel, take));
    return {client, lost, positions, subscribeTo};
}

async function open(server, transport, positions) {
    const {client, lost, subscribeTo} = newPage(server, transport, positions);
    const inbox = new Inbox();
    const subscribed = new Promise(resolve => client.addListener("/meta/subscribe", resolve));
    subscribeTo("/stored/news", message => inbox.push(message));
    await connect(client);
    await subscribed;
    const numbers = async count => {
        const received = [];
        while (received.length < count) {
            received.push((await inbox.next()).data);
        }
        return received;
    };
    return {client, inbox, lost, positions, numbers};
}

async function publish(server, ...numbers) {
    for (const number of numbers) {
        assert.equal(await server.control("publish", "/stored/news", String(number)), "ok");
    }
}
