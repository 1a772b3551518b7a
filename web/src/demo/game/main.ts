/** The chess page: a table, its two players, and all who watch. */

import type { Square } from "chess.js";
import type { Client, EnckeError } from "encke";
import { Connection, onRefusal, openWithPage, refusalOf } from "../../connection";
import { byId, element, showLink, type LinkState } from "../../dom";
import { linkNotice, notice } from "../../notices";
import { Board } from "./board";
import { MAX_NAME, messageOf, SIDES, Table, type Message, type Side } from "./table";

/** The last word of the address: pages at one table share it. */
const tableName = /^[\w-]{1,32}$/.exec(new URLSearchParams(location.search).get("table") ?? "")?.[0] ?? "lobby";
const channel = `/demo/game/${tableName}`;
/** This window as a player; a reload stays the same one. */
const id = (sessionStorage["encke.game.id"] ??= crypto.getRandomValues(new Uint32Array(3)).join("-")) as string;

const table = new Table();
const board = new Board(byId("board"), press);
const connection = new Connection({ opened, changed: showState, renewed });
let chosen: Square | undefined;
/** The own move that is on its way: not in the table yet, or not confirmed. */
let sending: { game: number; ply: number; move: string; confirmed: boolean } | undefined;
let restating: ReturnType<typeof setTimeout> | undefined;

function opened(client: Client): void {
    onRefusal(client, (why) => notice("refused", `The server refuses this table (${why}). Choose another one.`));
    client.subscribe(channel, { from: "earliest" }, ({ data }) => receive(data));
}

/** A server that has forgotten the table gets it back from one of the pages. */
function renewed(): void {
    clearTimeout(restating);
    if (!table.isFresh) {
        restate();
    }
}

/** Publishes the table soon. One page is enough: the others see its message first. */
function restate(): void {
    restating = setTimeout(() => publish({ kind: "state", table: table.snapshot() }), RESTATE_MS * (0.3 + Math.random()));
}

function receive(data: unknown): void {
    const message = messageOf(data);
    if (message === undefined) {
        refuse("A message that is no message of a game was ignored.");
        return;
    }
    const outcome = table.apply(message);
    if (message.kind === "state") {
        clearTimeout(restating);
        if (outcome.kind === "behind") {
            // A move was on its way when a page sent this. Whoever comes now would miss it.
            restate();
        }
    }
    // A table that is still empty knows too little to refuse.
    if (outcome.kind === "refused" && !table.isFresh) {
        refuse(outcome.why);
    }
    if (message.kind === "move" && outcome.kind === "changed") {
        chosen = undefined;
        byId("spoken").textContent = `${message.move.slice(0, 2)} to ${message.move.slice(2, 4)}. ${sentence()}`;
    }
    settle();
    show();
}

/** Publishes a message of the game. It changes the table when it comes back, in the order that all pages see. */
function publish(message: Message, done: (accepted: boolean, error: string) => void = () => {}): void {
    if (connection.client === undefined || connection.state !== "connected") {
        done(false, "");
        return;
    }
    connection.client.publish(channel, message).then(() => done(true, ""), (error: EnckeError) => done(false, refusalOf(error)));
}

function press(square: Square): void {
    const side = table.sideOf(id);
    if (side === undefined || table.isOver || sending !== undefined) {
        return;
    }
    const move = chosen === undefined ? undefined : table.movesFrom(chosen).find(({ to }) => to === square);
    if (move !== undefined && table.turn === side) {
        const piece = move.promotion === undefined ? "" : byId<HTMLSelectElement>("becomes").value;
        send(`${move.from}${move.to}${piece}`);
    } else {
        const piece = table.position().get(square);
        const isOwn = piece !== undefined && (piece.color === "w") === (side === "white");
        chosen = isOwn && square !== chosen ? square : undefined;
    }
    show();
}

function send(move: string): void {
    chosen = undefined;
    sending = { game: table.game, ply: table.moves.length, move, confirmed: false };
    resend();
}

/** Sends the move that is on its way; after a break once more, if it is not known yet whether the server has it. */
function resend(): void {
    const own = sending;
    if (own === undefined || connection.state !== "connected") {
        return;
    }
    publish({ kind: "move", game: own.game, ply: own.ply, id, move: own.move }, (accepted, error) => {
        if (sending !== own) {
            return;
        }
        if (accepted) {
            own.confirmed = true;
        } else if (error !== "") {
            sending = undefined;
            refuse(`The server did not take ${own.move} (${error}). Make your move again.`);
        } else {
            setTimeout(() => sending === own && resend(), RESEND_MS);
        }
        settle();
        show();
    });
}

/** Forgets the own move once the table has it and the server has confirmed it, or the game went on without it. */
function settle(): void {
    if (sending === undefined) {
        return;
    }
    const { game, ply, move, confirmed } = sending;
    const isPast = game !== table.game || table.moves.length > ply;
    const isThere = game === table.game && table.moves[ply] === move;
    if (isPast && (confirmed || !isThere)) {
        sending = undefined;
    }
}

function showState(state: LinkState): void {
    showLink(state, connection.transport);
    if (state === "connected") {
        resend();
    }
    show();
}

function show(): void {
    linkNotice(connection.state, sending === undefined ? "the game stays as it is." : "your move is sent again then.", () => connection.open());
    const side = table.sideOf(id);
    const shown = sending !== undefined && table.moves.length === sending.ply ? [sending.move] : [];
    const targets = chosen === undefined ? [] : table.movesFrom(chosen).map(({ to }) => to);
    const last = table.lastMove();
    board.show({
        chess: table.position(...shown),
        from: side ?? "white",
        chosen,
        targets: new Set(targets),
        last: last === undefined ? [] : [last.from, last.to],
        sending: sending === undefined ? [] : [sending.move.slice(0, 2) as Square, sending.move.slice(2, 4) as Square],
    });
    SIDES.forEach(showSeat);
    byId("sentence").textContent = sentence();
    byId("sentence").classList.toggle("own", side !== undefined && table.turn === side && !table.isOver);
    byId("role").textContent = side === undefined ? "You watch." : `You play ${side}.`;
    byId("resign").hidden = side === undefined || table.isOver || table.moves.length === 0;
    byId("new").hidden = side === undefined || !table.isOver;
    showMoves();
}

function showSeat(side: Side): void {
    const player = table.players[side];
    const own = player?.id === id;
    const seat = byId(`seat-${side}`);
    seat.classList.toggle("turn", table.turn === side && !table.isOver);
    const name = seat.querySelector(".player")!;
    name.textContent = player === undefined ? "No one yet" : own ? `${player.name} (you)` : player.name;
    seat.querySelector<HTMLElement>(".sit")!.hidden = player !== undefined || table.sideOf(id) !== undefined;
    seat.querySelector<HTMLElement>(".leave")!.hidden = !own;
}

function sentence(): string {
    if (table.result !== "") {
        return table.result;
    }
    if (sending !== undefined) {
        return connection.state === "connected" ? "Your move is on its way." : "Your move waits for the connection.";
    }
    const side = table.turn;
    const player = table.players[side];
    const check = table.isCheck ? "Check! " : "";
    if (player === undefined) {
        return `${check}${side === "white" ? "White" : "Black"} is to move, and the seat is free.`;
    }
    return player.id === id ? `${check}It is your move.` : `${check}${player.name} is to move.`;
}

function showMoves(): void {
    const moves = table.notation;
    const list = byId("moves");
    const rows = Math.ceil(moves.length / 2);
    while (list.children.length > rows) {
        list.lastElementChild!.remove();
    }
    for (let row = 0; row < rows; row++) {
        const text = `${moves[2 * row]}  ${moves[2 * row + 1] ?? ""}`.trim();
        const item = list.children[row] ?? list.appendChild(element("li", ""));
        if (item.textContent !== text) {
            item.textContent = text;
            list.scrollTop = list.scrollHeight;
        }
    }
    byId("no-moves").hidden = rows > 0;
}

/** Shows a message that was not accepted, by the rules or by the server. */
function refuse(why: string): void {
    const list = byId("refusals");
    list.append(element("li", "", why));
    while (list.children.length > MAX_REFUSALS) {
        list.firstElementChild!.remove();
    }
    byId("refused").hidden = false;
}

function sit(side: Side): void {
    const field = byId<HTMLInputElement>("name");
    const name = field.value.trim().slice(0, MAX_NAME);
    if (name === "") {
        field.reportValidity();
        field.focus();
        return;
    }
    sessionStorage["encke.game.name"] = name;
    publish({ kind: "sit", side, player: { id, name } }, acceptedOr("You did not get the seat"));
}

function acceptedOr(words: string): (accepted: boolean, error: string) => void {
    return (accepted, error) => accepted || refuse(`${words}: ${error === "" ? "the connection is lost. Try again when it is back." : error}`);
}

function start(): void {
    byId<HTMLInputElement>("name").value = (sessionStorage["encke.game.name"] as string | undefined) ?? "";
    byId("table-name").textContent = tableName;
    byId<HTMLAnchorElement>("another").href = `/demo/game?table=${crypto.getRandomValues(new Uint32Array(1))[0]!.toString(36)}`;
    for (const side of SIDES) {
        const seat = byId(`seat-${side}`);
        seat.querySelector(".sit")!.addEventListener("click", () => sit(side));
        seat.querySelector(".leave")!.addEventListener("click", () => publish({ kind: "leave", side, id }, acceptedOr("You still have the seat")));
    }
    byId("resign").addEventListener("click", () => publish({ kind: "resign", game: table.game, id }, acceptedOr("The game goes on")));
    byId("new").addEventListener("click", () => publish({ kind: "new", game: table.game + 1, id }, acceptedOr("There is no new game")));
    show();
    openWithPage(() => connection.open(), () => connection.close());
}

const RESTATE_MS = 800;
const RESEND_MS = 1_000;
const MAX_REFUSALS = 5;

start();
