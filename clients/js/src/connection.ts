/** The connection of a client: brings together its session, its transports, the orders of its subscriptions, and time. */

import type { Environment, Happening } from "./environment.js";
import type { PlainError } from "./errors.js";
import { broken, plain, refusal } from "./errors.js";
import type { SessionEvent } from "./events.js";
import { open } from "./link.js";
import type { Link, LinkOptions } from "./link.js";
import type { Command, Core, CoreEvent, PlainState } from "./protocol.js";
import type { RoutesOptions } from "./routes.js";
import { Routes } from "./routes.js";
import type { SavedSession, SessionOptions } from "./session.js";
import { CLOSED, NO_REPLY, Session } from "./session.js";
import { Token } from "./token.js";
import type { Position } from "./types.js";
import { bytesOf, parse } from "./wire.js";
import type { ServerMessage } from "./wire.js";

/** The options of a connection; the environment is a test's, or the real one. */
export interface ConnectionOptions extends LinkOptions, RoutesOptions, SessionOptions {
    ext: object;
    hasToken: boolean;
    messageBytesMax: number;
    pendingMax: number;
    saved: SavedSession | undefined;
}

/** A publication that was sent, and that has no reply yet. */
interface Sent {
    /** Its caller; `undefined` if that does not wait any more. */
    key: number | undefined;
    channel: string;
    isCall: boolean;
    bytes: number;
    /** The time by which the server replies. */
    deadline: number;
}

type Publication = Extract<Command, { do: "publish" }>;

/** A connection in this thread. */
export class Connection implements Core {
    readonly #options: ConnectionOptions;
    readonly #environment: Environment;
    readonly #emit: (event: CoreEvent) => void;
    readonly #session: Session;
    readonly #routes: Routes;
    readonly #token = new Token();
    #link: Link | undefined;
    /** The time of the next attempt, while there is no connection. */
    #attemptAt = Infinity;
    #attemptedAt = 0;
    /** The time by which the attempt has to show that its transport works. */
    #fallbackAt = Infinity;
    #isConfirmed = false;
    #wasOpen = false;
    #isFrozen = false;
    /** A message that shows if a WebSocket still works, and the time by which it does. */
    #ping: { id: string; deadline: number } | undefined;
    /** The names of subscriptions by key. */
    readonly #names = new Map<number, string>();
    #queue: Publication[] = [];
    readonly #sent = new Map<string, Sent>();
    #state: PlainState = { name: "connecting" };
    #isScheduled = false;
    #stopTimer = () => {};
    readonly #stopListening: () => void;

    constructor(options: ConnectionOptions, emit: (event: CoreEvent) => void) {
        this.#options = options;
        this.#environment = options.environment;
        this.#emit = emit;
        this.#session = new Session(options, () => ({ ...options.ext, ...this.#token.ext }));
        this.#routes = new Routes(options);
        if (options.saved) {
            this.#session.restore(options.saved);
        }
        this.#stopListening = options.environment.listen((happening) => this.#happened(happening));
        this.#attemptAt = this.#now();
        this.#schedule();
    }

    command(command: Command): void {
        if (this.#session.isEnded) {
            return this.#done("key" in command ? command.key : undefined, CLOSED);
        }
        const { names, isOpen } = this.#session;
        if (command.do === "subscribe") {
            this.#names.set(command.key, command.name);
            names.subscribe(command, isOpen);
        } else if (command.do === "unsubscribe") {
            const name = this.#names.get(command.key);
            this.#names.delete(command.key);
            if (name && ![...this.#names.values()].includes(name)) {
                names.unsubscribe(name, isOpen);
            }
        } else if (command.do === "publish") {
            this.#publish(command);
        } else if (command.do === "drop") {
            this.#queue = this.#queue.filter(({ key }) => key !== command.key);
            this.#sent.forEach((sent) => (sent.key = sent.key === command.key ? undefined : sent.key));
        } else if (command.do === "token") {
            this.#takeToken(command);
        } else {
            this.#session.disconnect(this.#now());
        }
        this.#schedule();
    }

    freeze(): SavedSession | undefined {
        this.#isFrozen = true;
        this.#lose("hidden");
        this.#turn();
        return this.#session.save();
    }

    thaw(): void {
        this.#isFrozen = false;
        this.#attemptAt = this.#now();
        this.#schedule();
    }

    #now(): number {
        return this.#environment.now();
    }

    /** Commands of one task go together. */
    #schedule(): void {
        if (!this.#isScheduled) {
            this.#isScheduled = true;
            queueMicrotask(() => {
                this.#isScheduled = false;
                this.#turn();
            });
        }
    }

    /** Does everything that can be done now, and sets the timer. */
    #turn(): void {
        const now = this.#now();
        this.#session.wake(now);
        this.#expire(now);
        while (this.#session.events.length > 0) {
            this.#session.events.splice(0).forEach((event) => this.#take(event));
        }
        if (this.#session.isOpen) {
            this.#queue.splice(0).forEach((publication) => this.#publish(publication));
        }
        if (this.#session.out.length > 0) {
            this.#link?.send(this.#session.out.splice(0));
        }
        if (this.#attemptAt <= now && !this.#isFrozen && !this.#session.isEnded) {
            this.#attempt();
        }
        this.#setTimer();
    }

    #expire(now: number): void {
        if (this.#fallbackAt <= now) {
            this.#lose(`${this.#session.transport} does not get through`);
        } else if (this.#replyUntil <= now) {
            this.#lose(NO_REPLY);
        }
    }

    #setTimer(): void {
        this.#stopTimer();
        const next = Math.min(this.#session.wakeAt, this.#attemptAt, this.#fallbackAt, this.#replyUntil);
        if (next !== Infinity && !this.#isFrozen) {
            this.#stopTimer = this.#environment.later(() => this.#turn(), Math.max(0, next - this.#now()));
        }
    }

    /** The time by which the server has to reply to a ping, or to a publication: the oldest one. */
    get #replyUntil(): number {
        const oldest = [...this.#sent.values()].find(({ isCall }) => !isCall);
        return Math.min(this.#ping?.deadline ?? Infinity, oldest?.deadline ?? Infinity);
    }

    /** Opens a connection, with a token that has not ended. */
    #attempt(): void {
        this.#attemptAt = Infinity;
        if (this.#options.hasToken && !this.#token.isUsable && !this.#session.clientId) {
            return this.#emit({ on: "token", why: this.#token.isRefused ? "refused" : "first" });
        }
        const transport = this.#routes.current;
        this.#session.transport = transport;
        this.#isConfirmed = false;
        this.#attemptedAt = this.#now();
        this.#fallbackAt = this.#attemptedAt + this.#routes.attemptMs;
        const link: Link = open(transport, this.#options, {
            opened: () => this.#ifCurrent(link, () => this.#session.opened(this.#now())),
            received: (text) => this.#ifCurrent(link, () => this.#received(text)),
            lost: (message, status) => this.#ifCurrent(link, () => this.#lose(message, status)),
        });
        this.#link = link;
    }

    #ifCurrent(link: Link, run: () => void): void {
        if (link === this.#link) {
            run();
            this.#turn();
        }
    }

    #received(text: string): void {
        try {
            this.#session.received(parse(text), this.#now());
        } catch {
            return this.#lose("no Bayeux");
        }
        if (this.#isConfirmed) {
            return;
        }
        if (this.#session.hasReplied) {
            this.#fallbackAt = Infinity;
        }
        if (this.#session.isConfirmed) {
            this.#isConfirmed = true;
            this.#routes.worked(this.#now() - this.#attemptedAt);
        } else if (this.#session.isOpen) {
            // The stream has to show that it works, too.
            this.#fallbackAt = this.#now() + this.#routes.attemptMs;
        }
    }

    #lose(message: string, status?: number): void {
        const error = broken(message, status);
        this.#session.lost(error);
        this.#break(error);
    }

    /** The connection is gone. */
    #break(error: PlainError): void {
        if (!this.#link) {
            return;
        }
        this.#link.close();
        this.#link = undefined;
        this.#ping = undefined;
        this.#fallbackAt = Infinity;
        this.#loseSent(error);
        if (this.#session.isEnded) {
            return;
        }
        if (!this.#isConfirmed && this.#session.transport === "eventsource" && !this.#session.acknowledges) {
            // The request for the stream may still arrive. What then goes there comes again only where it is acknowledged.
            this.#session.clientId = undefined;
        }
        const pause = this.#isConfirmed ? this.#routes.broke() : this.#routes.failed();
        this.#attemptAt = this.#now() + pause;
        const name = !this.#environment.isOnline() ? "offline" : this.#wasOpen ? "reconnecting" : "connecting";
        this.#become({ name, error });
    }

    /** Publications without a reply may have arrived or not. If the server refused a text for its length, the longest is the one. */
    #loseSent(error: PlainError): void {
        const isTooLarge = TOO_LARGE.includes(error.status!);
        const longest = Math.max(...[...this.#sent.values()].map(({ bytes }) => bytes));
        for (const { key, bytes } of this.#sent.values()) {
            this.#done(key, isTooLarge && bytes === longest ? plain("too_large", "longer than the server takes") : { ...error, code: "connection_lost" });
        }
        this.#sent.clear();
    }

    #take(event: SessionEvent): void {
        if (event.on === "opened") {
            this.#wasOpen = true;
            this.#token.isAccepted();
            this.#become({ name: "connected", transport: this.#session.transport, resumed: event.resumed });
        } else if (event.on === "reply") {
            this.#replied(event);
        } else if (event.on === "subscribed") {
            const { keys, error } = event;
            keys.filter(() => error).forEach((key) => this.#names.delete(key));
            this.#emit({ on: "done", keys, error });
        } else if (event.on === "message") {
            this.#deliver(event.message);
        } else if (event.on === "lost") {
            this.#break(event.error);
        } else if (event.on === "ended") {
            this.#ended(event.error);
        } else {
            if (event.on === "unsubscribed") {
                this.#names.forEach((name, key) => name === event.name && this.#names.delete(key));
            }
            this.#emit(event);
        }
    }

    #replied({ id, error, position }: { id: string; error?: PlainError; position?: Position }): void {
        const sent = this.#sent.get(id);
        if (this.#ping?.id === id) {
            this.#ping = undefined;
        } else if (sent && (!sent.isCall || error)) {
            this.#sent.delete(id);
            this.#done(sent.key, error, position);
        }
    }

    #deliver(message: ServerMessage): void {
        const sent = message.id === undefined ? undefined : this.#sent.get(String(message.id));
        if (sent?.isCall === true && sent.channel === message.channel) {
            this.#sent.delete(String(message.id));
            const { data } = message as { data?: any };
            const error = message.successful === false ? refusal(data?.message ?? message.error) : undefined;
            if (sent.key === TOKEN_KEY) {
                this.#refreshed(data, error);
            } else if (sent.key) {
                this.#emit({ on: "done", keys: [sent.key], ...(!error ? { data } : { error }) });
            }
        } else if (message.channel === EXPIRING && this.#options.hasToken) {
            this.#emit({ on: "token", why: "expiring" });
        } else {
            this.#emit({ on: "message", message });
        }
    }

    #ended(error: PlainError): void {
        this.#loseSent(error);
        if (error.status === 401 && this.#options.hasToken && this.#token.mayRetry()) {
            this.#session.revive();
            return this.#break(error);
        }
        this.#link?.close();
        this.#link = undefined;
        this.#stopListening();
        this.#attemptAt = this.#fallbackAt = Infinity;
        this.#ping = undefined;
        this.#queue.splice(0).forEach(({ key }) => this.#done(key, error));
        this.#emit({ on: "done", keys: [...this.#names.keys()], error });
        this.#become({ name: "closed", error: error.code === "closed" ? undefined : error });
    }

    #publish(command: Publication): void {
        const { key, channel, data, isCall } = command;
        const bytes = bytesOf(data) + ENVELOPE_BYTES + bytesOf(channel);
        if (bytes > Math.min(this.#options.messageBytesMax, this.#session.messageBytesMax)) {
            return this.#done(key, plain("too_large", `${bytes} bytes, above the limit`));
        }
        if (this.#sent.size + this.#queue.length >= this.#options.pendingMax) {
            return this.#done(key, plain("too_many", "pendingMax messages wait"));
        }
        if (!this.#session.isOpen) {
            this.#queue.push(command);
            return;
        }
        const id = this.#session.publish(channel, data);
        this.#sent.set(id, { key, channel, isCall, bytes, deadline: this.#now() + this.#options.replyTimeoutMs });
    }

    #done(key: number | undefined, error: PlainError | undefined, position?: Position): void {
        if (key !== undefined && key !== TOKEN_KEY) {
            this.#emit({ on: "done", keys: [key], error, position });
        }
    }

    #takeToken({ token, error }: { token?: string; error?: string }): void {
        if (!token) {
            this.#become({ ...this.#state, error: plain("refused", `no token: ${error}`) });
        } else {
            this.#token.set(token);
        }
        if (this.#session.isOpen && token) {
            this.#publish({ do: "publish", key: TOKEN_KEY, channel: REFRESH, data: JSON.stringify({ token }), isCall: true });
        } else if (!this.#link) {
            this.#attemptAt = this.#now() + (!token ? Math.max(1_000, this.#routes.pauseMs()) : 0);
        }
    }

    /** The server has taken the new token, or not: then the session ends with the old one, and a handshake asks for another. */
    #refreshed(data: { unsubscribed?: string[] } | undefined, error: PlainError | undefined): void {
        if (error) {
            this.#token.isRefused = true;
        }
        for (const name of data?.unsubscribed ?? []) {
            this.#session.names.unsubscribe(name, false);
            this.#take({ on: "unsubscribed", name, error: refusal("403::token_refreshed") });
        }
    }

    #happened(happening: Happening): void {
        const { transport, isOpen } = this.#session;
        if (!this.#link) {
            if (happening !== "offline" && this.#attemptAt !== Infinity) {
                this.#attemptAt = this.#now();
            }
        } else if (isOpen && transport === "websocket") {
            this.#ping ??= { id: this.#session.ping(), deadline: this.#now() + PING_MS };
        } else if (isOpen && happening !== "shown") {
            this.#lose(happening);
            this.#attemptAt = this.#now();
        }
        this.#schedule();
    }

    #become(state: PlainState): void {
        this.#state = state;
        this.#emit({ on: "state", state });
    }
}

const EXPIRING = "/service/auth/expiring";
const REFRESH = "/service/auth/refresh";
/** The key of the refresh of a token. */
const TOKEN_KEY = -1;
/** The close code of a WebSocket, and the status of a response, for a text that was too long (RFC 6455 §7.4.1, RFC 9110 §15.5.14). */
const TOO_LARGE = [1009, 413];
/** The bytes of a message beside its channel and data, at most. */
const ENVELOPE_BYTES = 256;
/** The time in which a WebSocket shows that it still works. */
const PING_MS = 3_000;
