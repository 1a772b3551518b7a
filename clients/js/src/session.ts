/**
 * A Bayeux session without I/O: messages and times go in, messages and events come out. It reads no clock and opens no connection.
 *
 *               connection opened                reply                replies
 *     down ──┬── no session ──▶ handshaking ──────────▶ subscribing ──────────▶ open: due ⇄ connected
 *      ▲     │        ▲                                      ▲
 *      │     │        └ later ─── waiting ◀── session unknown│refused for now
 *      │     └── session ─▶ resuming ──── known ─────────────┘
 *      └── connection lost, no reply
 */

import type { Environment } from "./environment.js";
import type { PlainError } from "./errors.js";
import { plain, refusal } from "./errors.js";
import type { SessionEvent } from "./events.js";
import { isPosition } from "./channels.js";
import { Names } from "./names.js";
import type { Transport } from "./types.js";
import { CONNECT, DISCONNECT, HANDSHAKE, UNSUBSCRIBE, isReply } from "./wire.js";
import type { ServerMessage } from "./wire.js";

/** The request that carries a message over HTTP: one that the server holds, a handshake alone, or any other. */
export type RequestClass = "connect" | "handshake" | "other";

/** A message to be sent. */
export interface Outgoing {
    class: RequestClass;
    text: string;
    /** The session whose stream gets the reply. */
    stream?: string;
}

/** The options of a session. */
export interface SessionOptions {
    ack: boolean;
    replay: boolean;
    replyTimeoutMs: number;
    environment: Environment;
}

/** What goes on in the next page. */
export interface SavedSession {
    clientId: string;
    batch: number;
    /** The subscriptions, with their intervals in milliseconds. */
    names: [string, number][];
    acknowledges: boolean;
    replays: boolean;
}

type Phase =
    | { name: "down" | "ended" }
    | { name: "waiting" | "due"; at: number }
    | { name: "handshaking" | "resuming" | "connected" | "disconnecting"; id: string; deadline: number }
    | { name: "subscribing"; deadline: number; resumed: boolean };

/** A session. After each call take what is in `out` and `events`, and call `wake` at `wakeAt`. */
export class Session {
    readonly out: Outgoing[] = [];
    readonly events: SessionEvent[] = [];
    readonly names: Names;
    clientId: string | undefined;
    /** The transport of the connection, or of the next one. */
    transport: Transport = "websocket";
    /** True if the server has replied over this connection; and in the way in which messages come. */
    hasReplied = false;
    isConfirmed = false;
    /** True if the server of this session acknowledges. */
    acknowledges = false;
    /** The longest message that the server takes: Encke's default, until it says another. */
    messageBytesMax = 1_048_576;

    readonly #options: SessionOptions;
    readonly #ext: () => object;
    #phase: Phase = { name: "down" };
    #lastId = 0;
    #batch = 0;
    /** Messages of the batch that no connect reply has closed yet. */
    #unconfirmed: ServerMessage[] = [];
    #holdMs = HOLD_UNKNOWN_MS;
    #intervalMs = 0;
    #refusals = 0;
    #wasOpen = false;

    /** `ext` returns members of the handshake's `ext`. */
    constructor(options: SessionOptions, ext: () => object) {
        this.#options = options;
        this.#ext = ext;
        this.names = new Names((channel, fields) => this.#send("other", channel, fields), this.events);
    }

    /** Continues the session of an earlier page. Before the first connection. */
    restore({ clientId, batch, names, acknowledges, replays }: SavedSession): void {
        this.clientId = clientId;
        this.#batch = batch;
        this.acknowledges = acknowledges;
        this.names.replays = replays;
        this.names.restore(names);
        this.#wasOpen = true;
    }

    /** All that another page needs to continue; `undefined` if there is no session. */
    save(): SavedSession | undefined {
        if (!this.clientId || !this.#wasOpen) {
            return undefined;
        }
        return { clientId: this.clientId, batch: this.#batch, names: this.names.granted(), acknowledges: this.acknowledges, replays: this.names.replays };
    }

    get isOpen(): boolean {
        return this.#phase.name === "due" || this.#phase.name === "connected";
    }

    get isEnded(): boolean {
        return this.#phase.name === "ended";
    }

    /** There is a connection: resumes the old session, or opens one. */
    opened(now: number): void {
        if (this.#phase.name !== "down") {
            return;
        }
        this.hasReplied = this.isConfirmed = false;
        this.names.isOrdered = this.transport === "websocket";
        if (!this.clientId) {
            this.#handshake(now);
        } else {
            this.#phase = { name: "resuming", id: this.#connect(true), deadline: now + this.#options.replyTimeoutMs };
        }
    }

    /** The connection broke. */
    lost(error: PlainError): void {
        const phase = this.#phase;
        if (phase.name === "disconnecting") {
            this.#end(error);
        } else if (phase.name !== "down" && phase.name !== "ended") {
            if (phase.name === "subscribing" && !phase.resumed) {
                // The server may not have all subscriptions, and a resumed session does not send them again.
                this.clientId = undefined;
            }
            this.#phase = { name: "down" };
            this.out.length = 0;
            this.#unconfirmed = [];
            this.names.connectionLost();
            this.events.push({ on: "lost", error });
        }
    }

    /** The time at which `wake` is to be called, if nothing else happens before. */
    get wakeAt(): number {
        const phase = this.#phase;
        return "at" in phase ? phase.at : "deadline" in phase ? phase.deadline : Infinity;
    }

    /** Does everything that is due. */
    wake(now: number): void {
        if (this.wakeAt > now) {
            return;
        }
        if (this.#phase.name === "waiting") {
            this.#handshake(now);
        } else if (this.#phase.name === "due") {
            this.#hold(now);
        } else {
            this.lost(plain("timed_out", NO_REPLY));
        }
    }

    /** Publishes JSON text and returns the message's id. The session has to be open. */
    publish(channel: string, data: string): string {
        return this.#send("other", channel, {}, data);
    }

    /** Sends something to which any server replies, to find out if the connection works. Returns its id. */
    ping(): string {
        return this.#send("other", UNSUBSCRIBE, { subscription: "/encke/ping" });
    }

    /** Ends the session. */
    disconnect(now: number): void {
        if (this.isOpen) {
            const id = this.#send("other", DISCONNECT, {});
            this.#phase = { name: "disconnecting", id, deadline: now + DISCONNECT_MS };
        } else if (!this.isEnded) {
            this.#end(CLOSED);
        }
    }

    /** Lets a session that was ended begin again, with a new token for example. */
    revive(): void {
        this.#phase = { name: "down" };
    }

    /** Takes the messages of one text from the server. */
    received(messages: ServerMessage[], now: number): void {
        for (const message of messages) {
            if (this.isEnded || this.#phase.name === "down") {
                return;
            }
            this.#take(message, now);
        }
    }

    #take(message: ServerMessage, now: number): void {
        if (!isReply(message)) {
            if (this.acknowledges) {
                this.#unconfirmed.push(message);
            } else {
                this.#deliver(message);
            }
            return;
        }
        this.hasReplied = true;
        const { advice, channel } = message;
        const phase = this.#phase;
        const id = message.id === undefined ? undefined : String(message.id);
        const isAnswer = "id" in phase && (id === undefined || id === phase.id);
        if (channel.startsWith("/meta/") && advice) {
            this.#intervalMs = bounded(advice.interval, this.#intervalMs);
            this.#holdMs = bounded(advice.timeout, this.#holdMs);
        }
        if (channel === CONNECT && message.successful === true) {
            this.#close(message);
        }
        if (channel === HANDSHAKE) {
            if (phase.name === "handshaking" && isAnswer) {
                this.#handshaken(message, now);
            }
        } else if (channel === CONNECT) {
            if ((phase.name === "resuming" || phase.name === "connected") && isAnswer) {
                this.#connected(message, phase.name === "resuming", now);
            }
        } else if (channel === DISCONNECT && (id === undefined || phase.name === "disconnecting")) {
            this.#disconnected(message, phase.name === "disconnecting", now);
        } else if (id !== undefined) {
            this.#replied(id, message, now);
        }
    }

    #handshaken(message: ServerMessage, now: number): void {
        const { clientId, advice, ext, successful } = message;
        if (successful === true && typeof clientId === "string") {
            this.clientId = clientId;
            this.#refusals = this.#batch = 0;
            this.#unconfirmed = [];
            this.acknowledges = this.#options.ack && (ext?.ack === true || ext?.ack?.enabled === true);
            this.names.replays = this.#options.replay && ext?.replay?.positions === "ext";
            this.messageBytesMax = ext?.limits?.message_bytes ?? this.messageBytesMax;
            this.isConfirmed ||= this.transport !== "eventsource";
            this.#repeat(now, false);
        } else if (advice?.reconnect === "retry" || advice?.reconnect === "handshake") {
            this.#renew(now);
        } else {
            this.#end(refusal(message.error));
        }
    }

    #connected(message: ServerMessage, isResuming: boolean, now: number): void {
        const reconnect = message.advice?.reconnect;
        const successful = message.successful === true;
        if (reconnect === "none") {
            return this.#end(refusal(message.error ?? ENDED));
        }
        if (reconnect === "handshake" || (!successful && (isResuming || isUnknown(message)))) {
            return this.#renew(now);
        }
        this.isConfirmed ||= !isResuming || this.transport !== "eventsource";
        if (isResuming) {
            return this.#repeat(now, true);
        }
        this.#phase = { name: "due", at: now + (successful ? this.#intervalMs : Math.max(this.#intervalMs, FAILED_CONNECT_MS)) };
        this.wake(now);
    }

    /** The server, or this side, ends the session. */
    #disconnected(message: ServerMessage, isWanted: boolean, now: number): void {
        if (isWanted) {
            this.#end(CLOSED);
        } else if (message.advice?.reconnect === "handshake" || message.advice?.reconnect === "retry") {
            this.#renew(now);
        } else {
            this.#end(refusal(message.error ?? ENDED));
        }
    }

    /** The reply to a subscribe, an unsubscribe or a publication. */
    #replied(id: string, message: ServerMessage, now: number): void {
        const isChange = this.names.has(id);
        const successful = message.successful === true;
        const isGone = !successful && (message.advice?.reconnect === "handshake" || isUnknown(message));
        if (isChange && isGone) {
            // The session is gone: the change goes into the next one.
            return this.#renew(now);
        }
        if (isChange) {
            this.names.replied(id, message);
            if (this.#phase.name === "subscribing") {
                this.#phase.deadline = now + this.#options.replyTimeoutMs;
                this.#openIfRepeated(now);
            }
            return;
        }
        const position: unknown = message.ext?.replay;
        this.events.push({ on: "reply", id, error: successful ? undefined : refusal(message.error), position: isPosition(position) ? position : undefined });
        if (isGone && this.isOpen) {
            this.#renew(now);
        }
    }

    /** A connect reply closes a batch, and has the positions of silent channels. */
    #close({ ext }: ServerMessage): void {
        if (this.acknowledges) {
            const messages = this.#unconfirmed;
            this.#unconfirmed = [];
            const batch: unknown = ext?.ack;
            if (typeof batch !== "number" || batch > this.#batch) {
                this.#batch = typeof batch === "number" ? batch : this.#batch;
                messages.forEach((message) => this.#deliver(message));
            }
        }
        // Until the repeats have their replies, the positions of the server are those of the time before the break.
        if (this.#phase.name !== "subscribing" && !this.#mustRepeat()) {
            this.names.reached(ext?.replay);
        }
        this.names.turned();
    }

    #deliver(message: ServerMessage): void {
        if (this.names.received(message.channel, message.ext?.replay, this.#mustRepeat())) {
            this.events.push({ on: "message", message });
        }
    }

    /** True if the session is old, and the server cannot know which messages the broken connection took along. */
    #mustRepeat(): boolean {
        return this.#phase.name === "resuming" && this.names.replays && !this.acknowledges;
    }

    /** Subscribes to everything again, in a new session, and over a new connection of one that does not acknowledge. */
    #repeat(now: number, resumed: boolean): void {
        const mustRepeat = !resumed || this.#mustRepeat();
        this.names.connectionLost();
        this.#phase = { name: "subscribing", deadline: now + this.#options.replyTimeoutMs, resumed };
        if (mustRepeat) {
            this.names.repeat(!resumed);
        }
        this.#openIfRepeated(now);
    }

    #openIfRepeated(now: number): void {
        const phase = this.#phase;
        if (phase.name !== "subscribing" || this.names.isChanging) {
            return;
        }
        this.#phase = { name: "due", at: phase.resumed ? now + this.#intervalMs : now };
        this.events.push({ on: "opened", resumed: phase.resumed });
        const { ack, replay } = this.#options;
        if (this.#wasOpen && (ack || replay) && !(phase.resumed && this.acknowledges)) {
            this.names.reportGaps();
        }
        this.#wasOpen = true;
        this.names.opened();
        this.wake(now);
    }

    #handshake(now: number): void {
        this.clientId = undefined;
        this.acknowledges = this.names.replays = false;
        const { ack, replay } = this.#options;
        const ext = { ...this.#ext(), ack: ack || undefined, replay: replay ? { positions: "ext" } : undefined, limits: true };
        const id = this.#send("handshake", HANDSHAKE, { version: "1.0", supportedConnectionTypes: [this.transport], ext });
        this.#phase = { name: "handshaking", id, deadline: now + this.#options.replyTimeoutMs };
    }

    /** Sends the connect that the server holds. The first one on a stream comes back at once: it shows that the stream works. */
    #hold(now: number): void {
        const isTest = this.transport === "eventsource" && !this.isConfirmed;
        const id = this.#connect(isTest);
        this.#phase = { name: "connected", id, deadline: now + (isTest ? 0 : this.#holdMs) + this.#options.replyTimeoutMs };
    }

    #connect(atOnce: boolean): string {
        // There is no stream yet, and the server may not know that the earlier one broke.
        const type = !this.isOpen && this.transport === "eventsource" ? "long-polling" : this.transport;
        const ext = this.acknowledges ? { ack: this.#batch } : undefined;
        const id = this.#send("connect", CONNECT, { connectionType: type, advice: atOnce ? { timeout: 0 } : undefined, ext });
        if (type === "eventsource") {
            this.out.at(-1)!.stream = this.clientId!;
        }
        return id;
    }

    #send(kind: RequestClass, channel: string, fields: object, data?: string): string {
        const id = String((this.#lastId += 1));
        const text = JSON.stringify({ channel, id, clientId: this.clientId, ...fields });
        this.out.push({ class: kind, text: data === undefined ? text : `${text.slice(0, -1)},"data":${data}}` });
        return id;
    }

    /** The server does not know the session, or not yet: a handshake over the same connection, at once the first time. */
    #renew(now: number): void {
        this.clientId = undefined;
        this.names.connectionLost();
        const longest = Math.min(FAILED_CONNECT_MS * 2 ** this.#refusals, REFUSED_MAX_MS);
        const pause = this.#refusals === 0 ? this.#intervalMs : Math.max(this.#intervalMs, longest * (0.5 + 0.5 * this.#options.environment.random()));
        this.#refusals += 1;
        this.#phase = { name: "waiting", at: now + pause };
        this.wake(now);
    }

    #end(error: PlainError): void {
        this.#phase = { name: "ended" };
        this.clientId = undefined;
        this.out.length = 0;
        this.names.connectionLost();
        this.events.push({ on: "ended", error });
    }
}

/** True if the server does not know the session. Faye says 401. */
function isUnknown(message: ServerMessage): boolean {
    return /^402:|^401:[^:]*:Unknown client/.test(message.error ?? "");
}

function bounded(value: unknown, otherwise: number): number {
    return typeof value === "number" && value >= 0 ? Math.min(value, ADVICE_MAX_MS) : otherwise;
}

/** The error of a client that is closed. */
export const CLOSED = plain("closed", "the client is closed");
export const NO_REPLY = "no reply in time";
const ENDED = "the server ended the session";
/** The time for which a server without advice holds a connect: longer than any default known. */
const HOLD_UNKNOWN_MS = 120_000;
/** The longest time that advice may ask for. */
const ADVICE_MAX_MS = 86_400_000;
/** The pause after a connect that the server refused, and the first one after a handshake that it refused for now. */
const FAILED_CONNECT_MS = 1_000;
/** The longest pause between two handshakes that the server refuses for now. */
const REFUSED_MAX_MS = 30_000;
/** The time for which `close` waits for the server. */
const DISCONNECT_MS = 2_000;
