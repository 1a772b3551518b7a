// Publishes over Encke's HTTP API and reads the history, with nothing but Node.
//
//   ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… node client.mjs

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

const url = process.env.ENCKE_URL ?? "http://127.0.0.1:8080";
const key = process.env.ENCKE_API_KEY;

/** Calls an operation, and tries again while the server is busy. */
async function call(method, path, body, headers = {}) {
    for (let attempt = 1; attempt <= 5; attempt++) {
        const response = await fetch(`${url}/api/v1${path}`, {
            method,
            headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
            body: body && JSON.stringify(body),
        });
        const answer = await response.json();
        if (response.ok) {
            return answer;
        }
        if (response.status !== 503) {
            throw new Error(`${answer.title}: ${answer.detail} ${JSON.stringify(answer.errors ?? [])}`);
        }
        await pause(Number(response.headers.get("retry-after") ?? 1) * 1000 * attempt);
    }
    throw new Error("the server is busy");
}

/** Publishes a message. With a separate key, one that is sent again is not published twice. */
function publish(channel, data) {
    return call("POST", "/publish", { channel, data }, { "idempotency-key": randomUUID() });
}

const channel = `/history/node-${randomUUID().slice(0, 8)}`;
console.log("publish:", await publish(channel, { price: 42 }));
const messages = [0, 1].map((number) => ({ channels: [channel, "/news"], data: number }));
console.log("batch:", await call("POST", "/publish/batch", { messages }));
const history = await call("GET", `/history?channel=${encodeURIComponent(channel)}`);
console.log(`history: ${history.messages.length} messages`);
console.log("channels:", (await call("GET", "/channels?limit=10")).channels);
