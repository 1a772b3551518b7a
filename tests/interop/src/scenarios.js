// The scenarios of scenarios.json, by name. Each gets a world:
//   transport            the connection type under test
//   client(options)      a new, unconnected client on that transport
//   peer(options)        a new, unconnected client of another browser (or on a connection that
//                        does not count towards this one's held connects)
//   control(command, …)  kick, publish, sessions, kill, stop, start of the server under test
//   rawTexts()           texts received by callback-polling before the browser parsed them
//   set                  the server options the scenario asked for

import {
    check, connect, disconnect, equal, eventually, Inbox, nextMeta, publish, QUIET_MS, remoteCall, sleep, subscribe
} from "./client.js";

export const scenarios = {
    "handshake": async world => {
        const client = world.client();
        const replies = await connect(client);
        const {handshake} = replies;
        check(/^\w{16,}$/.test(handshake.clientId), "clientId: " + handshake.clientId);
        equal(handshake.version, "1.0", "version");
        check(handshake.supportedConnectionTypes.includes(world.transport), "types: " + handshake.supportedConnectionTypes);
        equal(handshake.advice.reconnect, "retry", "advice.reconnect");
        equal(handshake.advice.interval, 0, "advice.interval");
        equal(handshake.advice.timeout, Number(world.set.timeout_ms), "advice.timeout");
        await eventually("status connected", () => client.getStatus() === "connected");
        equal(await world.control("sessions"), "sessions 1", "sessions");
    },

    "subscribe": async world => {
        const {client, peer} = await twoSessions(world);
        const inbox = new Inbox();
        const {reply} = await subscribe(client, "/news/one", inbox);
        equal(reply.subscription, "/news/one", "subscription");

        check((await publish(peer, "/news/two", "elsewhere")).successful, "publish refused");
        check((await publish(peer, "/news/one", {text: "hello"})).successful, "publish refused");
        const message = await inbox.next();
        equal(message.channel, "/news/one", "channel");
        equal(message.data, {text: "hello"}, "data");
        check(!("clientId" in message), "the publisher's clientId is shown");
        await inbox.staysEmpty();
    },

    "wildcard": async world => {
        const {client, peer} = await twoSessions(world);
        const [star, starStar] = [new Inbox(), new Inbox()];
        await subscribe(client, "/x/*", star);
        await subscribe(client, "/x/**", starStar);
        for (const channel of ["/x", "/x/a", "/x/a/b", "/y/a"]) {
            check((await publish(peer, channel, channel)).successful, "publish refused on " + channel);
        }
        equal((await star.next()).data, "/x/a", "first for /x/*");
        equal((await starStar.next()).data, "/x/a", "first for /x/**");
        equal((await starStar.next()).data, "/x/a/b", "second for /x/**");
        await star.staysEmpty();
        await starStar.staysEmpty();
        const copies = client.wire.join("").split('"/x/a"').length - 1;
        // One delivery has the name twice: as its channel and as its data.
        equal(copies, 2, "times /x/a came over the wire");
    },

    "publish with reply": async world => {
        const client = world.client();
        await connect(client);
        const inbox = new Inbox();
        await subscribe(client, "/own", inbox);
        const reply = await publish(client, "/own", [1, 2, 3]);
        equal(reply.successful, true, "successful");
        equal(reply.channel, "/own", "channel of the reply");
        const sent = client.wire.filter(text => text.startsWith(">")).join("\n");
        check(sent.includes(`"id":"${reply.id}"`), "the reply's id is not the publish's: " + reply.id);
        equal((await inbox.next()).data, [1, 2, 3], "own message");
        await inbox.staysEmpty();
    },

    "batch": async world => {
        const client = world.client();
        await connect(client);
        const inbox = new Inbox();
        const numbers = Array.from({length: 50}, (_, i) => i);
        const replies = [];
        client.batch(() => {
            replies.push(subscribe(client, "/batch", inbox));
            numbers.forEach(n => replies.push(publish(client, "/batch", n)));
        });
        for (const reply of (await Promise.all(replies)).slice(1)) {
            check(reply.successful, "refused: " + JSON.stringify(reply));
        }
        for (const n of numbers) {
            equal((await inbox.next()).data, n, "next of the batch");
        }
        await inbox.staysEmpty();
    },

    "service message": async world => {
        const {client, peer} = await twoSessions(world);
        await subscribe(peer, "/**", new Inbox());
        const answer = await remoteCall(client, "/echo", {question: "who?"});
        equal(answer.successful, true, "successful");
        equal(answer.data, {question: "who?"}, "data");

        const answers = await Promise.all([1, 2, 3].map(n => remoteCall(client, "/echo", n)));
        equal(answers.map(a => a.data), [1, 2, 3], "answers of concurrent calls");
        await sleep(QUIET_MS);
        check(!peer.wire.join("").includes("/service/"), "another session sees the calls");
    },

    "unsubscribe": async world => {
        const {client, peer} = await twoSessions(world);
        const inbox = new Inbox();
        const {handle} = await subscribe(client, "/news", inbox);
        await publish(peer, "/news", 1);
        equal((await inbox.next()).data, 1, "while subscribed");
        const reply = await new Promise(resolve => client.unsubscribe(handle, resolve));
        check(reply.successful, "refused: " + JSON.stringify(reply));
        equal(reply.subscription, "/news", "subscription");

        await publish(peer, "/news", '"after unsubscribe"');
        await inbox.staysEmpty();
        check(!client.wire.join("").includes("after unsubscribe"), "the server still delivers");
    },

    "disconnect": async world => {
        const client = world.client();
        await connect(client);
        const reply = await disconnect(client);
        equal(reply.successful, true, "successful");
        await eventually("status disconnected", () => client.getStatus() === "disconnected");
        await noSessionsLeft(world);
    },

    "server killed and restarted": world => recovers(world, async () => {
        await world.control("kill");
        await sleep(500);
        await world.control("start");
    }),

    "server stopped and restarted": world => recovers(world, async () => {
        equal(await world.control("stop"), 0, "exit code");
        await world.control("start");
    }),

    "expired session": world => recovers(world, async client => {
        const refused = nextMeta(client, "/meta/connect", message => !message.successful);
        sleepOnce(client, 8000);
        const reply = await refused;
        equal(reply.error, "402::session_unknown", "error");
        equal(reply.advice.reconnect, "handshake", "advice.reconnect");
    }),

    "kicked session": async world => {
        const client = world.client();
        await connect(client);
        const clientId = client.getClientId();
        await holdsConnect(world, client);
        equal(await world.control("kick", clientId), "ok", "kick");
        await eventually("status disconnected", () => client.getStatus() === "disconnected");
        await noSessionsLeft(world);

        let handshakes = 0;
        const listener = client.addListener("/meta/handshake", () => ++handshakes);
        await sleep(3 * QUIET_MS);
        client.removeListener(listener);
        equal(handshakes, 0, "handshakes that the client started by itself");
        await connect(client);
        check(client.getClientId() !== clientId, "the clientId came back");
    },

    "60 KB message": async world => {
        const options = {maxSendBayeuxMessageSize: 100000};
        const {client, peer} = await twoSessions(world, options);
        const [inbox, peerInbox] = [new Inbox(), new Inbox()];
        await subscribe(client, "/large", inbox);
        await subscribe(peer, "/large", peerInbox);
        const data = "0123456789abcdef".repeat(3840);
        const publisher = world.transport === "callback-polling" ? peer : client;
        check((await publish(publisher, "/large", data)).successful, "publish refused");
        for (const box of [inbox, peerInbox]) {
            equal((await box.next("the large message")).data, data, "data");
        }
    },

    "unicode": async world => {
        const {client, peer} = await twoSessions(world);
        const [inbox, peerInbox] = [new Inbox(), new Inbox()];
        await subscribe(client, "/text", inbox);
        await subscribe(peer, "/text", peerInbox);
        // Callback-polling sends URLs of at most 2,000 characters: one text a message.
        for (const text of UNICODE) {
            check((await publish(client, "/text", {[text]: text})).successful, "publish refused");
            equal((await inbox.next()).data, {[text]: text}, "own text");
            equal((await peerInbox.next()).data, {[text]: text}, "text at the other session");
        }
    },

    "integers above 2^53": async world => {
        const client = world.client();
        await connect(client);
        const inbox = new Inbox();
        await subscribe(client, "/numbers", inbox);
        const received = async () => [...client.wire.filter(text => text.startsWith("<")), ...await world.rawTexts()].join("\n");

        const list = LARGE_INTEGERS.map(digits => "@" + digits);
        check((await publish(client, "/numbers", {fromClient: list})).successful, "publish refused");
        await inbox.next();
        await world.control("publish", "/numbers", `{"fromServer":[${LARGE_INTEGERS}]}`);
        await inbox.next();
        for (const source of ["fromClient", "fromServer"]) {
            await eventually(`${source} digit by digit`, async () => (await received()).includes(`{"${source}":[${LARGE_INTEGERS}]}`));
        }
    }
};

/** Two connected sessions that are not of one browser. */
async function twoSessions(world, options) {
    const client = world.client(options);
    const peer = world.peer(options);
    await Promise.all([connect(client), connect(peer)]);
    return {client, peer};
}

/**
 * A subscribed client goes through `fault`, must come back by itself with a new session, and,
 * when it has subscribed again (as applications do, on the handshake), gets messages again.
 */
async function recovers(world, fault) {
    const client = world.client();
    await connect(client);
    const oldClientId = client.getClientId();
    const inbox = new Inbox();
    let {handle} = await subscribe(client, "/news", inbox);
    await world.control("publish", "/news", "1");
    equal((await inbox.next()).data, 1, "before the fault");
    await holdsConnect(world, client);

    const back = nextMeta(client, "/meta/handshake", message => message.successful, RECOVERY_MS);
    const subscribed = nextMeta(client, "/meta/subscribe", () => true, RECOVERY_MS);
    client.addListener("/meta/handshake", message => {
        if (message.successful) {
            handle = client.resubscribe(handle);
        }
    });
    await fault(client);
    const handshake = await back;
    check(handshake.clientId !== oldClientId, "the clientId came back");
    check((await subscribed).successful, "subscribing again was refused");
    await world.control("publish", "/news", "2");
    equal((await inbox.next()).data, 2, "after the fault");
    await inbox.staysEmpty();
    equal(await world.control("sessions"), "sessions 1", "sessions");
}

/** Waits until the server has no session, long before one could expire. */
function noSessionsLeft(world) {
    return eventually("sessions 0", async () => await world.control("sessions") === "sessions 0");
}

/** Waits until the server holds the client's second connect. */
async function holdsConnect(world, client) {
    const connects = () => client.wire.filter(text => text.startsWith(">") && text.includes('"/meta/connect"')).length;
    await eventually("a second connect", () => connects() >= 2);
    // Over WebSocket the server has read the connect before it answers this.
    await publish(client, "/held", null);
    if (world.transport !== "websocket") {
        await eventually("a held connect", async () => !/^encke_held_requests(\{.*\})? 0$/m.test(await metrics(world)));
        // CometD has no such metric.
        await sleep(100);
    }
}

/** The metrics of the server; a server without them answers with something else. */
async function metrics(world) {
    return (await fetch(new URL("/metrics", world.url))).text();
}

/**
 * Makes a client silent, like a laptop that sleeps: the next connect reply reads, to the
 * client alone, as if it advised to wait `ms` before the next connect.
 */
function sleepOnce(client, ms) {
    client.registerExtension("sleep", {
        incoming: message => {
            if (message.channel === "/meta/connect") {
                client.unregisterExtension("sleep");
                message.advice = {...client.getAdvice(), interval: ms};
            }
            return message;
        }
    });
}

/** The time that a client may be away; it includes the restart of a server, JVMs on a busy machine among them. */
const RECOVERY_MS = 90000;

const UNICODE = [
    "Grüße, naïve façade, ¿qué?",
    "Привет · Γειά · 你好 · こんにちは · 안녕 · שלום · مرحبا · हिन्दी",
    "😀 👩‍👩‍👧‍👦 𝔘𝔫𝔦 🇪🇺 e\u0301",
    "\u0000\u0001\b\t\n\f\r\u001f\u007f\u0080",
    "\"quoted\" \\ / \\u0041 </script><!-- ]]>",
    "\u2028\u2029\ufeff\ufffd\uffff",
    "%41 + & = ? #"
];

const LARGE_INTEGERS = [
    "9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551615",
    "12345678901234567890", "-12345678901234567890", "123456789012345678901234567890"
];
