/** The rounds of the source, as the loop counters of its quotes show them. */

export class Rounds {
    /** The number of the last round. */
    last: number | undefined;
    /** The time between two rounds, in milliseconds: a moving average. */
    paceMs: number | undefined;
    /** Rounds of which no quote came: newer ones had replaced them. */
    missed = 0;
    #at: number | undefined;

    take(loop: number): void {
        if (loop === this.last) {
            return;
        }
        const [now, last] = [performance.now(), this.last ?? loop];
        if (loop === last + 1 && this.#at !== undefined) {
            const time = now - this.#at;
            this.paceMs = this.paceMs === undefined ? time : this.paceMs + WEIGHT * (time - this.paceMs);
        }
        if (loop < last && loop > last - REORDERED_MAX) {
            return;
        }
        // A lower number is another run of the source.
        this.missed += this.#at === undefined ? 0 : Math.max(0, loop - last - 1);
        [this.last, this.#at] = [loop, now];
    }

    /** The rounds until the next quote do not count: the page was not connected. */
    pause(): void {
        this.#at = undefined;
    }
}

/** The share of the newest round in the average. */
const WEIGHT = 0.2;
/** A resumed session may get quotes of the last rounds late. */
const REORDERED_MAX = 20;
