/** A line of the last prices, drawn on a small canvas. */

/** The last prices of a symbol. */
export class History {
    readonly #prices: number[] = [];

    add(price: number): void {
        this.#prices.push(price);
        if (this.#prices.length > MAX_POINTS) {
            this.#prices.shift();
        }
    }

    /** Draws the line as wide and high as the canvas. */
    draw(canvas: HTMLCanvasElement): void {
        const scale = devicePixelRatio;
        const [width, height] = [Math.round(WIDTH * scale), Math.round(HEIGHT * scale)];
        if (canvas.width !== width || canvas.height !== height) {
            [canvas.width, canvas.height] = [width, height];
        }
        const context = canvas.getContext("2d");
        if (context === null || this.#prices.length < 2) {
            return;
        }
        const [low, high] = [Math.min(...this.#prices), Math.max(...this.#prices)];
        const edge = 2 * scale;
        context.clearRect(0, 0, width, height);
        context.beginPath();
        this.#prices.forEach((price, index) => {
            const x = (index / (MAX_POINTS - 1)) * (width - 2 * edge) + edge;
            const y = height - edge - ((price - low) / (high - low || 1)) * (height - 2 * edge);
            context.lineTo(x, y);
        });
        context.strokeStyle = lineColour();
        context.lineWidth = 1.5 * scale;
        context.lineJoin = "round";
        context.stroke();
    }
}

let colour = "";

/** The accent of the theme. */
function lineColour(): string {
    colour ||= getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    return colour;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colour = "";
});

/** Half a minute at the pace of the source. */
const MAX_POINTS = 60;
/** As in the style sheet. */
const WIDTH = 96;
const HEIGHT = 24;
