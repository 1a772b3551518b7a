// The chess page: two players in two windows, one who watches, breaks and restarts, messages that break the rules.

import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Browser, PHONE, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";

test("two windows play, a third one watches, and each sees the same board", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [browser, server, caroline, johann] = await twoPlayers(t);
    const watcher = await browser.open(`${server.url}/demo/game`, { viewport: PHONE });
    await play([caroline, johann], ["e2e4", "e7e5", "d1h5", "b8c6", "f1c4"]);
    for (const page of [caroline, johann, watcher]) {
        await eventually(() => moves(page), ["e4 e5", "Qh5 Nc6", "Bc4"]);
    }
    await looksRight(johann, "game");
    await press(watcher, "g8");
    assert.equal(await watcher.locator(".target").count(), 0);
    await play([johann, caroline], ["g8f6", "h5f7"]);
    for (const page of [caroline, johann, watcher]) {
        await eventually(() => sentence(page), "Checkmate: White wins.");
    }
    await looksRight(watcher, "game-over");

    await johann.getByRole("button", { name: "New game" }).click();
    await eventually(() => moves(watcher), []);
    await eventually(() => johann.locator("#seat-white .player").innerText(), "Johann (you)");
    await play([johann], ["d2d4"]);
    await eventually(() => moves(caroline), ["d4"]);
    browser.assertNoComplaints();
});

test("a piece moves by the keyboard alone", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [browser, , caroline, johann] = await twoPlayers(t);
    await caroline.locator("[data-square=e2]").focus();
    for (const key of ["Enter", "ArrowUp", "ArrowUp", "Space"]) {
        await caroline.keyboard.press(key);
    }
    await eventually(() => moves(johann), ["e4"]);
    browser.assertNoComplaints();
});

for (const [memory, flags] of [["a server that stores histories", (folder) => ["--data", folder]], ["a server that forgets everything", () => []]]) {
    test(`a move in the middle of a restart of ${memory} arrives once`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const folder = await temporaryFolder(t);
        const [browser, server, caroline, johann] = await twoPlayers(t, flags(folder));
        await play([caroline, johann], ["e2e4", "e7e5"]);
        await eventually(() => moves(caroline), ["e4 e5"]);
        await server.kill();
        await press(caroline, "g1");
        await press(caroline, "f3");
        await eventually(() => sentence(caroline), "Your move waits for the connection.");
        await caroline.getByText("your move is sent again then").waitFor();
        await Server.start(t, server.port, { flags: flags(folder) });
        await eventually(() => moves(johann), ["e4 e5", "Nf3"]);
        await play([johann], ["b8c6"]);
        // Whoever comes now learns the whole game: of the history, or of the pages that know it.
        const late = await browser.open(`${server.url}/demo/game`);
        for (const page of [caroline, johann, late]) {
            await eventually(() => moves(page), ["e4 e5", "Nf3 Nc6"]);
        }
        await eventually(() => late.locator("#seat-white .player").innerText(), "Caroline");
        assert.equal(await late.locator("#refused").isVisible(), false);
    });
}

test("a reload stays the same player, and the seat of another cannot be taken", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [browser, server, caroline, johann] = await twoPlayers(t);
    await play([caroline], ["e2e4"]);
    await eventually(() => moves(johann), ["e4"]);
    await caroline.reload();
    await eventually(() => caroline.locator("#seat-white .player").innerText(), "Caroline (you)");
    await play([johann, caroline], ["e7e5", "g1f3"]);
    const watcher = await browser.open(`${server.url}/demo/game`);
    await eventually(() => moves(watcher), ["e4 e5", "Nf3"]);
    await eventually(() => watcher.locator(".sit:visible").count(), 0);
    await publish(server, { kind: "sit", side: "white", player: { id: "thief", name: "Mallory" } });
    await watcher.getByText("Mallory wanted to play white, where Caroline sits.").waitFor();
    assert.equal(await watcher.locator("#seat-white .player").innerText(), "Caroline");
});

test("a page that comes after a table without its last move learns that move from the others", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [browser, server, caroline, johann] = await twoPlayers(t);
    await play([caroline, johann, caroline], ["e2e4", "e7e5", "g1f3"]);
    await eventually(() => moves(johann), ["e4 e5", "Nf3"]);
    const players = await Promise.all([caroline, johann].map((page) => page.evaluate(() => sessionStorage["encke.game.id"])));
    const [white, black] = [{ id: players[0], name: "Caroline" }, { id: players[1], name: "Johann" }];
    // As after a restart without memory: the last move stands before the table that lacks it.
    await server.kill();
    await Promise.all([caroline, johann].map((page) => page.context().setOffline(true)));
    await Server.start(t, server.port);
    await publish(server, { kind: "move", game: 1, ply: 2, id: players[0], move: "g1f3" });
    await publish(server, { kind: "state", table: { game: 1, players: { white, black }, moves: ["e2e4", "e7e5"] } });
    await publish(server, { kind: "move", game: 1, ply: 3, id: players[1], move: "b8c6" });
    const late = await browser.open(`${server.url}/demo/game`);
    await eventually(() => moves(late), ["e4 e5"]);
    await Promise.all([caroline, johann].map((page) => page.context().setOffline(false)));
    for (const page of [caroline, johann, late]) {
        await eventually(() => moves(page), ["e4 e5", "Nf3 Nc6"]);
    }
    assert.equal(await late.locator("#refused").isVisible(), false);
});

test("messages that break the rules change nothing, and every window shows them", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [browser, server, caroline, johann] = await twoPlayers(t);
    await play([caroline], ["e2e4"]);
    await eventually(() => moves(johann), ["e4"]);
    const id = await johann.evaluate(() => sessionStorage["encke.game.id"]);
    await publish(server, { kind: "move", game: 1, ply: 1, id, move: "e7e2" });
    await publish(server, { kind: "move", game: 1, ply: 1, id: "nobody", move: "e7e5" });
    await publish(server, { kind: "move", game: 1, ply: 0, id, move: "d2d4" });
    await publish(server, { kind: "state", table: { game: 1, players: {}, moves: ["e2e4", "e2e4"] } });
    await publish(server, "<b>no message</b>");
    for (const page of [caroline, johann]) {
        await eventually(() => page.locator("#refusals li").allInnerTexts(), [
            "Johann sent e7e2, which the rules do not allow.",
            "Somebody without a seat sent e7e5 out of turn.",
            "d2d4 came too late: move 1 was made already.",
            "A page sent a game with a move that the rules do not allow.",
            "A message that is no message of a game was ignored.",
        ]);
        assert.deepEqual(await moves(page), ["e4"]);
    }
    await looksRight(caroline, "game-refused");
    // Two messages for one move: the first one counts.
    await publish(server, { kind: "move", game: 1, ply: 1, id, move: "c7c5" });
    await publish(server, { kind: "move", game: 1, ply: 1, id, move: "e7e5" });
    await caroline.getByText("e7e5 came too late: move 2 was made already.").waitFor();
    await eventually(() => moves(johann), ["e4 c5"]);
    browser.assertNoComplaints();
});

async function twoPlayers(t, flags = []) {
    const server = await Server.start(t, undefined, { flags });
    const browser = await Browser.start(t);
    const pages = [];
    for (const [name, side] of [["Caroline", "white"], ["Johann", "black"]]) {
        const page = await browser.open(`${server.url}/demo/game`);
        await page.locator("#link[data-state=connected]").waitFor();
        await page.getByLabel("Your name").fill(name);
        await page.getByRole("button", { name: `Play ${side}` }).click();
        await page.locator(`#seat-${side}`).getByText(`${name} (you)`).waitFor();
        pages.push(page);
    }
    await eventually(() => pages[0].locator("#seat-black .player").innerText(), "Johann");
    return [browser, server, ...pages];
}

/** Moves in turn, each by the next one of these pages, which waits until it is its turn. */
async function play(pages, list) {
    for (const [index, move] of list.entries()) {
        const page = pages[index % pages.length];
        await page.locator("#sentence.own").waitFor();
        await press(page, move.slice(0, 2));
        await press(page, move.slice(2));
    }
}

async function press(page, square) {
    await page.locator(`[data-square=${square}]`).click();
}

/** The moves as the page lists them: a pair in a line. */
async function moves(page) {
    return (await page.locator("#moves li").allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());
}

function sentence(page) {
    return page.locator("#sentence").innerText();
}

/** Publishes on the table's channel as any program can. */
async function publish(server, data) {
    const post = async (message, cookie = "") => {
        const reply = await fetch(`${server.url}/cometd`, { method: "POST", headers: { "content-type": "application/json", cookie }, body: JSON.stringify([message]) });
        return [(await reply.json())[0], reply.headers.get("set-cookie")?.split(";")[0] ?? ""];
    };
    const [{ clientId }, cookie] = await post({ channel: "/meta/handshake", version: "1.0", supportedConnectionTypes: ["long-polling"] });
    const [reply] = await post({ channel: "/demo/game/lobby", clientId, data }, cookie);
    assert.equal(reply.successful, true);
}

async function temporaryFolder(t) {
    const folder = await mkdtemp(join(tmpdir(), "encke-game-"));
    t.after(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
    return folder;
}
