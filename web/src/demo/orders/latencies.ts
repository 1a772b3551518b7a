/** Latencies of answers: quantiles, and counts of ranges for a histogram. */

export class Latencies {
    /** The last latencies, in milliseconds, oldest first. */
    readonly #last: number[] = [];
    /** Counts of the ranges, each up to the bound of the same index; the last has no bound. */
    readonly counts = new Array<number>(BOUNDS_MS.length + 1).fill(0);

    add(ms: number): void {
        this.#last.push(ms);
        if (this.#last.length > MAX_LAST) {
            this.#last.shift();
        }
        const range = BOUNDS_MS.findIndex((bound) => ms < bound);
        const index = range < 0 ? BOUNDS_MS.length : range;
        this.counts[index] = (this.counts[index] ?? 0) + 1;
    }

    /** The latency that this share of the last answers does not exceed; undefined without answers. */
    quantile(share: number): number | undefined {
        const sorted = [...this.#last].sort((a, b) => a - b);
        return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    }
}

/** A latency in words. */
export function inWords(ms: number): string {
    return ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1_000 ? `${ms.toFixed(0)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

/** The upper bounds of the histogram's ranges. */
export const BOUNDS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];
/** Quantiles are those of the last answers. */
const MAX_LAST = 10_000;
