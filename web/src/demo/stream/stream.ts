/** One endless response of `/demo/stream/comet`, read chunk by chunk. When it breaks, it is asked for again. */

/** A chunk that came. */
export interface Chunk {
    text: string;
    bytes: number;
    /** The time at which it came, in milliseconds of the page's clock. */
    at: number;
}

/** `open`: chunks come; `waiting`: for the next attempt; `closed`: by the visitor. */
export type StreamState = "opening" | "open" | "waiting" | "closed";

/** The events that the page handles. */
export interface StreamEvents {
    chunk(chunk: Chunk): void;
    /** The state changed; `why` is a sentence if something is wrong. */
    changed(state: StreamState, why?: string): void;
}

export class Stream {
    readonly #path: string;
    readonly #events: StreamEvents;
    readonly #stop = new AbortController();

    constructor(id: string, everyMs: number, events: StreamEvents) {
        this.#path = `/demo/stream/comet?id=${encodeURIComponent(id)}&every_ms=${everyMs}`;
        this.#events = events;
        void this.#run();
    }

    close(): void {
        this.#stop.abort();
        this.#events.changed("closed");
    }

    async #run(): Promise<void> {
        const { signal } = this.#stop;
        let pause = FIRST_RETRY_MS;
        this.#events.changed("opening");
        while (!signal.aborted) {
            let why = "The stream has ended, because the server stops or is gone. The page asks again by itself.";
            try {
                const reply = await fetch(this.#path, { signal, cache: "no-store" });
                if (reply.ok && reply.body !== null) {
                    this.#events.changed("open");
                    pause = FIRST_RETRY_MS;
                    await this.#read(reply.body);
                } else {
                    why = REASONS[reply.status] ?? `The server answers with status ${reply.status}. The page asks again by itself.`;
                }
            } catch {
                // It broke, or the visitor has closed it.
            }
            if (!signal.aborted) {
                this.#events.changed("waiting", why);
                await new Promise((resolve) => setTimeout(resolve, pause));
                pause = Math.min(2 * pause, MAX_RETRY_MS);
            }
        }
    }

    async #read(body: ReadableStream<Uint8Array>): Promise<void> {
        const reader = body.getReader();
        const decoder = new TextDecoder();
        for (;;) {
            const { done, value } = await reader.read();
            if (done) {
                return;
            }
            this.#events.chunk({ text: decoder.decode(value, { stream: true }).trimEnd(), bytes: value.length, at: performance.now() });
        }
    }
}

const REASONS: Record<number, string> = {
    404: "This server has no streams: it runs without its demos. Start it without --no-demo.",
    503: "The server has as many streams open as it allows. Close some; the page asks again by itself.",
};
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 5_000;
