/** The token of a session's user. */

/** A token, and what is known of it. */
export class Token {
    #token: string | undefined;
    #refusals = 0;
    /** True if the server has refused the last one. */
    isRefused = false;

    /** The member of a handshake's `ext`. */
    get ext(): object {
        return !this.#token ? {} : { auth: { token: this.#token } };
    }

    /** True if it may open a session: there is one, and it was not refused. */
    get isUsable(): boolean {
        return this.#token !== undefined && !this.isRefused;
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
        return (this.#refusals += 1) <= REFUSALS_MAX;
    }
}

/** The tokens that a server may refuse in a row. */
const REFUSALS_MAX = 2;
