/** The small pictures of the demos on the start page. They show what happens on the channels of the demos now. */

import type { Client } from "encke";
import { byId, element } from "./dom";
import { picture } from "./demo/game/board";
import { messageOf, Table } from "./demo/game/table";

/** The symbols of the picture of quotes. */
const SYMBOLS = ["S0042", "S1729"];
const table = new Table();
const prices = SYMBOLS.map(() => [] as number[]);

/** Subscribes to the channels of the pictures. */
export function subscribePictures(client: Client): void {
    client.subscribe("/demo/chat/lobby", ({ data }) => showText("last-said", field(data, "chat")));
    client.subscribe("/mail/example", ({ data }) => showText("last-mail", field(data, "subject")));
    client.subscribe("/presence/demo/presence/lobby", ({ data }) => {
        const sessions = field(data, "sessions");
        if (typeof sessions === "number") {
            byId("presence-about").textContent = sessions === 1 ? "One window is here now." : `${sessions} windows are here now.`;
        }
    });
    SYMBOLS.forEach((symbol, index) => client.subscribe(`/stock/${symbol}`, ({ data }) => quoted(index, data)));
    client.subscribe("/demo/game/lobby", { from: "earliest" }, ({ data }) => moved(data));
}

/** Draws the table of the chess page as it is. */
export function showBoard(): void {
    const cells = table.position().board().flatMap((row, y) => row.map((piece, x) => {
        const cell = element("i", (x + y) % 2 === 1 ? "dark" : "");
        if (piece !== null) {
            cell.append(picture(piece.type, piece.color));
        }
        return cell;
    }));
    byId("game-picture").replaceChildren(...cells);
}

function moved(data: unknown): void {
    const message = messageOf(data);
    if (message !== undefined && table.apply(message).kind === "changed") {
        const { white, black } = table.players;
        if (white !== undefined && black !== undefined) {
            byId("game-about").textContent = `${white.name} against ${black.name}. ${table.result}`;
        }
        showBoard();
    }
}

function quoted(index: number, data: unknown): void {
    const last = (data as { last?: unknown } | null)?.last;
    const own = prices[index]!;
    if (typeof last !== "number") {
        return;
    }
    own.push(last);
    own.splice(0, own.length - MAX_PRICES);
    if (own.length < 2) {
        return;
    }
    const [low, high] = [Math.min(...own), Math.max(...own)];
    const y = (price: number) => 44 + 46 * index - (34 * (price - low)) / (high - low || 1);
    const points = own.map((price, at) => `${(10 + (180 * at) / (MAX_PRICES - 1)).toFixed(1)} ${y(price).toFixed(1)}`);
    byId("quotes-picture").children[index]!.setAttribute("d", `M${points.join("L")}`);
}

function showText(id: string, text: unknown): void {
    if (typeof text === "string" && text !== "") {
        byId(id).textContent = text.slice(0, MAX_TEXT);
    }
}

function field(data: unknown, name: string): unknown {
    return typeof data === "object" && data !== null ? (data as Record<string, unknown>)[name] : undefined;
}

const MAX_PRICES = 40;
const MAX_TEXT = 80;
