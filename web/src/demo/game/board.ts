/** The board: 64 buttons in a grid. Arrow keys move over it, Enter and Space press a square. */

import type { Chess, PieceSymbol, Square } from "chess.js";
import { element } from "../../dom";
import type { Side } from "./table";

/** The board as a page shows it. */
export interface Look {
    chess: Chess;
    /** The side at the bottom. */
    from: Side;
    /** The square of the piece that is about to move. */
    chosen: Square | undefined;
    /** The squares that it may go to. */
    targets: ReadonlySet<Square>;
    /** The squares of the last move. */
    last: readonly Square[];
    /** The squares of a move that the server has not confirmed. */
    sending: readonly Square[];
}

export class Board {
    readonly #squares = new Map<Square, HTMLButtonElement>();
    readonly #root: HTMLElement;
    #from: Side = "white";
    #focus: Square = "e2";

    constructor(root: HTMLElement, press: (square: Square) => void) {
        this.#root = root;
        for (const square of ALL) {
            const button = element("button", "square") as HTMLButtonElement;
            button.type = "button";
            button.dataset.square = square;
            button.dataset.shade = (square.charCodeAt(0) + Number(square[1])) % 2 === 0 ? "dark" : "light";
            button.addEventListener("click", () => press(square));
            button.addEventListener("focus", () => this.#rove(square));
            this.#squares.set(square, button);
        }
        root.addEventListener("keydown", (event) => this.#step(event));
        this.#turn("white");
    }

    show({ chess, from, chosen, targets, last, sending }: Look): void {
        if (from !== this.#from) {
            this.#turn(from);
        }
        const check = chess.isCheck() ? chess.findPiece({ type: "k", color: chess.turn() })[0] : undefined;
        for (const [square, button] of this.#squares) {
            const piece = chess.get(square);
            const name = piece === undefined ? "" : `${piece.color}${piece.type}`;
            if (button.dataset.piece !== name) {
                button.dataset.piece = name;
                button.replaceChildren(...(piece === undefined ? [] : [picture(piece.type, piece.color)]));
            }
            const marks = [
                ...(square === chosen ? ["chosen"] : []), ...(targets.has(square) ? ["target"] : []), ...(last.includes(square) ? ["last"] : []),
                ...(sending.includes(square) ? ["sending"] : []), ...(square === check ? ["check"] : []),
            ];
            button.className = ["square", ...marks].join(" ");
            const words = piece === undefined ? "empty" : `${piece.color === "w" ? "white" : "black"} ${NAMES[piece.type]}`;
            button.setAttribute("aria-label", `${square}, ${words}${targets.has(square) ? ", can go here" : ""}`);
            button.setAttribute("aria-pressed", String(square === chosen));
        }
    }

    /** Puts the squares into the grid as this side sees them. */
    #turn(from: Side): void {
        this.#from = from;
        const order = from === "white" ? ALL : [...ALL].reverse();
        this.#root.replaceChildren(...order.map((square) => this.#squares.get(square)!));
        this.#rove(this.#focus);
    }

    /** One square is in the tab order. */
    #rove(square: Square): void {
        this.#focus = square;
        for (const [other, button] of this.#squares) {
            button.tabIndex = other === square ? 0 : -1;
        }
    }

    #step(event: KeyboardEvent): void {
        const [dx, dy] = STEPS[event.key] ?? [0, 0];
        if (dx === 0 && dy === 0) {
            return;
        }
        event.preventDefault();
        const sign = this.#from === "white" ? 1 : -1;
        const file = FILES.indexOf(this.#focus[0]!) + dx * sign;
        const rank = Number(this.#focus[1]) + dy * sign;
        this.#squares.get(`${FILES[file] ?? ""}${rank}` as Square)?.focus();
    }
}

/** A piece. */
export function picture(type: PieceSymbol, color: "w" | "b"): SVGSVGElement {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 45 45");
    svg.setAttribute("class", `piece ${color === "w" ? "white" : "black"}`);
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", SHAPES[type]);
    path.setAttribute("fill-rule", "evenodd");
    svg.append(path);
    return svg;
}

const SVG = "http://www.w3.org/2000/svg";
const FILES = "abcdefgh";
/** From a8 to h1, as White sees them. */
const ALL: readonly Square[] = [8, 7, 6, 5, 4, 3, 2, 1].flatMap((rank) => [...FILES].map((file) => `${file}${rank}` as Square));
const STEPS: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const NAMES: Record<PieceSymbol, string> = { p: "pawn", n: "knight", b: "bishop", r: "rook", q: "queen", k: "king" };
/** Outlines in a square of 45. */
const SHAPES: Record<PieceSymbol, string> = {
    p: "M22.5 9a5.2 5.2 0 0 1 3.6 9c2.6 1.7 4.1 4.4 4.1 7.4 0 2-.7 3.8-2 5.2 4 1.6 6.8 4.6 6.8 8.4H10c0-3.8 2.8-6.8 6.8-8.4a7.6 7.6 0 0 1-2-5.2c0-3 1.5-5.7 4.1-7.4a5.2 5.2 0 0 1 3.6-9z",
    r: "M10 39v-4.5l3-3V18l-3-3V8h5.5v3.5h4V8h6v3.5h4V8H35v7l-3 3v13.500l3 3V39z",
    n: "M14 39c0-9 8-10.500 8-17-2 2.500-4 3-6 3l-4.500 4.500c-2.500.5-4.500-2-4.500-5C10 18 13 11.500 19.500 9.500L20 5l4.500 3.500C34 11 37.500 20 36.500 39zM18.500 14a1.500 1.500 0 1 0 .1 0z",
    b: "M22.500 4.500a3 3 0 0 1 2.200 5c5 3.800 7.500 8.200 7.500 12.300 0 3-1.400 5.700-3.600 7.700l1.400 4.500H35v5H10v-5h5l1.400-4.500c-2.200-2-3.600-4.700-3.600-7.700 0-4.100 2.500-8.500 7.500-12.300a3 3 0 0 1 2.200-5zM21 16v3h-3v3h3v5h3v-5h3v-3h-3v-3z",
    q: "M9.500 39v-4l2-3L6.500 16a2.600 2.600 0 1 1 2.400-.6l6.100 6.600 1-10.300a2.600 2.600 0 1 1 2.600.1l2.700 9.200 0.100-11a2.600 2.600 0 1 1 2.200 0l.1 11 2.700-9.200a2.600 2.600 0 1 1 2.600-.1l1 10.300 6.100-6.600a2.600 2.600 0 1 1 2.400.6L33.500 32l2 3v4z",
    k: "M21 3.500h3v3h3v3h-3v4c4.500-3.200 13-2 13 5.500 0 5-4 8-5 12.500l1 3.500v4H12v-4l1-3.500C12 27 8 24 8 19c0-7.500 8.500-8.700 13-5.500v-4h-3v-3h3z",
};
