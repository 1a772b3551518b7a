/** Time, network and events of a page, a worker or Node; replaced in tests. */

/** What happens to the machine. `slept`: the timers stood still. */
export type Happening = "online" | "offline" | "shown" | "slept";

/** Time, chance and network. */
export interface Environment {
    /** Milliseconds that only grow, those of sleep included. */
    now(): number;
    /** The time of day, in milliseconds. */
    date(): number;
    random(): number;
    /** Calls later. `isIdle`: it is no reason for a program to go on. Returns what stops it. */
    later(run: () => void, ms: number, isIdle?: boolean): () => void;
    /** False if the machine has no network. */
    isOnline(): boolean;
    /** Returns what stops it. */
    listen(happened: (happening: Happening) => void): () => void;
}

/** The real one. */
export function environment(): Environment {
    let [last, now] = [Date.now(), 0];
    const scope = globalThis as Partial<Window & typeof globalThis>;
    const later = (run: () => void, ms: number, isIdle = false) => {
        const timer = setTimeout(run, ms) as unknown as { unref?: () => void };
        if (isIdle) {
            timer.unref?.();
        }
        return () => clearTimeout(timer as unknown as number);
    };
    return {
        now: () => {
            // The clock of timers stands still while the machine sleeps, and the time of day may be set back.
            const date = Date.now();
            now += Math.max(0, date - last);
            last = date;
            return now;
        },
        date: () => Date.now(),
        random: () => Math.random(),
        later,
        isOnline: () => scope.navigator?.onLine !== false,
        listen: (happened) => {
            const abort = new AbortController();
            const on = (target: EventTarget | undefined, name: string, happening: Happening) =>
                target?.addEventListener?.(name, () => (happening !== "shown" || scope.document?.visibilityState !== "hidden") && happened(happening), { signal: abort.signal });
            on(scope as EventTarget, "online", "online");
            on(scope as EventTarget, "offline", "offline");
            on(scope.document, "visibilitychange", "shown");
            let before = Date.now();
            let stop = () => {};
            const tick = () => {
                stop = later(tick, TICK_MS, true);
                if (Date.now() - before > TICK_MS + SLEPT_MS) {
                    happened("slept");
                }
                before = Date.now();
            };
            tick();
            return () => {
                abort.abort();
                stop();
            };
        },
    };
}

const TICK_MS = 5_000;
/** A timer that comes so late is a sign of sleep. */
const SLEPT_MS = 10_000;
