// The official client with promises, for the scenarios in Node and in the browser.

import {CometD} from "cometd";

/** The time in which a scenario waits for one thing to happen, unless it says otherwise. */
export const WAIT_MS = 90000;

/** The time in which nothing must happen before a scenario believes that it never will. */
export const QUIET_MS = 400;

/**
 * A CometD client restricted to one transport, with a record of its wire texts.
 * `transport` is an instance of the client's transport class for `type`.
 */
export function newClient(url, type, transport, options = {}) {
    const cometd = new CometD();
    const wire = recordWire(transport);
    cometd.unregisterTransports();
    cometd.registerTransport(type, transport);
    cometd.configure({url, logLevel: "error", backoffIncrement: 250, ...options});
    return Object.assign(cometd, {wire});
}

/** Handshakes and waits for the first connect reply; resolves to both. */
export async function connect(cometd) {
    const connected = nextMeta(cometd, "/meta/connect");
    const handshake = await new Promise(resolve => cometd.handshake({}, resolve));
    check(handshake.successful, "handshake refused: " + JSON.stringify(handshake));
    const connectReply = await connected;
    check(connectReply.successful, "first connect refused: " + JSON.stringify(connectReply));
    return {handshake, connect: connectReply};
}

/** Subscribes; resolves to `{reply, handle}` and rejects when refused. */
export async function subscribe(cometd, channel, inbox) {
    let handle;
    const reply = await within(WAIT_MS, "subscribe reply for " + channel, resolve => {
        handle = cometd.subscribe(channel, message => inbox.push(message), resolve);
    });
    check(reply.successful, "subscribe refused: " + JSON.stringify(reply));
    return {reply, handle};
}

/** Publishes; resolves to the reply, whether successful or not. */
export function publish(cometd, channel, data) {
    return within(WAIT_MS, "publish reply for " + channel, resolve => cometd.publish(channel, data, resolve));
}

/** Calls a remote target; resolves to the answer. */
export function remoteCall(cometd, target, data) {
    return within(WAIT_MS, "answer of " + target, resolve => cometd.remoteCall(target, data, resolve));
}

/** Disconnects; resolves to the reply. */
export function disconnect(cometd) {
    return within(WAIT_MS, "disconnect reply", resolve => cometd.disconnect(resolve));
}

/** The next message on a meta channel for which `accept` holds, waiting `ms` for it. */
export function nextMeta(cometd, channel, accept = () => true, ms = WAIT_MS) {
    return within(ms, channel, resolve => {
        const handle = cometd.addListener(channel, message => {
            if (accept(message)) {
                cometd.removeListener(handle);
                resolve(message);
            }
        });
    });
}

/** Messages of a subscription in the order they came. */
export class Inbox {
    #messages = [];
    #waiting = [];

    push(message) {
        const waiter = this.#waiting.shift();
        if (waiter) {
            waiter(message);
        } else {
            this.#messages.push(message);
        }
    }

    /** The next message, waiting for it. */
    next(what = "message") {
        if (this.#messages.length > 0) {
            return Promise.resolve(this.#messages.shift());
        }
        return within(WAIT_MS, what, resolve => this.#waiting.push(resolve));
    }

    /** Fails when a message is there or comes within `QUIET_MS`. */
    async staysEmpty() {
        await sleep(QUIET_MS);
        equal(this.#messages.map(message => [message.channel, message.data]), [], "unexpected messages");
    }
}

/** Fails unless `condition` holds. */
export function check(condition, what) {
    if (!condition) {
        throw new Error(what);
    }
}

/** Fails unless both have the same JSON. */
export function equal(actual, expected, what) {
    const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
    check(a === b, `${what}: got ${shorten(a)}, expected ${shorten(b)}`);
}

export function sleep(ms) {
    return new Promise(resolve => setTimeout(resolve, ms));
}

/** Polls until `condition` resolves to true, for at most `ms`. */
export async function eventually(what, condition, ms = WAIT_MS) {
    const end = Date.now() + ms;
    while (!await condition()) {
        check(Date.now() < end, "never happened: " + what);
        await sleep(50);
    }
}

/** A promise made by `start(resolve)` that is rejected after `ms`. */
function within(ms, what, start) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`waited ${ms} ms for: ${what}`)), ms);
        start(value => {
            clearTimeout(timer);
            resolve(value);
        });
    });
}

/**
 * Notes what a transport sends and receives, as text where the transport has it as text
 * (callback-polling receives what the browser has already parsed), and lets a scenario send
 * numbers that JavaScript cannot hold: the string "@digits" goes out as the number digits.
 */
function recordWire(transport) {
    const wire = [];
    const note = (direction, text) => {
        wire.push(direction + " " + text);
        return text;
    };
    const {convertToJSON, convertToMessages, jsonpSend} = transport;
    transport.convertToJSON = function (messages) {
        return note(">", exactNumbers(convertToJSON.call(this, messages)));
    };
    transport.convertToMessages = function (response) {
        note("<", typeof response === "string" ? response : JSON.stringify(response));
        return convertToMessages.call(this, response);
    };
    if (jsonpSend) {
        transport.jsonpSend = function (packet) {
            jsonpSend.call(this, {...packet, body: note(">", exactNumbers(packet.body))});
        };
    }
    return wire;
}

function exactNumbers(json) {
    return json.replace(/"@(-?\d+)"/g, "$1");
}

function shorten(text) {
    return text && text.length > 300 ? `${text.slice(0, 300)}… (${text.length} characters)` : text;
}
