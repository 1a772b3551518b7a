/**
 * A table: who sits where, and the moves so far. It is made of nothing but the messages of its channel, in the order in which the
 * server gave them to everyone, so every page has the same table. A message that breaks the rules changes nothing anywhere.
 */

import { Chess, type Move, type Square } from "chess.js";

export type Side = "white" | "black";

/** A player. The id is a random name of the window, which a reload does not change. */
export interface Player {
    id: string;
    name: string;
}

/** Everything that a page has to know to continue a game. */
export interface Snapshot {
    /** The number of the game at this table. */
    game: number;
    players: Partial<Record<Side, Player>>;
    /** As `e2e4`, with the piece that a pawn becomes: `e7e8q`. */
    moves: string[];
    /** The side that has given up. */
    resigned?: Side | undefined;
}

/** A message of the table's channel. */
export type Message =
    | { kind: "sit"; side: Side; player: Player }
    | { kind: "leave"; side: Side; id: string }
    | { kind: "move"; game: number; ply: number; id: string; move: string }
    | { kind: "resign"; game: number; id: string }
    | { kind: "new"; game: number; id: string }
    /** The table as a page knows it, for a server that has forgotten it. */
    | { kind: "state"; table: Snapshot };

/** The effect of a message: it changed the table, said nothing new, knew less than this page, or broke a rule. */
export type Outcome = { kind: "changed" } | { kind: "known" } | { kind: "behind" } | { kind: "refused"; why: string };

export class Table {
    #game = 1;
    #players: Partial<Record<Side, Player>> = {};
    #resigned: Side | undefined;
    #chess = new Chess();
    #moves: string[] = [];

    get game(): number {
        return this.#game;
    }

    get players(): Readonly<Partial<Record<Side, Player>>> {
        return this.#players;
    }

    get moves(): readonly string[] {
        return this.#moves;
    }

    /** The moves as players write them. */
    get notation(): string[] {
        return this.#chess.history();
    }

    get turn(): Side {
        return this.#chess.turn() === "w" ? "white" : "black";
    }

    get isOver(): boolean {
        return this.#resigned !== undefined || this.#chess.isGameOver();
    }

    /** True if there is nothing to lose. */
    get isFresh(): boolean {
        return this.#moves.length === 0 && this.#game === 1 && this.#players.white === undefined && this.#players.black === undefined;
    }

    /** The board with these moves after its own, if they are allowed. */
    position(...further: string[]): Chess {
        const copy = new Chess(this.#chess.fen());
        further.forEach((move) => play(copy, move));
        return copy;
    }

    /** The moves that the piece on a square may make. */
    movesFrom(square: Square): Move[] {
        return this.isOver ? [] : this.#chess.moves({ square, verbose: true });
    }

    lastMove(): Move | undefined {
        return this.#chess.history({ verbose: true }).at(-1);
    }

    /** The end of the game in words, or "". */
    get result(): string {
        const winner = this.turn === "white" ? "Black" : "White";
        if (this.#resigned !== undefined) {
            return this.#resigned === "white" ? "White resigns: Black wins." : "Black resigns: White wins.";
        }
        if (this.#chess.isCheckmate()) {
            return `Checkmate: ${winner} wins.`;
        }
        if (this.#chess.isStalemate()) {
            return "Stalemate: a draw.";
        }
        return this.#chess.isDraw() ? "A draw." : "";
    }

    get isCheck(): boolean {
        return this.#chess.isCheck();
    }

    sideOf(id: string): Side | undefined {
        return SIDES.find((side) => this.#players[side]?.id === id);
    }

    snapshot(): Snapshot {
        return { game: this.#game, players: { ...this.#players }, moves: [...this.#moves], resigned: this.#resigned };
    }

    apply(message: Message): Outcome {
        switch (message.kind) {
            case "sit": return this.#sit(message.side, message.player);
            case "leave": return this.#leave(message.side, message.id);
            case "move": return this.#move(message);
            case "resign": return this.#resign(message);
            case "new": return this.#begin(message);
            case "state": return this.#resume(message.table);
        }
    }

    #sit(side: Side, player: Player): Outcome {
        const there = this.#players[side];
        if (there !== undefined && there.id !== player.id) {
            return refused(`${player.name} wanted to play ${side}, where ${there.name} sits.`);
        }
        if (there?.name === player.name) {
            return KNOWN;
        }
        this.#players[side] = player;
        return CHANGED;
    }

    #leave(side: Side, id: string): Outcome {
        if (this.#players[side]?.id !== id) {
            return KNOWN;
        }
        this.#players = { ...this.#players, [side]: undefined };
        return CHANGED;
    }

    #move({ game, ply, id, move }: Extract<Message, { kind: "move" }>): Outcome {
        if (game !== this.#game) {
            return KNOWN;
        }
        if (ply < this.#moves.length) {
            // The same message, sent again after a break whose reply was lost, says nothing new.
            return this.#moves[ply] === move ? KNOWN : refused(`${move} came too late: move ${ply + 1} was made already.`);
        }
        if (ply > this.#moves.length) {
            // This page has missed moves. Another one sends the table.
            return KNOWN;
        }
        const player = this.#players[this.turn];
        const by = SIDES.map((side) => this.#players[side]).find((player) => player?.id === id)?.name ?? "Somebody without a seat";
        if (player?.id !== id) {
            return refused(`${by} sent ${move} out of turn.`);
        }
        if (this.isOver || !play(this.#chess, move)) {
            return refused(`${by} sent ${move}, which the rules do not allow.`);
        }
        this.#moves.push(move);
        return CHANGED;
    }

    #resign({ game, id }: Extract<Message, { kind: "resign" }>): Outcome {
        const side = this.sideOf(id);
        if (game !== this.#game || side === undefined || this.isOver) {
            return KNOWN;
        }
        this.#resigned = side;
        return CHANGED;
    }

    #begin({ game, id }: Extract<Message, { kind: "new" }>): Outcome {
        if (game !== this.#game + 1) {
            return KNOWN;
        }
        if (this.sideOf(id) === undefined || !this.isOver) {
            return refused("A new game begins when this one is over, and a player asks for it.");
        }
        // The sides change, as over a board.
        this.#players = { white: this.#players.black, black: this.#players.white };
        this.#reset(game, []);
        return CHANGED;
    }

    /** Takes a table that goes further than this one. */
    #resume(table: Snapshot): Outcome {
        const goesOn = this.#moves.every((move, ply) => table.moves[ply] === move);
        const isSame = table.game === this.#game && table.moves.length === this.#moves.length && goesOn;
        const isFurther = table.game > this.#game || (table.game === this.#game && table.moves.length > this.#moves.length && goesOn);
        if (!isFurther && !(isSame && this.isFresh)) {
            const isPrefix = table.moves.length < this.#moves.length && table.moves.every((move, ply) => this.#moves[ply] === move);
            return table.game < this.#game || (table.game === this.#game && isPrefix) ? BEHIND : KNOWN;
        }
        const chess = new Chess();
        if (!table.moves.every((move) => play(chess, move))) {
            return refused("A page sent a game with a move that the rules do not allow.");
        }
        if (!this.isFresh && SIDES.some((side) => this.#players[side] !== undefined && this.sideOf(table.players[side]?.id ?? "") === undefined)) {
            return refused("A page sent a game of other players.");
        }
        this.#reset(table.game, table.moves);
        this.#players = { ...table.players };
        this.#resigned = table.resigned;
        return CHANGED;
    }

    #reset(game: number, moves: readonly string[]): void {
        this.#game = game;
        this.#chess = new Chess();
        moves.forEach((move) => play(this.#chess, move));
        this.#moves = [...moves];
        this.#resigned = undefined;
    }
}

/** Reads a publication; anyone can publish here, so anything may come. */
export function messageOf(data: unknown): Message | undefined {
    const { kind, side, player, id, game, ply, move, table } = record(data);
    if (kind === "sit" && isSide(side)) {
        const who = playerOf(player);
        return who && { kind, side, player: who };
    }
    if (kind === "leave" && isSide(side) && typeof id === "string") {
        return { kind, side, id };
    }
    if (kind === "move" && isCount(game) && isCount(ply) && typeof id === "string" && isMove(move)) {
        return { kind, game, ply, id, move };
    }
    if ((kind === "resign" || kind === "new") && isCount(game) && typeof id === "string") {
        return { kind, game, id };
    }
    const { moves, players, resigned, game: number } = record(table);
    if (kind === "state" && isCount(number) && Array.isArray(moves) && moves.length <= MAX_PLIES && moves.every(isMove)) {
        const { white, black } = record(players);
        return { kind, table: { game: number, moves, players: { white: playerOf(white), black: playerOf(black) }, resigned: isSide(resigned) ? resigned : undefined } };
    }
    return undefined;
}

function playerOf(data: unknown): Player | undefined {
    const { id, name } = record(data);
    return typeof id === "string" && typeof name === "string" && name !== "" ? { id, name: name.slice(0, MAX_NAME) } : undefined;
}

/** Makes a move. False if the rules do not allow it. */
function play(chess: Chess, move: string): boolean {
    try {
        chess.move({ from: move.slice(0, 2), to: move.slice(2, 4), promotion: move.slice(4) || undefined });
        return true;
    } catch {
        return false;
    }
}

function record(data: unknown): Record<string, unknown> {
    return typeof data === "object" && data !== null ? (data as Record<string, unknown>) : {};
}

function refused(why: string): Outcome {
    return { kind: "refused", why };
}

function isSide(value: unknown): value is Side {
    return value === "white" || value === "black";
}

function isCount(value: unknown): value is number {
    return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isMove(value: unknown): value is string {
    return typeof value === "string" && /^[a-h][1-8][a-h][1-8][qrbn]?$/.test(value);
}

export const SIDES: readonly Side[] = ["white", "black"];
export const MAX_NAME = 24;
/** Longer than any game that was ever played. */
const MAX_PLIES = 1_200;
const CHANGED: Outcome = { kind: "changed" };
const KNOWN: Outcome = { kind: "known" };
const BEHIND: Outcome = { kind: "behind" };
