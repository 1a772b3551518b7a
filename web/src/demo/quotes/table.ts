/**
 * The table of quotes. A quote that comes is only remembered; the table draws in animation frames, only the rows that are in view, and
 * of them only the cells that changed. So the latest quote of a symbol wins, however slow the page is.
 */

import { element } from "../../dom";
import type { Quote } from "./market";
import { History } from "./spark";

/** One symbol. */
class Row {
    readonly line: HTMLTableRowElement;
    readonly #cells: Record<"bid" | "ask" | "last" | "change", HTMLElement>;
    readonly #canvas = document.createElement("canvas");
    readonly #history = new History();
    /** The first price, against which the change counts. */
    #first: number | null = null;
    #drawn: Quote | undefined;
    /** The latest quote, if it is not drawn yet. */
    waiting: Quote | undefined;
    isInView = false;

    constructor(symbol: string, remove: () => void) {
        this.line = document.createElement("tr");
        this.line.dataset.symbol = symbol;
        const name = element("th", "symbol", symbol);
        name.setAttribute("scope", "row");
        const cell = (className: string) => element("td", className, "–");
        this.#cells = { bid: cell("price"), ask: cell("price"), last: cell("price last"), change: cell("change") };
        const spark = element("td", "spark");
        this.#canvas.setAttribute("role", "img");
        this.#canvas.setAttribute("aria-label", `The last prices of ${symbol}`);
        spark.append(this.#canvas);
        const button = element("button", "remove", "×");
        button.setAttribute("type", "button");
        button.setAttribute("aria-label", `Remove ${symbol}`);
        button.addEventListener("click", remove);
        const end = element("td", "end");
        end.append(button);
        this.line.append(name, this.#cells.bid, this.#cells.ask, this.#cells.last, this.#cells.change, spark, end);
    }

    /** Remembers a quote. True if it replaces one that nobody has seen. */
    take(quote: Quote): boolean {
        const replaces = this.waiting !== undefined && this.isInView;
        this.waiting = quote;
        if (quote.last !== null) {
            this.#first ??= quote.last;
            this.#history.add(quote.last);
        }
        return replaces;
    }

    /** Draws the quote that waits. */
    draw(): void {
        const quote = this.waiting;
        if (quote === undefined) {
            return;
        }
        this.waiting = undefined;
        this.line.dataset.loop = String(quote.loop);
        for (const name of ["bid", "ask", "last"] as const) {
            const [price, before] = [quote[name], this.#drawn?.[name] ?? null];
            if (this.#drawn === undefined || price !== before) {
                this.#cells[name].textContent = words(price);
                move(this.#cells[name], before, price);
            }
        }
        this.#drawChange(quote.last);
        this.#history.draw(this.#canvas);
        this.#drawn = quote;
    }

    #drawChange(last: number | null): void {
        if (last === null || this.#first === null || this.#first === 0) {
            return;
        }
        const percent = (100 * (last - this.#first)) / this.#first;
        const text = `${percent > 0 ? "▲ +" : percent < 0 ? "▼ −" : "= "}${Math.abs(percent).toFixed(2)} %`;
        const cell = this.#cells.change;
        if (cell.textContent !== text) {
            cell.textContent = text;
            cell.dataset.move = percent > 0 ? "up" : percent < 0 ? "down" : "";
        }
    }
}

/** All rows. */
export class Table {
    readonly #body: HTMLElement;
    readonly #rows = new Map<string, Row>();
    readonly #remove: (symbol: string) => void;
    readonly #changed = new Set<Row>();
    readonly #view: IntersectionObserver;
    #isScheduled = false;
    #drawnAt = 0;
    /** The shortest time between two drawings, in milliseconds. 0: each frame. */
    paceMs = 0;
    /** Quotes that a newer one replaced before they were drawn. */
    passedOver = 0;

    constructor(body: HTMLElement, remove: (symbol: string) => void) {
        this.#body = body;
        this.#remove = remove;
        const look = ({ target, isIntersecting }: IntersectionObserverEntry) => {
            const row = this.#rows.get((target as HTMLElement).dataset.symbol ?? "");
            if (row !== undefined) {
                row.isInView = isIntersecting;
                this.#mark(row);
            }
        };
        this.#view = new IntersectionObserver((entries) => entries.forEach(look), { rootMargin: "120px" });
    }

    /** Shows these symbols, in this order. */
    show(symbols: string[]): void {
        const wanted = new Set(symbols);
        for (const [symbol, row] of this.#rows) {
            if (!wanted.has(symbol)) {
                this.#view.unobserve(row.line);
                this.#changed.delete(row);
                this.#rows.delete(symbol);
                row.line.remove();
            }
        }
        for (const symbol of wanted) {
            if (!this.#rows.has(symbol)) {
                const row = new Row(symbol, () => this.#remove(symbol));
                this.#rows.set(symbol, row);
                this.#body.append(row.line);
                this.#view.observe(row.line);
            }
        }
    }

    take(quote: Quote): void {
        const row = this.#rows.get(quote.symbol);
        if (row !== undefined) {
            this.passedOver += Number(row.take(quote));
            this.#mark(row);
        }
    }

    #mark(row: Row): void {
        if (!row.isInView || row.waiting === undefined) {
            return;
        }
        this.#changed.add(row);
        if (this.#isScheduled) {
            return;
        }
        this.#isScheduled = true;
        const wait = this.#drawnAt + this.paceMs - performance.now();
        if (wait > 0) {
            setTimeout(() => requestAnimationFrame(() => this.#draw()), wait);
        } else {
            requestAnimationFrame(() => this.#draw());
        }
    }

    #draw(): void {
        this.#isScheduled = false;
        this.#drawnAt = performance.now();
        const rows = [...this.#changed].filter((row) => row.isInView);
        this.#changed.clear();
        rows.forEach((row) => row.draw());
    }
}

function words(price: number | null): string {
    if (price === null) {
        return "–";
    }
    return price.toFixed(Math.abs(price) < 1 ? 4 : 2);
}

/** Colours a price by its move, and lets it flash once. */
function move(cell: HTMLElement, before: number | null, now: number | null): void {
    if (before === null || now === null) {
        return;
    }
    const direction = now > before ? "up" : "down";
    cell.dataset.move = direction;
    if (!isStill.matches) {
        cell.animate([{ backgroundColor: `var(--${direction}-wash)` }, { backgroundColor: "transparent" }], { duration: FLASH_MS, easing: "steps(5)" });
    }
}

const isStill = matchMedia("(prefers-reduced-motion: reduce)");
const FLASH_MS = 450;
