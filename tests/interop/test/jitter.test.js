// The official client's acknowledgement under breaks: everything arrives, once and in order. With JITTER=full in the measure of
// the issue it answers: 100 sessions for a minute.

import assert from "node:assert/strict";
import {test} from "node:test";

import {adapt} from "cometd-nodejs-client";

import {jitter} from "../src/jitter.js";
import {Server} from "../src/server.js";

adapt();

const MEASURE = process.env.JITTER === "full"
    ? {clients: 100, seconds: 60, cutEveryMs: 15000, offlineMs: 2000}
    : {clients: 20, seconds: 6, cutEveryMs: 1500, offlineMs: 200};

for (const transport of ["websocket", "long-polling"]) {
    test(`ack over ${transport}, connections that break all the time: nothing is lost, doubled or out of order`, async context => {
        const server = new Server();
        await server.start();
        context.after(() => server.dispose());
        const {expected, cuts, ...wrong} = await jitter(server, transport, MEASURE);
        context.diagnostic(`${expected} messages, ${cuts} breaks`);
        assert.deepEqual(wrong, {lost: 0, doubled: 0, reordered: 0, renewed: 0});
        assert.ok(cuts > MEASURE.clients, `only ${cuts} breaks`);
    });
}
