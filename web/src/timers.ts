/** Timers that browsers do not slow when the page is hidden (see timer.ts). */

import type { TimerRequest } from "./timer";

/** One-shot timers. */
export interface Timers {
    set(run: () => void, delayMs: number): number;
    clear(id: number): void;
}

/** The timers of the thread. */
export const plainTimers: Timers = {
    set: (run, delayMs) => setTimeout(run, delayMs) as unknown as number,
    clear: (id) => clearTimeout(id),
};

/** Timers in a worker. */
export class WorkerTimers implements Timers {
    readonly #worker = new Worker("/assets/timer.js");
    readonly #waiting = new Map<number, () => void>();
    #lastId = 0;

    constructor() {
        this.#worker.onmessage = ({ data: id }: MessageEvent<number>) => {
            const run = this.#waiting.get(id);
            this.#waiting.delete(id);
            run?.();
        };
    }

    set(run: () => void, delayMs: number): number {
        const id = ++this.#lastId;
        this.#waiting.set(id, run);
        this.#worker.postMessage({ id, delay: delayMs } satisfies TimerRequest);
        return id;
    }

    clear(id: number): void {
        if (this.#waiting.delete(id)) {
            this.#worker.postMessage({ id } satisfies TimerRequest);
        }
    }
}
