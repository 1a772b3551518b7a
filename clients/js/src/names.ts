/** The subscriptions of a session: grants, repeats after a break, and the positions at which they begin. Without I/O. */

import type { PlainError } from "./errors.js";
import { refusal } from "./errors.js";
import type { Lost, Replays, SessionEvent } from "./events.js";
import { Positions, covers, isPattern, isPosition } from "./channels.js";
import type { From, Position } from "./types.js";
import type { Command } from "./protocol.js";
import { SUBSCRIBE, UNSUBSCRIBE } from "./wire.js";
import type { ServerMessage } from "./wire.js";

/** What a subscription wants. */
type Wanted = Omit<Extract<Command, { do: "subscribe" }>, "do">;

/** A subscribe that waits until it is sent. */
interface Waiting extends Wanted {
    /** True if others have the name, and this one begins earlier. */
    isRestart: boolean;
}

interface Name {
    from: From;
    /** True if the server has it, or had it before the break. */
    isGranted: boolean;
    /** True if messages came without positions. */
    hasNoHistory: boolean;
    /** The least time between two messages of a channel: the shortest that somebody asked for. */
    intervalMs: number;
    waiting: Waiting[];
}

/** A subscribe or unsubscribe without a reply. */
interface Change {
    name: string;
    channel: string;
    waiting: Waiting[];
    /** True if it repeats a subscription after a break. */
    isRepeat: boolean;
    /** True if it brings channels whose positions are not known from their beginning. */
    beginsEarlier: boolean;
    /** True if it continues a pattern, and may miss channels that are new. */
    mayMiss?: boolean;
}

/** The subscriptions of a session. */
export class Names {
    readonly positions = new Positions();
    /** True if the server of this session replays. */
    replays = false;
    /** False if messages and replies to subscribes come over different connections. */
    isOrdered = true;

    readonly #send: (channel: string, fields: object) => string;
    readonly #events: SessionEvent[];
    readonly #names = new Map<string, Name>();
    /** By the ids of their messages. */
    readonly #changes = new Map<string, Change>();
    /** Names that the server may have and nobody wants, with their intervals. */
    readonly #unwanted = new Map<string, number>();
    /** True if a subscription has begun with earlier messages since the last reply to a connect. */
    #hasBegun = false;

    constructor(send: (channel: string, fields: object) => string, events: SessionEvent[]) {
        this.#send = send;
        this.#events = events;
    }

    /** Continues with what an earlier page had. */
    restore(names: [string, number][]): void {
        names.forEach(([name, intervalMs]) => this.#unwanted.set(name, intervalMs));
    }

    /** Names that the server has, with their intervals. */
    granted(): [string, number][] {
        return [...[...this.#names].filter(([, { isGranted }]) => isGranted).map(([name, { intervalMs }]): [string, number] => [name, intervalMs]), ...this.#unwanted];
    }

    /** True while a change has no reply. */
    get isChanging(): boolean {
        return this.#changes.size > 0;
    }

    subscribe(wanted: Wanted, isOpen: boolean): void {
        const { name, from, positions, intervalMs } = wanted;
        const known = this.#names.get(name);
        const waiting = { ...wanted, isRestart: known !== undefined && (from !== "latest" || positions.length > 0) };
        if (!known) {
            // One that ends, or has another interval, has to be subscribed to again.
            const isGranted = this.#unwanted.get(name) === intervalMs && ![...this.#changes.values()].some((change) => change.name === name);
            this.#unwanted.delete(name);
            this.#names.set(name, { from, isGranted, hasNoHistory: false, intervalMs, waiting: [waiting] });
            positions.filter(([channel]) => this.positions.get(channel) === undefined).forEach(([channel, position]) => this.positions.set(channel, position));
        } else {
            known.waiting.push(waiting);
        }
        if (isOpen) {
            this.#ask(name);
        }
    }

    unsubscribe(name: string, isOpen: boolean): void {
        const known = this.#names.get(name);
        if (!known) {
            return;
        }
        this.#names.delete(name);
        this.positions.retain(this.#names.keys());
        this.#unwanted.set(name, known.intervalMs);
        if (isOpen) {
            this.#drop(name);
        }
    }

    /** Subscribes to all granted names again, at their positions. `isNew`: the server has none of them. */
    repeat(isNew: boolean): void {
        if (isNew) {
            this.#unwanted.clear();
        }
        for (const [name, known] of this.#names) {
            if (known.isGranted) {
                this.#askAgain(name, known);
            }
        }
    }

    /** The session is open, and the server has all granted names: sends what waits. */
    opened(): void {
        for (const name of this.#names.keys()) {
            this.#ask(name);
        }
        this.#unwanted.forEach((_, name) => this.#drop(name));
    }

    /** Reports the granted subscriptions that may have missed messages which nothing brings back. */
    reportGaps(): void {
        for (const [name, known] of this.#names) {
            const hasPosition = this.positions.below(name).length > 0;
            const isCovered = this.replays && !known.hasNoHistory && hasPosition && (!isPattern(name) || this.#beginsEarlier(known));
            if (known.isGranted && !isCovered) {
                this.#events.push({ on: "gap", name });
            }
        }
    }

    /** Changes without a reply are sent again when the session is open again. */
    connectionLost(): void {
        for (const { name, waiting } of this.#changes.values()) {
            this.#names.get(name)?.waiting.unshift(...waiting);
        }
        this.#changes.clear();
    }

    /** True if the message with this id changes subscriptions. */
    has(id: string): boolean {
        return this.#changes.has(id);
    }

    /** A change has its reply. */
    replied(id: string, message: ServerMessage): void {
        const change = this.#changes.get(id);
        this.#changes.delete(id);
        if (!change) {
            return;
        }
        if (change.channel === UNSUBSCRIBE) {
            this.#unwanted.delete(change.name);
        } else if (message.successful === true) {
            this.#granted(change, message);
        } else {
            this.#refused(change, refusal(message.error));
        }
    }

    /** A message came: moves to its position. False if it comes again, because a subscribe has no reply yet, or `isAhead` of repeats. */
    received(channel: string, replay: unknown, isAhead: boolean): boolean {
        const position = this.replays && isPosition(replay) ? replay : undefined;
        if (position) {
            if (this.#comesAgain(channel, isAhead)) {
                return false;
            }
            this.positions.set(channel, position);
        } else if (this.replays) {
            this.#hasNoHistory(channel);
        }
        return true;
    }

    /** A connect has its reply. */
    turned(): void {
        if (this.#hasBegun) {
            this.#hasBegun = false;
            this.#events.push({ on: "turned" });
        }
    }

    /** A connect reply has the positions of silent channels. */
    reached(replay: unknown): void {
        for (const [channel, reached] of Object.entries((replay ?? {}) as Record<string, any>)) {
            const position = isPosition(reached) ? { epoch: reached.epoch, id: reached.id } : undefined;
            const known = this.positions.get(channel);
            if (!position) {
                this.positions.delete(channel);
            } else if (known?.epoch !== position.epoch || known.id < position.id) {
                this.positions.set(channel, position);
            }
            this.#tell(channel, position, reached?.lost ? range(reached.lost) : undefined);
        }
    }

    #granted(change: Change, message: ServerMessage): void {
        const known = this.#names.get(change.name);
        if (known) {
            known.isGranted = true;
        }
        if (change.waiting.length > 0) {
            this.#events.push({ on: "subscribed", keys: change.waiting.map(({ key }) => key) });
        }
        if (change.mayMiss === true) {
            this.#events.push({ on: "gap", name: change.name });
        }
        this.#hasBegun ||= change.beginsEarlier && !change.isRepeat;
        for (const [channel, answer] of Object.entries((message.ext?.replay ?? {}) as Record<string, any>)) {
            this.#begin(channel, answer ?? {}, change);
        }
        if (!change.isRepeat) {
            this.#ask(change.name);
        }
    }

    /** Takes over the position at which a channel begins. */
    #begin(channel: string, { epoch, from, latest, lost, recovered }: Record<string, any>, { isRepeat, beginsEarlier }: Change): void {
        const known = this.positions.get(channel);
        const position = typeof epoch === "string" && Number.isSafeInteger(from) ? { epoch, id: (from as number) - 1 } : undefined;
        if (!position) {
            this.positions.delete(channel);
            this.#hasNoHistory(channel);
        } else if (known?.epoch !== epoch || !isRepeat || known!.id < position.id || recovered === false) {
            this.positions.set(channel, position);
        }
        // All subscriptions without a history are reported together when the session opens.
        const isGone = recovered === false && (position || !isRepeat);
        const isAwaited = !this.isOrdered && !isRepeat && beginsEarlier && position !== undefined;
        this.#tell(channel, position, isGone ? range(lost) : undefined, isAwaited ? { from, latest } : undefined);
    }

    #refused(change: Change, error: PlainError): void {
        const { name } = change;
        const known = this.#names.get(name);
        if (error.status === 413 && change.isRepeat && change.beginsEarlier && known) {
            // Too many channels: the pattern goes on with those that are known, and with new messages.
            known.from = "latest";
            this.#events.push({ on: "gap", name });
            this.#askAgain(name, known);
        } else if (change.isRepeat) {
            const keys = known?.waiting.map(({ key }) => key) ?? [];
            this.#names.delete(name);
            this.#events.push({ on: "unsubscribed", name, error }, { on: "subscribed", keys, error });
        } else {
            this.#events.push({ on: "subscribed", keys: change.waiting.map(({ key }) => key), error });
            if (known?.isGranted === false && known.waiting.length === 0) {
                this.#names.delete(name);
            } else {
                this.#ask(name);
            }
        }
    }

    /** Sends the subscribe that waits: one at a time for each name, so that each begins where it says. */
    #ask(name: string): void {
        const known = this.#names.get(name);
        const first = known?.waiting[0];
        if (!known || !first || [...this.#changes.values()].some((change) => change.name === name && change.channel === SUBSCRIBE)) {
            return;
        }
        known.waiting.shift();
        // A name that is granted, in an earlier page or to others, goes on without a message.
        const isFaster = first.intervalMs < known.intervalMs;
        if (known.isGranted && !isFaster && !(this.replays && first.isRestart)) {
            this.#events.push({ on: "subscribed", keys: [first.key] });
            this.positions.below(name).forEach(([channel, position]) => this.#tell(channel, position, undefined));
            return this.#ask(name);
        }
        if (first.from !== "latest") {
            known.from = first.from;
        }
        known.intervalMs = Math.min(known.intervalMs, first.intervalMs);
        // Others have received what comes before the session's positions, so it may only go back.
        const all = first.positions.map(([channel, position]): [string, Position] => [channel, this.#earlier(channel, position)]);
        const begin = first.from === "latest" ? undefined : first.from === "earliest" ? -2 : first.from;
        const mayMiss = this.replays && all.length > 0 && isPattern(name) && !begin;
        this.#askInParts({ name, channel: SUBSCRIBE, waiting: [first], isRepeat: false, beginsEarlier: begin !== undefined, mayMiss }, begin, all);
    }

    #askAgain(name: string, known: Name): void {
        const beginsEarlier = this.#beginsEarlier(known);
        this.#askInParts({ name, channel: SUBSCRIBE, waiting: [], isRepeat: true, beginsEarlier }, beginsEarlier ? -2 : undefined, this.positions.below(name));
    }

    /** Sends the positions of channels in several subscribes. The last one says where other channels begin, or leaves it to the server. */
    #askInParts(change: Change, begin: number | object | undefined, positions: [string, Position][]): void {
        const all = this.#replays(change.name) ? positions : [];
        for (let at = 0; at === 0 || at < all.length; at += PART_POSITIONS) {
            const isLast = at + PART_POSITIONS >= all.length;
            const start = isLast ? begin : begin ? { more: true } : -1;
            const part = Object.fromEntries(all.slice(at, at + PART_POSITIONS));
            this.#change(isLast ? change : { ...change, waiting: [], mayMiss: false }, { [change.name]: start, ...part });
        }
    }

    #drop(name: string): void {
        this.#change({ name, channel: UNSUBSCRIBE, waiting: [], isRepeat: false, beginsEarlier: false });
    }

    #change(change: Change, replay?: object): void {
        const { name } = change;
        const ext = replay && { replay: this.#replays(name) ? replay : undefined, min_interval_ms: this.#names.get(name)?.intervalMs };
        this.#changes.set(this.#send(change.channel, { subscription: name, ext }), change);
    }

    /** True if messages by this name have positions. Those with an interval have none. */
    #replays(name: string): boolean {
        return this.replays && !this.#names.get(name)?.intervalMs;
    }

    /** True if channels of this name without a known position begin with all that is retained, after a break. */
    #beginsEarlier(known: Name): boolean {
        return known.from !== "latest" && !this.positions.isPartial;
    }

    #comesAgain(channel: string, isAhead: boolean): boolean {
        if (!isAhead && this.#changes.size === 0) {
            return false;
        }
        const isKnown = this.positions.get(channel) !== undefined;
        const brings = (name: string, beginsEarlier: boolean) => covers(name, channel) && (isKnown || beginsEarlier);
        if (isAhead) {
            return [...this.#names].some(([name, known]) => known.isGranted && brings(name, this.#beginsEarlier(known)));
        }
        return [...this.#changes.values()].some((change) => change.isRepeat && brings(change.name, change.beginsEarlier));
    }

    #earlier(channel: string, position: Position): Position {
        const known = this.positions.get(channel);
        return known?.epoch === position.epoch && known.id < position.id ? known : position;
    }

    #hasNoHistory(channel: string): void {
        for (const [name, known] of this.#names) {
            known.hasNoHistory ||= covers(name, channel);
        }
    }

    #tell(channel: string, position: Position | undefined, lost: Lost | undefined, replays?: Replays): void {
        this.#events.push({ on: "reached", channel, position, lost, replays });
    }
}

function range(lost: any): Lost {
    return Number.isSafeInteger(lost?.from) && Number.isSafeInteger(lost?.to) ? { from: lost.from, to: lost.to } : null;
}

/** The positions of one subscribe. Encke takes 1,000, and a text with these is well below 64 KiB. */
const PART_POSITIONS = 400;
