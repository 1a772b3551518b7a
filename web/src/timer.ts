/**
 * A timer in a worker. Browsers slow the timers of a hidden window to one a minute, which is longer than a server keeps a
 * session that does not connect; a worker's timers are not slowed.
 *
 * The cometd client makes its own worker from a blob, which a strict Content-Security-Policy refuses. This one is a file.
 */

/** A request of the page: run timer `id` in `delay` milliseconds, or forget it (no `delay`). */
export interface TimerRequest {
    id: number;
    delay?: number;
}

const timers = new Map<number, ReturnType<typeof setTimeout>>();

onmessage = ({ data: { id, delay } }: MessageEvent<TimerRequest>) => {
    if (delay === undefined) {
        clearTimeout(timers.get(id));
        timers.delete(id);
        return;
    }
    timers.set(id, setTimeout(() => {
        timers.delete(id);
        postMessage(id);
    }, delay));
};
