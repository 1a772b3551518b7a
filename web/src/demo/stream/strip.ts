/** The last half minute of a stream: a dot for each chunk, at the time at which it came. */

import type { Chunk } from "./stream";

export class Strip {
    readonly #canvas: HTMLCanvasElement;
    readonly #times: number[] = [];

    constructor(canvas: HTMLCanvasElement) {
        this.#canvas = canvas;
    }

    add({ at }: Chunk): void {
        this.#times.push(at);
        if (this.#times.length > MAX_DOTS) {
            this.#times.shift();
        }
    }

    draw(now: number): void {
        const { clientWidth, clientHeight } = this.#canvas;
        const [width, height] = [Math.round(clientWidth * devicePixelRatio), Math.round(clientHeight * devicePixelRatio)];
        if (this.#canvas.width !== width || this.#canvas.height !== height) {
            [this.#canvas.width, this.#canvas.height] = [width, height];
        }
        const context = this.#canvas.getContext("2d");
        if (context === null) {
            return;
        }
        const style = getComputedStyle(this.#canvas);
        context.clearRect(0, 0, width, height);
        context.fillStyle = style.getPropertyValue("--line");
        context.fillRect(0, Math.round(height / 2), width, devicePixelRatio);
        context.fillStyle = style.getPropertyValue("--accent");
        for (const at of this.#times) {
            const age = (now - at) / WINDOW_MS;
            if (age <= 1) {
                const radius = (age < 0.02 ? 5 : 3.5) * devicePixelRatio;
                context.beginPath();
                context.arc((1 - age) * (width - 2 * radius) + radius, height / 2, radius, 0, 2 * Math.PI);
                context.fill();
            }
        }
    }
}

const WINDOW_MS = 30_000;
/** As many as the fastest stream has in this time. */
const MAX_DOTS = 300;
