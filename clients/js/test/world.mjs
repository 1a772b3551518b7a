// A world under virtual time: a server as Encke is one, a network that breaks, a machine whose clock jumps. Everything follows from a seed.

import { Client } from "../build/client.js";
import { Connection } from "../build/connection.js";
import { optionsOf } from "../build/index.js";

/** Random numbers that follow from a seed (mulberry32). */
export function randomOf(seed) {
    return () => {
        seed = (seed + 0x6d2b79f5) | 0;
        let bits = Math.imul(seed ^ (seed >>> 15), 1 | seed);
        bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
        return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
    };
}

/** Time that passes only when `run` says so. */
export class VirtualTime {
    now = 0;
    #timers = [];
    #order = 0;

    later(run, ms) {
        const timer = { at: this.now + Math.max(0, ms), order: (this.#order += 1), run };
        this.#timers.push(timer);
        return () => void (this.#timers = this.#timers.filter((other) => other !== timer));
    }

    /** Lets time pass, and everything happen that is due. `stopped`: no timer runs until the end, as in a machine that sleeps. */
    async run(ms) {
        const end = this.now + ms;
        for (;;) {
            await settle();
            const next = this.#timers.reduce((best, timer) => (best === undefined || timer.at < best.at || (timer.at === best.at && timer.order < best.order) ? timer : best), undefined);
            if (next === undefined || next.at > end) {
                this.now = end;
                return settle();
            }
            this.#timers.splice(this.#timers.indexOf(next), 1);
            this.now = Math.max(this.now, next.at);
            next.run();
        }
    }
}

/** Promises that are resolved have run their reactions. */
async function settle() {
    for (let turn = 0; turn < 30; turn++) {
        await Promise.resolve();
    }
}

/** A server with histories on all channels below `/h/`. */
export class ModelServer {
    constructor(time, random, { ack = true, replay = true, retained = 10_000 } = {}) {
        Object.assign(this, { time, random, ack, replay, retained });
        this.sessions = new Map();
        this.histories = new Map();
        this.isUp = true;
        this.handshakes = 0;
        this.boot = 0;
        this.texts = [];
    }

    /** Publishes a message. */
    publish(channel, data) {
        let position;
        if (channel.startsWith("/h/")) {
            const history = this.#history(channel);
            position = { epoch: history.epoch, id: history.next++ };
            history.messages.push({ position, data });
            history.messages.splice(0, history.messages.length - this.retained);
        }
        for (const session of this.sessions.values()) {
            if ([...session.names].some((name) => covers(name, channel))) {
                session.queue.push({ channel, data, position });
                this.flush(session);
            }
        }
    }

    /** All sessions are gone, and nothing else. With `wiped` the histories, too. */
    restart(wiped) {
        this.sessions.clear();
        this.boot += 1;
        if (wiped) {
            this.histories.clear();
            this.isWiped = true;
        }
    }

    /** Takes a text that came over a connection; `connection.send` answers. */
    take(connection, text) {
        this.texts.push(text);
        const replies = [];
        for (const message of JSON.parse(text)) {
            const reply = this.#answer(connection, message);
            if (reply !== undefined) {
                replies.push(reply);
            }
        }
        if (replies.length > 0 || connection.isRequest) {
            connection.send(replies, connection.isHeld);
        }
        const session = this.sessions.get(connection.session);
        if (session !== undefined) {
            this.flush(session);
        }
    }

    #answer(connection, message) {
        const { channel, id, clientId, subscription, ext } = message;
        const reply = { channel, id, successful: true };
        if (channel === "/meta/handshake") {
            this.handshakes += 1;
            const session = { id: `c${this.boot}x${this.handshakes}`, acks: this.ack && ext.ack === true, replays: this.replay && ext.replay?.positions === "ext", names: new Set(), queue: [], unacked: [], batch: 0, isFirst: true };
            this.sessions.set(session.id, session);
            this.#attach(session, connection);
            this.#expireLater(session);
            return { ...reply, clientId: session.id, version: "1.0", ext: { ack: session.acks, replay: session.replays && { positions: "ext" } }, advice: { reconnect: "retry", interval: 0, timeout: HOLD_MS } };
        }
        const session = this.sessions.get(clientId);
        if (session === undefined) {
            return { ...reply, successful: false, error: "402::session_unknown", ...(channel === "/meta/connect" ? { advice: { reconnect: "handshake" } } : {}) };
        }
        this.#expireLater(session);
        if (channel === "/meta/connect") {
            return this.#connect(session, connection, message, reply);
        }
        if (!connection.isRequest) {
            this.#attach(session, connection);
        }
        if (channel === "/meta/subscribe") {
            session.names.add(subscription);
            return { ...reply, subscription, ext: session.replays ? { replay: this.#begin(session, subscription, ext?.replay ?? {}) } : undefined };
        }
        if (channel === "/meta/unsubscribe") {
            session.names.delete(subscription);
            return { ...reply, subscription };
        }
        if (channel === "/meta/disconnect") {
            this.sessions.delete(clientId);
            return reply;
        }
        this.publish(channel, message.data);
        return reply;
    }

    #connect(session, connection, message, reply) {
        this.#attach(session, connection);
        if (session.acks) {
            const confirmed = message.ext?.ack ?? 0;
            session.queue.unshift(...session.unacked.filter(({ batch }) => batch > confirmed).map(({ item }) => item));
            session.unacked = [];
        }
        const atOnce = session.isFirst || message.advice?.timeout === 0;
        session.isFirst = false;
        session.held = { reply, connection, until: this.time.now + (atOnce ? 0 : HOLD_MS) };
        connection.isHeld = true;
        const { held } = session;
        this.time.later(() => session.held === held && this.flush(session, true), atOnce ? 0 : HOLD_MS);
        return undefined;
    }

    /** Sends what waits, if there is a way. */
    flush(session, isDue = false) {
        const { held, connection } = session;
        if (held !== undefined && (isDue || (session.queue.length > 0 && (session.acks || held.connection.isRequest)))) {
            session.held = undefined;
            const items = session.acks || held.connection.isRequest ? session.queue.splice(0) : [];
            const ext = {};
            if (session.acks) {
                session.batch += 1;
                session.unacked.push(...items.map((item) => ({ batch: session.batch, item })));
                ext.ack = session.batch;
            }
            held.connection.isHeld = false;
            held.connection.send([...items.map((item) => this.#message(item, session)), { ...held.reply, ext }]);
        } else if (!session.acks && connection?.isOpen === true && !connection.isRequest && session.queue.length > 0) {
            connection.send(session.queue.splice(0).map((item) => this.#message(item, session)));
        }
    }

    #message({ channel, data, position }, { replays }) {
        return position === undefined || !replays ? { channel, data } : { channel, data, ext: { replay: position } };
    }

    /** Subscribing at a position discards what waits on its channels, and reads the history again. */
    #begin(session, name, positions) {
        const answers = {};
        const channels = [...this.histories.keys()].filter((channel) => covers(name, channel));
        if (!name.endsWith("*") && name.startsWith("/h/") && !channels.includes(name)) {
            this.#history(name);
            channels.push(name);
        }
        for (const channel of channels) {
            const history = this.#history(channel);
            const wanted = positions[channel] ?? positions[name] ?? -1;
            if (wanted === -1) {
                // A channel that the session receives already continues unchanged.
                if (![...session.names].some((other) => other !== name && covers(other, channel))) {
                    answers[channel] = { recovered: true, epoch: history.epoch, from: history.next, latest: history.next - 1, lost: null };
                }
                continue;
            }
            const isKnown = typeof wanted === "object" && wanted.epoch === history.epoch;
            const oldest = history.messages[0]?.position.id ?? history.next;
            const from = wanted === -2 || (typeof wanted === "object" && !isKnown) ? oldest : Math.max(wanted.id + 1, oldest);
            const recovered = wanted === -2 || (isKnown && wanted.id + 1 >= oldest);
            session.queue = [...session.queue.filter((item) => item.channel !== channel), ...history.messages.filter(({ position }) => position.id >= from).map(({ position, data }) => ({ channel, data, position }))];
            session.unacked = session.unacked.filter(({ item }) => item.channel !== channel);
            answers[channel] = { recovered, epoch: history.epoch, from, latest: history.next - 1, lost: isKnown && !recovered ? { from: wanted.id + 1, to: oldest - 1 } : null };
        }
        if (!name.startsWith("/h/") && !name.endsWith("*") && name in positions) {
            answers[name] = { recovered: typeof positions[name] !== "object", epoch: null, from: null, latest: null, lost: null };
        }
        return answers;
    }

    #history(channel) {
        if (!this.histories.has(channel)) {
            this.histories.set(channel, { epoch: `e${Math.floor(this.random() * 1e9)}`, next: 1000, messages: [] });
        }
        return this.histories.get(channel);
    }

    #attach(session, connection) {
        connection.session = session.id;
        if (session.connection !== connection) {
            session.held = undefined;
            session.connection = connection;
        }
    }

    #expireLater(session) {
        session.stopExpiry?.();
        session.stopExpiry = this.time.later(() => this.sessions.delete(session.id), HOLD_MS + GRACE_MS);
    }
}

/** A network between one client and the server. */
export class Network {
    connections = new Set();
    isBroken = false;
    /** Transports that get an error, or no answer at all. */
    refused = new Set();
    swallowed = new Set();

    constructor(time, random, server) {
        Object.assign(this, { time, random, server });
        const network = this;
        this.WebSocket = class {
            constructor() {
                network.#open(this);
            }
            send(text) {
                this.wire.toServer(text);
            }
            close() {
                this.wire.end();
            }
        };
        this.fetch = (url, init) => this.#request(init);
    }

    /** All connections break. Their ends learn it after a while, or not at all. */
    cut() {
        for (const wire of this.connections) {
            wire.isOpen = false;
            if (this.random() < 0.7) {
                this.time.later(() => wire.broke?.(), this.random() * 100);
            }
        }
        this.connections.clear();
    }

    /** The text of messages; a test may spoil it. */
    write(messages) {
        return JSON.stringify(messages);
    }

    #delay() {
        return 1 + this.random() * 20;
    }

    #open(socket) {
        const kind = "websocket";
        if (this.swallowed.has(kind)) {
            socket.wire = { toServer: () => undefined, end: () => undefined };
            return;
        }
        if (this.isBroken || this.refused.has(kind) || !this.server.isUp) {
            socket.wire = { toServer: () => undefined, end: () => undefined };
            this.time.later(() => socket.onclose?.({ code: 1006, reason: "" }), this.#delay());
            return;
        }
        const wire = { isOpen: true, isRequest: false };
        this.connections.add(wire);
        let [upAt, downAt] = [0, 0];
        wire.toServer = (text) => {
            upAt = Math.max(upAt, this.time.now + this.#delay());
            this.time.later(() => wire.isOpen && this.server.take(wire, text), upAt - this.time.now);
        };
        wire.send = (messages) => {
            downAt = Math.max(downAt, this.time.now + this.#delay());
            this.time.later(() => wire.isOpen && socket.onmessage({ data: this.write(messages) }), downAt - this.time.now);
        };
        wire.end = () => {
            wire.isOpen = false;
            this.connections.delete(wire);
        };
        wire.broke = () => socket.onclose?.({ code: 1006, reason: "" });
        socket.wire = wire;
        this.time.later(() => wire.isOpen && socket.onopen(), this.#delay());
    }

    #request({ method, body, signal }) {
        return new Promise((resolve, reject) => {
            const kind = method === "POST" ? "long-polling" : "eventsource";
            const end = () => {
                wire.isOpen = false;
                reject(new Error("aborted"));
            };
            signal.addEventListener("abort", end, { once: true });
            const answer = (response) => {
                signal.removeEventListener("abort", end);
                resolve(response);
            };
            const wire = { isOpen: true, isRequest: true, broke: () => reject(new Error("broke")) };
            if (kind === "eventsource" || this.isBroken || this.refused.has(kind) || !this.server.isUp) {
                this.time.later(() => (kind === "eventsource" ? resolve({ ok: false, status: 404, headers: {}, body: null, text: async () => "" }) : reject(new Error("refused"))), this.#delay());
                return;
            }
            if (this.swallowed.has(kind)) {
                return;
            }
            this.connections.add(wire);
            wire.send = (messages, isWaiting = false) => {
                // A request is answered once: with the reply to a connect, if it has one.
                if (!isWaiting) {
                    this.time.later(() => {
                        if (wire.isOpen) {
                            this.connections.delete(wire);
                            answer({ ok: true, status: 200, headers: {}, text: async () => this.write(messages) });
                        }
                    }, this.#delay());
                }
            };
            this.time.later(() => wire.isOpen && this.server.take(wire, body), this.#delay());
        });
    }
}

/** A client in this world. */
export function clientIn({ time, random, network }, options = {}) {
    const happenings = new Set();
    const machine = { isOnline: true, dateOffset: 0, happen: (happening) => happenings.forEach((run) => run(happening)) };
    const environment = {
        now: () => time.now,
        date: () => time.now + machine.dateOffset,
        random,
        later: (run, ms) => time.later(run, ms),
        isOnline: () => machine.isOnline,
        listen: (run) => {
            happenings.add(run);
            return () => happenings.delete(run);
        },
    };
    const all = { WebSocket: network.WebSocket, fetch: network.fetch, transports: ["websocket", "long-polling"], ...options };
    const client = new Client("http://model/cometd", all, (emit, memory) => new Connection({ ...optionsOf("http://model/cometd", all, memory?.takeSession()), environment, store: options.store }, emit));
    return Object.assign(client, { machine });
}

/** A world with its parts. */
export function world(seed, serverOptions) {
    const random = randomOf(seed);
    const time = new VirtualTime();
    const server = new ModelServer(time, random, serverOptions);
    const network = new Network(time, random, server);
    return { time, random, server, network };
}

function covers(name, channel) {
    return name === channel || (name.endsWith("/*") && channel.startsWith(name.slice(0, -1)) && !channel.slice(name.length - 1).includes("/"));
}

export const HOLD_MS = 20_000;
export const GRACE_MS = 10_000;
