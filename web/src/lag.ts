/**
 * Notices that messages come later and later: the line is slower than their stream, and they wait in a queue on the way. Only the growth
 * of the delay counts, so clocks that differ do no harm.
 */
export class Lag {
    readonly #maxMs: number;
    #fastestMs = Infinity;
    #askedAt = -Infinity;

    constructor(maxMs = MAX_MS) {
        this.#maxMs = maxMs;
    }

    /** A message was `delayMs` on its way and arrives at `nowMs`. Returns true if it is time to skip the queue. */
    isBehind(delayMs: number, nowMs: number): boolean {
        this.#fastestMs = Math.min(this.#fastestMs, delayMs);
        if (delayMs - this.#fastestMs < this.#maxMs || nowMs - this.#askedAt < AGAIN_MS) {
            return false;
        }
        this.#askedAt = nowMs;
        return true;
    }

    /** A new session: the next message is a stored one. */
    reset(): void {
        this.#fastestMs = Infinity;
    }
}

const MAX_MS = 1_000;
/** The request to skip the queue takes a while itself. */
const AGAIN_MS = 2_000;
