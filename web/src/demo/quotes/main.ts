/** The page of quotes: chosen symbols in the address, their latest prices in the table. */

import { openWithPage } from "../../connection";
import { byId, showLink, type LinkState } from "../../dom";
import { action, linkNotice, notice } from "../../notices";
import { offNotice } from "../../sources";
import { Choice } from "./choice";
import { Market, type Quote } from "./market";
import { Rounds } from "./rounds";
import { Table } from "./table";

const market = new Market({ quote: arrived, names: known, changed: showState, off: showOff, refused });
const table = new Table(byId("rows"), (symbol) => choose(chosen.filter((other) => other !== symbol)));
const choice = new Choice((symbol) => choose([...chosen, symbol]), (symbol) => chosen.includes(symbol));
const rounds = new Rounds();
let chosen: string[] = [];
let names: string[] = [];
/** True when the visitor has chosen, even nothing. */
let hasChosen = false;

function arrived(quote: Quote): void {
    rounds.take(quote.loop);
    table.take(quote);
}

/** Shows these symbols, and writes them into the address. */
function choose(symbols: string[]): void {
    hasChosen = true;
    const wanted = [...new Set(symbols)];
    if (wanted.length > MAX_SYMBOLS) {
        notice("many", `This page shows ${MAX_SYMBOLS} symbols at most. Remove some before you add others.`);
    } else {
        notice("many");
    }
    chosen = wanted.slice(0, MAX_SYMBOLS);
    history.replaceState(null, "", `${location.pathname}${location.search}#${chosen.map(encodeURIComponent).join(",")}`);
    show();
}

function show(): void {
    market.choose(chosen);
    table.show(chosen);
    byId("nothing").hidden = chosen.length > 0;
    const all = names.length === 0 ? "" : ` of ${names.length.toLocaleString("en")}`;
    byId("count").textContent = `${chosen.length}${all}`;
}

function known(all: string[]): void {
    names = all;
    choice.names(names);
    for (const id of ["add-50", "add-200"]) {
        byId<HTMLButtonElement>(id).disabled = names.length === 0;
    }
    if (!hasChosen) {
        choose(names.slice(0, FIRST_SYMBOLS));
    }
    show();
}

/** Adds the next symbols that are not in the table. */
function addMore(count: number): void {
    const others = names.filter((name) => !chosen.includes(name));
    choose([...chosen, ...others.slice(0, count)]);
}

function refused(symbol: string, why: string): void {
    notice("refused", `The server does not allow the subscription to ${symbol} (${why}). Remove it, or ask who runs the server. `,
        action(`Remove ${symbol}`, () => {
            notice("refused");
            choose(chosen.filter((other) => other !== symbol));
        }));
}

function showOff(isOff: boolean): void {
    if (isOff) {
        offNotice("No source publishes quotes on this server.", LINES);
    } else {
        notice("off");
    }
}

function showState(state: LinkState): void {
    showLink(state, market.transport);
    linkNotice(state, "the table has the last prices that came.", () => market.open());
    byId("table").classList.toggle("away", state !== "connected");
    rounds.pause();
}

function showFacts(): void {
    byId("round").textContent = rounds.last === undefined ? "–" : rounds.last.toLocaleString("en");
    byId("pace").textContent = rounds.paceMs === undefined ? "–" : `${rounds.paceMs.toFixed(0)} ms`;
    byId("passed-over").textContent = (table.passedOver + rounds.missed).toLocaleString("en");
}

function ofAddress(): string[] {
    return location.hash.slice(1).split(",").filter((name) => name !== "").map(decoded);
}

/** An address that somebody has typed may be no valid code. */
function decoded(text: string): string {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

function start(): void {
    const named = ofAddress();
    if (named.length > 0) {
        choose(named);
    }
    byId("add-50").addEventListener("click", () => addMore(50));
    byId("add-200").addEventListener("click", () => addMore(200));
    byId("clear").addEventListener("click", () => choose([]));
    const draw = byId<HTMLSelectElement>("draw");
    draw.addEventListener("change", () => {
        table.paceMs = Number(draw.value);
    });
    addEventListener("hashchange", () => choose(ofAddress()));
    setInterval(showFacts, FACTS_EVERY_MS);
    openWithPage(() => market.open(), () => market.close());
}

/** Within the server's limit of subscriptions of one session. */
const MAX_SYMBOLS = 500;
const FIRST_SYMBOLS = 20;
const FACTS_EVERY_MS = 250;
const LINES = `[[source]]
kind = "quotes"

[[channels]]
pattern = "/stock/**"
slow_consumer = "keep-latest"
slow_consumer_bytes = 16384`;

start();
