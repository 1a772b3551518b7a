// Salesforce's streaming client: it offers the replay extension with a subscribe only, and takes positions out of `data.event`.

import assert from "node:assert/strict";
import {test} from "node:test";

import jsforce from "jsforce";
import {StreamingExtension} from "jsforce/lib/api/streaming.js";

import {Inbox} from "../src/client.js";
import {IS_COMETD, Server} from "../src/server.js";

const CHANNEL = "/event/Order__e";

test("jsforce goes on behind the last message that it has got", {skip: IS_COMETD, timeout: 180_000}, async context => {
    const server = new Server({channels: JSON.stringify([{pattern: "/event/**", history_messages: 100}])});
    const clients = [];
    context.after(async () => {
        // A client that disconnects from a server that is gone waits for its answer for ever.
        clients.forEach(client => client.disconnect());
        await server.dispose();
    });
    await server.start();
    const subscribe = position => subscribeTo(clients, server, position);
    const publish = async number => assert.equal(await server.control("publish", CHANNEL, `{"payload":${number}}`), "ok");

    const first = await subscribe(-1);
    await publish(1);
    const [one] = await first.take(1);
    assert.equal(one.payload, 1);
    assert.equal(typeof one.event.replayId, "number");
    await first.leave();

    await publish(2);
    await publish(3);
    const later = await subscribe(one.event.replayId);
    assert.deepEqual((await later.take(2)).map(({payload}) => payload), [2, 3]);
    await later.inbox.staysEmpty();

    const all = await subscribe(-2);
    assert.deepEqual((await all.take(3)).map(({payload}) => payload), [1, 2, 3]);
});

/** A streaming client of jsforce that subscribes to the channel from a position on. It needs no login: its token is not looked at. */
async function subscribeTo(clients, server, position) {
    const connection = new jsforce.Connection({instanceUrl: server.origin, accessToken: "any", version: "59.0"});
    const client = connection.streaming.createClient([new StreamingExtension.Replay(CHANNEL, position)]);
    clients.push(client);
    const leave = () => client.disconnect();
    const inbox = new Inbox();
    await client.subscribe(CHANNEL, message => inbox.push({channel: CHANNEL, data: message}));
    const take = async count => {
        const messages = [];
        while (messages.length < count) {
            messages.push((await inbox.next()).data);
        }
        return messages;
    };
    return {inbox, take, leave};
}
