// Clients of a server behind a proxy, on every transport: `node through-proxy.js URL`. Each gets a message that is published while it waits.

import {LongPollingTransport, WebSocketTransport} from "cometd";
import {adapt} from "cometd-nodejs-client";
import {check, connect, disconnect, equal, eventually, Inbox, newClient, publish, subscribe} from "./client.js";

const url = process.argv[2];
/** The cookie of the session of scripts. */
let cookie;

adapt();
await cometd("websocket", new WebSocketTransport());
await cometd("long-polling", new LongPollingTransport());
await callbackPolling();
await heldRequest();
await streams();
process.exit(0);

/** CometD's client gets what it publishes itself. */
async function cometd(type, transport) {
    const client = newClient(`${url}/cometd`, type, transport, {maxSendBayeuxMessageSize: 200000});
    await connect(client);
    equal(client.getTransport().type, type, "the transport");
    const inbox = new Inbox();
    await subscribe(client, "/proxied/" + type, inbox);
    for (const text of ["grün", "x".repeat(100000)]) {
        check((await publish(client, "/proxied/" + type, text)).successful, "published");
        equal((await inbox.next()).data, text, type);
    }
    await disconnect(client);
}

/** A session of scripts, as a browser loads them. */
async function callbackPolling() {
    const {clientId} = await call({channel: "/meta/handshake", version: "1.0", supportedConnectionTypes: ["callback-polling"]});
    const session = {clientId, connectionType: "callback-polling"};
    await call({...session, channel: "/meta/connect"});
    check((await call({...session, channel: "/meta/subscribe", subscription: "/proxied/script"})).successful, "subscribed");
    const held = script({...session, channel: "/meta/connect"});
    await call({...session, channel: "/proxied/script", data: "seen"});
    // The connect is answered with the message, or was already held when it was published.
    equal((await held).find(message => message.channel === "/proxied/script")?.data, "seen", "callback-polling");
    await call({...session, channel: "/meta/disconnect"});
}

/** The reply to one message. */
async function call(message) {
    return (await script(message)).find(reply => reply.channel === message.channel && "successful" in reply);
}

/** The messages in the script that answers a message. */
async function script(message) {
    const query = new URLSearchParams({jsonp: "f", message: JSON.stringify([message])});
    const response = await fetch(`${url}/cometd?${query}`, {headers: cookie ? {cookie} : {}});
    cookie ??= response.headers.get("set-cookie")?.split(";")[0];
    const text = await response.text();
    check(response.status === 200, `${response.status} ${text}`);
    return JSON.parse(text.replace(/^[^(]*\(/, "").replace(/\);?\s*$/, ""));
}

/** `GET /hold/…` is answered with the message. */
async function heldRequest() {
    let answer;
    const held = fetch(`${url}/hold/proxied/held?timeout=60`).then(response => response.json()).then(json => answer = json);
    const publisher = newClient(`${url}/cometd`, "long-polling", new LongPollingTransport());
    await connect(publisher);
    // A publication before the request has arrived is for nobody.
    await eventually("the held request is answered", async () => {
        await publish(publisher, "/proxied/held", "seen");
        return answer;
    });
    await held;
    equal(answer[0].data, "seen", "the held request");
    await disconnect(publisher);
}

/** `GET /stream/…` brings each message when it is published, as an event and as a line. */
async function streams() {
    const publisher = newClient(`${url}/cometd`, "long-polling", new LongPollingTransport(), {maxSendBayeuxMessageSize: 200000});
    await connect(publisher);
    for (const accept of ["text/event-stream", "application/x-ndjson"]) {
        const leave = new AbortController();
        const response = await fetch(`${url}/stream/proxied/stream`, {headers: {accept}, signal: leave.signal});
        equal(response.headers.get("content-type"), accept, "the type of the stream");
        let text = "";
        const read = (async () => {
            for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
                text += part;
            }
        })().catch(error => check(leave.signal.aborted, `${accept}: ${error}`));
        for (const said of ["grün", "x".repeat(100000), "last"]) {
            check((await publish(publisher, "/proxied/stream", said)).successful, "published");
            await eventually(`${accept} has brought a message`, () => text.includes(`"data":${JSON.stringify(said)}}`));
        }
        leave.abort();
        await read;
    }
    await disconnect(publisher);
}
