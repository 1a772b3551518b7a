// DNS rebinding: a page of a foreign server whose name is then made to point to Encke, under the same port. For the browser both are
// one origin, so nothing but Encke refuses what the page asks for.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { freePort } from "../free-port.mjs";
import { Browser, Server, TEST_LIMIT_MS } from "./harness.mjs";

const FOREIGN_NAME = "evil.example";

test("a page whose name is rebound to the server reads and publishes nothing", { timeout: TEST_LIMIT_MS }, async (t) => {
    const browser = await Browser.start(t, [`--host-resolver-rules=MAP ${FOREIGN_NAME} 127.0.0.1`]);
    const [foreign, port] = await pageOfForeignServer(t, browser);
    const server = await Server.start(t, port);
    const own = await browser.open(server.url);

    const { clientId, ...allowed } = await own.evaluate(attack);
    assert.deepEqual(allowed, {
        handshake: true, connect: true, subscribe: true, publish: true, received: ["by script"],
        metrics: 200, page: 200, post: 200, websocket: "open",
    });
    const { clientId: _, ...refused } = await foreign.evaluate(attack, clientId);
    assert.deepEqual(refused, {
        handshake: "refused", connect: "refused", subscribe: "refused", publish: "refused", received: [],
        metrics: 421, page: 421, post: 421, websocket: "refused",
    });
    const requests = 9;
    assert.ok(await server.metric("encke_hosts_refused_total") >= requests, "some of the attempts did not reach the server");
});

/** The page, still open, of a server that has since left its port to whoever takes it. */
async function pageOfForeignServer(t, browser) {
    const server = createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html><title>evil</title>"));
    t.after(() => server.close());
    const port = await freePort();
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
    const page = await browser.open(`http://${FOREIGN_NAME}:${port}/`);
    assert.equal(await page.title(), "evil");
    server.closeAllConnections();
    server.close();
    await once(server, "close");
    return [page, port];
}

/**
 * Runs in a page: everything it can try against the server it came from, and the outcomes. The scripts tell the server as little
 * as a page can arrange. If the page gets no session, it uses `stolenId`.
 */
async function attack(stolenId) {
    /** Callback-polling: the replies, or "refused". */
    const script = (message) => new Promise((resolve) => {
        const element = document.createElement("script");
        const address = new URL("/cometd", location);
        address.searchParams.set("jsonp", "answer");
        address.searchParams.set("message", JSON.stringify([message]));
        element.referrerPolicy = "no-referrer";
        element.src = address;
        element.onerror = () => resolve("refused");
        element.onload = () => resolve("no reply");
        window.answer = resolve;
        document.head.append(element);
    });
    const received = [];
    const ask = async (message) => {
        const replies = await script(message);
        if (!Array.isArray(replies)) {
            return { successful: replies };
        }
        received.push(...replies.filter(({ data }) => data !== undefined).map(({ data }) => data));
        return replies.find(({ successful }) => successful !== undefined);
    };
    const outcome = async (request) => (await request).successful;
    const status = async (path, options) => (await fetch(path, { referrerPolicy: "no-referrer", ...options })).status;

    const handshake = await ask({ channel: "/meta/handshake", version: "1.0", supportedConnectionTypes: ["callback-polling"] });
    const clientId = handshake.clientId ?? stolenId;
    const connect = () => ask({ channel: "/meta/connect", clientId, connectionType: "callback-polling", advice: { timeout: 0 } });
    return {
        clientId,
        handshake: handshake.successful,
        connect: await outcome(connect()),
        subscribe: await outcome(ask({ channel: "/meta/subscribe", clientId, subscription: "/rebinding" })),
        publish: await outcome(ask({ channel: "/rebinding", clientId, data: "by script" })),
        received: await connect().then(() => received),
        metrics: await status("/metrics"),
        page: await status("/"),
        post: await status("/cometd", { method: "POST", headers: { "content-type": "application/json" }, body: '[{"channel":"/meta/handshake"}]' }),
        websocket: await new Promise((resolve) => {
            const socket = new WebSocket(new URL("/cometd", location).href.replace("http", "ws"));
            socket.onopen = () => resolve("open");
            socket.onerror = () => resolve("refused");
        }),
    };
}
