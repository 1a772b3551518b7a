/**
 * The cost of each way to wait, as far as a page can see it: bytes of responses as the browser measures them, and bytes of frames.
 * The headers of its requests, some hundred bytes each, are hidden from a page.
 */

/** The cost of one way. */
export interface Cost {
    /** Requests, or WebSockets opened. */
    requests: number;
    /** Frames of a WebSocket, both ways. */
    frames: number;
    receivedBytes: number;
    /** Bytes of frames; of requests only their number is known. */
    sentBytes: number;
}

export const holdCost: Cost = { requests: 0, frames: 0, receivedBytes: 0, sentBytes: 0 };
export const sessionCost: Cost = { requests: 0, frames: 0, receivedBytes: 0, sentBytes: 0 };

/** Counts from now on. To be called before the first request. */
export function count(changed: () => void): void {
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries() as PerformanceResourceTiming[]) {
            const { pathname } = new URL(entry.name);
            const cost = pathname.startsWith(HOLD_PATH) ? holdCost : pathname.startsWith(SESSION_PATH) ? sessionCost : undefined;
            if (cost !== undefined) {
                cost.requests += 1;
                cost.receivedBytes += entry.transferSize;
            }
        }
        changed();
    }).observe({ type: "resource" });
    globalThis.WebSocket = class extends WebSocket {
        constructor(url: string | URL, protocols?: string | string[]) {
            super(url, protocols);
            sessionCost.requests += 1;
            this.addEventListener("message", ({ data }) => {
                sessionCost.frames += 1;
                sessionCost.receivedBytes += frameBytes(String(data));
                changed();
            });
        }

        override send(data: string): void {
            sessionCost.frames += 1;
            sessionCost.sentBytes += frameBytes(data) + MASK_BYTES;
            changed();
            super.send(data);
        }
    };
}

/** Bytes in words. */
export function inWords(bytes: number): string {
    return bytes < 10_000 ? `${bytes.toLocaleString("en")} bytes` : `${(bytes / 1_000).toFixed(1)} kB`;
}

/** The length of a frame with this text (RFC 6455 §5.2), without a mask. */
function frameBytes(text: string): number {
    const length = new TextEncoder().encode(text).length;
    return length + (length < 126 ? 2 : length < 65_536 ? 4 : 10);
}

/** A client masks its frames. */
const MASK_BYTES = 4;
export const HOLD_PATH = "/hold/";
const SESSION_PATH = "/cometd";
