/** Decides when to push: some time after the first of many events, one push at a time, and never too often. */

import type { Timers } from "../timers";

/** Pushes after events. */
export class Throttle {
    readonly #timers: Timers;
    readonly #push: (isWanted: boolean) => Promise<void>;
    #delayMs: number;
    #timer: number | undefined;
    #isPushing = false;
    /** An event came while a push was under way. */
    #isDue = false;
    #isWanted = false;

    constructor(timers: Timers, delayMs: number, push: (isWanted: boolean) => Promise<void>) {
        this.#timers = timers;
        this.#delayMs = delayMs;
        this.#push = push;
    }

    change(delayMs: number): void {
        this.#delayMs = delayMs;
    }

    /** An event: something may have changed. */
    event(): void {
        if (this.#isPushing) {
            this.#isDue = true;
        } else {
            this.#timer ??= this.#timers.set(() => void this.#run(), this.#delayMs);
        }
    }

    /** Pushes at once, because somebody asked for it. */
    now(): void {
        this.#isWanted = true;
        if (this.#isPushing) {
            this.#isDue = true;
            return;
        }
        this.stop();
        void this.#run();
    }

    /** Forgets the event that waits. */
    stop(): void {
        if (this.#timer !== undefined) {
            this.#timers.clear(this.#timer);
        }
        this.#timer = undefined;
        this.#isDue = false;
    }

    async #run(): Promise<void> {
        this.#timer = undefined;
        this.#isPushing = true;
        const isWanted = this.#isWanted;
        this.#isWanted = false;
        try {
            await this.#push(isWanted);
        } finally {
            this.#isPushing = false;
            if (this.#isDue) {
                this.#isDue = false;
                if (this.#isWanted) {
                    this.now();
                } else {
                    this.event();
                }
            }
        }
    }
}
