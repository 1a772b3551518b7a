// Faye's client: it shakes hands over HTTP and then moves to WebSocket with the same session, without its cookie.

import assert from "node:assert/strict";
import {test} from "node:test";

import faye from "faye";

import {Server} from "../src/server.js";

for (const [name, disabled] of [["moves from HTTP to WebSocket", []], ["stays with long-polling", ["websocket"]]]) {
    test(`Faye's client ${name}`, async context => {
        const server = new Server();
        await server.start();
        const clients = [0, 1].map(() => new faye.Client(server.origin + "/faye", {timeout: 20}));
        context.after(async () => {
            clients.forEach(client => client.disconnect());
            await server.dispose();
        });
        const [subscriber, publisher] = clients;
        disabled.forEach(transport => subscriber.disable(transport));
        const arrived = [];
        let done;
        const all = new Promise(resolve => (done = resolve));
        await subscriber.subscribe("/news/*", data => {
            arrived.push(data.number);
            if (arrived.length === 5) {
                done();
            }
        });
        for (let number = 1; number <= 5; number++) {
            await publisher.publish("/news/today", {number});
        }
        await all;
        assert.deepEqual(arrived, [1, 2, 3, 4, 5]);
    });
}
