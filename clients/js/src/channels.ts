/** Names of channels, and the positions of a session or subscription in their histories. */

import type { Position } from "./types.js";

/** True for `/a/*` and `/a/**`. */
export function isPattern(name: string): boolean {
    return name.endsWith("/*") || name.endsWith("/**");
}

/** True if a subscription to `name` gets the messages of `channel`. */
export function covers(name: string, channel: string): boolean {
    if (name === channel) {
        return true;
    }
    if (name.endsWith("/**")) {
        return channel.startsWith(name.slice(0, -2)) && channel.length > name.length - 2;
    }
    return name.endsWith("/*") && channel.startsWith(name.slice(0, -1)) && channel.length > name.length - 1 && channel.lastIndexOf("/") === name.length - 2;
}

/** Positions by channel. Beyond a limit, further channels have none. */
export class Positions {
    readonly #of = new Map<string, Position>();
    /** True if a channel has no position here because of the limit. */
    isPartial = false;

    get(channel: string): Position | undefined {
        return this.#of.get(channel);
    }

    set(channel: string, { epoch, id }: Position): void {
        if (this.#of.size >= POSITIONS_MAX && !this.#of.has(channel)) {
            this.isPartial = true;
        } else {
            this.#of.set(channel, { epoch, id });
        }
    }

    delete(channel: string): void {
        this.#of.delete(channel);
    }

    /** Those of the channels that this name covers. */
    below(name: string): [string, Position][] {
        if (isPattern(name)) {
            return [...this.#of].filter(([channel]) => covers(name, channel));
        }
        const own = this.#of.get(name);
        return !own ? [] : [[name, own]];
    }

    /** Forgets the channels that none of these names covers. */
    retain(names: Iterable<string>): void {
        const patterns = [...names];
        for (const channel of [...this.#of.keys()]) {
            if (!patterns.some((name) => covers(name, channel))) {
                this.#of.delete(channel);
            }
        }
    }

    entries(): IterableIterator<[string, Position]> {
        return this.#of.entries();
    }
}

/** A position as text, as pages of histories have it. */
export function textOf(position: Position | undefined): string | undefined {
    return position && `${position.epoch}-${position.id}`;
}

/** The position that a text names. */
export function positionOf(text: string | null): Position | undefined {
    const [epoch, id] = text?.split("-") ?? [];
    return epoch === undefined ? undefined : { epoch, id: Number(id) };
}

/** True if `value` is a position. */
export function isPosition(value: unknown): value is Position {
    const { epoch, id } = (value ?? {}) as Partial<Position>;
    return typeof epoch === "string" && Number.isSafeInteger(id);
}

/** The limit of positions that are remembered, each with some 60 bytes: a page stores and sends all of them. */
const POSITIONS_MAX = 10_000;
