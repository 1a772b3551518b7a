/** The members of the room: the pages of the server's list, and the changes that it announces. */

/** The events that the page handles. */
export interface RoomEvents {
    changed(): void;
    came(user: string): void;
    left(user: string): void;
}

export class Room {
    readonly #events: RoomEvents;
    readonly #users = new Set<string>();
    anonymous = 0;
    sessions = 0;

    constructor(events: RoomEvents) {
        this.#events = events;
    }

    /** The users, in the order of their names. */
    get users(): string[] {
        return [...this.#users].sort((one, other) => one.localeCompare(other));
    }

    /** Forgets all before a new list. */
    forget(): void {
        this.#users.clear();
    }

    /** A page of the list. Returns the name after which the next page begins, if there is one. */
    listed(data: unknown): string | undefined {
        const { members, anonymous, sessions, next } = record(data);
        for (const { user } of Array.isArray(members) ? members.map(record) : []) {
            if (typeof user === "string") {
                this.#users.add(shown(user));
            }
        }
        this.#count(anonymous, sessions);
        return typeof next === "string" ? next : undefined;
    }

    /** A change that the server announces. */
    announced(data: unknown): void {
        const { joined, left, anonymous, sessions } = record(data);
        names(left).filter((user) => this.#users.delete(user)).forEach((user) => this.#events.left(user));
        for (const user of names(joined).filter((user) => !this.#users.has(user))) {
            this.#users.add(user);
            this.#events.came(user);
        }
        this.#count(anonymous, sessions);
        this.#events.changed();
    }

    #count(anonymous: unknown, sessions: unknown): void {
        this.anonymous = typeof anonymous === "number" ? anonymous : this.anonymous;
        this.sessions = typeof sessions === "number" ? sessions : this.sessions;
    }
}

function names(list: unknown): string[] {
    return Array.isArray(list) ? list.filter((name) => typeof name === "string").map(shown) : [];
}

/** A name that a visitor has chosen is a user called `demo:` and the name. */
function shown(user: string): string {
    return user.replace(/^demo:/, "");
}

function record(data: unknown): Record<string, unknown> {
    return typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
}
