/**
 * A timer in a worker. Browsers slow the timers of a hidden window to one a minute, which is longer than a server keeps a
 * session that does not connect; a worker's timers are not slowed.
 *
 * The cometd client brings a worker of its own, made from a blob, which a strict Content-Security-Policy refuses; this one
 * is a file.
 */

/** What the page asks: run timer `id` in `delay` milliseconds, or forget it (no `delay`). */
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
