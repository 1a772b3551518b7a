/** The token of a session's user. */

/** A token, and what is known of it. */
export class Token {
    readonly #date: () => number;
    #token: string | undefined;
    #refusals = 0;
    /** True if the server has refused the last one. */
    isRefused = false;

    constructor(date: () => number) {
        this.#date = date;
    }

    /** The member of a handshake's `ext`. */
    get ext(): object {
        return this.#token === undefined ? {} : { auth: { token: this.#token } };
    }

    /** True if it may open a session: it was not refused, and has not ended. */
    get isUsable(): boolean {
        return this.#token !== undefined && !this.isRefused && endOf(this.#token) > this.#date() + MARGIN_MS;
    }

    set(token: string): void {
        this.#token = token;
        this.isRefused = false;
    }

    /** The server has opened a session with it. */
    isAccepted(): void {
        this.#refusals = 0;
    }

    /** The server refuses it, or ended its session. False if this has happened too often in a row. */
    mayRetry(): boolean {
        this.isRefused = true;
        this.#refusals += 1;
        return this.#refusals <= REFUSALS_MAX;
    }
}

/** The end of a JSON Web Token, in milliseconds; `Infinity` if it is none, or has none. */
function endOf(token: string): number {
    try {
        const claims = token.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/");
        const { exp } = JSON.parse(atob(claims)) as { exp?: unknown };
        return typeof exp === "number" ? exp * 1_000 : Infinity;
    } catch {
        return Infinity;
    }
}

/** A token that ends so soon is not sent any more. */
const MARGIN_MS = 1_000;
/** The tokens that a server may refuse in a row. */
const REFUSALS_MAX = 2;
