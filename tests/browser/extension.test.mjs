// The extension, loaded unpacked: it publishes a real tab, and a viewer's pixels are compared.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Firefox } from "./firefox.mjs";
import { Browser, DESKTOP, ExtendedBrowser, Server, TEST_LIMIT_MS, eventually } from "./harness.mjs";
import { looksRight } from "./looks.mjs";
import { BLUE, GREEN, RED, Watcher, colour } from "./screen.mjs";

test("the extension publishes a tab by double click and by events, with the pointer, and goes on after a restart", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { folder } = await built(t);
    // Without a word about origins: `encke demo` lets the extension in.
    const server = await Server.start(t, undefined, { command: "demo" });
    const tab = await ExtendedBrowser.start(t, folder);
    const options = { server: `${server.url}/cometd`, name: "Ann", type: "image/png", pushDelay: 50 };
    await tab.store(options);
    const page = await tab.open(`${server.url}/healthz`);
    await page.evaluate(paint, colour(RED));

    // Two clicks on the button push the tab once.
    await tab.worker.evaluate(() => [1, 2].forEach(() => chrome.action.onClicked.dispatch()));
    const watcher = await Watcher.open(await Browser.start(t), `${server.url}/demo/screenpush/watch`);
    await watcher.sees(640, 400, RED);
    assert.deepEqual(await watcher.publishers(), ["Ann"]);
    await eventually(() => tab.mark(), ["✓", "Screenpush: connected"]);
    await page.evaluate(paint, colour(BLUE));

    // Auto-push: what changes is pushed by itself.
    await tab.store({ ...options, autoPush: true, pointer: true });
    await watcher.sees(640, 400, BLUE);
    await page.evaluate(paint, colour(GREEN));
    await watcher.sees(640, 400, GREEN);
    // The pointer is an arrow: white inside, its shadow to the right and below.
    await page.mouse.move(300, 200);
    await watcher.sees(303, 209, [255, 255, 255]);
    await eventually(async () => (await watcher.pixel(309, 220))[1] < 250, true);
    await page.goto(`${server.url}/readyz`);
    await eventually(async () => String(await watcher.pixel(640, 400)) !== String(GREEN), true);
    await page.evaluate(paint, colour(RED));
    await watcher.sees(640, 400, RED);

    // Each event by itself pushes, and none that is switched off is even reported.
    await tab.worker.evaluate(() => chrome.runtime.onMessage.addListener(({ event }) => void globalThis.reported?.add(event)));
    const reported = () => tab.worker.evaluate(() => [...globalThis.reported]);
    const colours = [BLUE, GREEN, RED];
    for (const wanted of Object.keys(CAUSES)) {
        const events = Object.fromEntries(["navigation", "tabs", ...Object.keys(CAUSES)].map((name) => [name, name === wanted]));
        await tab.worker.evaluate(() => (globalThis.reported = new Set()));
        await tab.store({ ...options, autoPush: true, events });
        // From its first report on the page has these options.
        await eventually(async () => {
            await CAUSES[wanted](page, "gray");
            return (await reported()).includes(wanted);
        }, true);
        await tab.worker.evaluate(() => globalThis.reported.clear());
        const [next] = colours.splice(0, 1);
        colours.push(next);
        for (const name of [...Object.keys(CAUSES).filter((name) => name !== wanted), wanted]) {
            await CAUSES[name](page, colour(next));
        }
        await eventually(reported, [wanted]);
        await watcher.sees(640, 400, next);
    }
    await tab.store({ ...options, autoPush: true });

    await server.kill();
    await eventually(async () => (await tab.mark())[0], "…");
    await page.evaluate(paint, colour(BLUE));
    await Server.start(t, server.port, { command: "demo" });
    await watcher.sees(640, 400, BLUE);
    await eventually(() => tab.mark(), ["✓", "Screenpush: connected"]);
});

test("the extension says what is wrong, and its pages look right", { timeout: TEST_LIMIT_MS }, async (t) => {
    const { folder, origin } = await built(t);
    const server = await Server.start(t);
    const tab = await ExtendedBrowser.start(t, folder);
    await tab.store({ server: `${server.url}/cometd` });
    const menu = await tab.open(`${origin}/menu.html`);
    await menu.getByRole("button", { name: "Connect" }).click();
    await menu.getByText(`The server does not let this extension in. Add its origin to the server’s settings: allowed_origins = ["${origin}"]`).waitFor();
    await looksRight(menu, "screenpush-menu");
    const settings = await tab.open(`${origin}/options.html`);
    await looksRight(settings, "screenpush-options");
    await settings.getByLabel("Channel").fill("/no/*");
    await settings.getByLabel("Channel").press("Tab");
    await settings.getByText("Not saved: the channel is a name").waitFor();
    await settings.getByLabel("Channel").fill("/team/screens");
    await settings.getByLabel("Scrolling").uncheck();
    await settings.getByText("Saved.").waitFor();
    await eventually(async () => {
        const { channel, events } = await tab.stored();
        return [channel, events.scroll, events.click];
    }, ["/team/screens", false, true]);
    // One click on the button opens the menu.
    await tab.worker.evaluate(() => chrome.action.onClicked.dispatch());
    const menus = async () => (await chrome.runtime.getContexts({ contextTypes: ["POPUP"] })).map(({ documentUrl }) => documentUrl);
    await eventually(() => tab.worker.evaluate(menus), [`${origin}/menu.html`]);
    tab.assertNoComplaints();
});

test("Firefox loads the extension, too, and it publishes what changes", { timeout: TEST_LIMIT_MS, skip: !Firefox.isThere() && "there is no Firefox" }, async (t) => {
    const { folder } = await built(t, "firefox");
    const uuid = "5f1f2c9c-0d5e-4c8e-9d4b-3a1b7c2d9e10";
    const server = await Server.start(t, undefined, { flags: ["--allowed-origins", `moz-extension://${uuid}`] });
    const firefox = await Firefox.start(t, { "screenpush@encke.example": uuid });
    await firefox.install(folder);
    const settings = await firefox.open(`moz-extension://${uuid}/options.html`);
    const options = { server: `${server.url}/cometd`, name: "Fox", type: "image/png", autoPush: true };
    await settings.evaluate(`chrome.storage.local.set({ options: ${JSON.stringify(options)} })`);
    const watcher = await Watcher.open(await Browser.start(t), `${server.url}/demo/screenpush/watch`);
    const page = await firefox.open(`${server.url}/healthz`);
    for (const one of [RED, GREEN]) {
        await page.evaluate(`(${paint})(${JSON.stringify(colour(one))})`);
        await watcher.sees(300, 300, one);
    }
    assert.deepEqual(await watcher.publishers(), ["Fox"]);
});

/** The events of a page, and what causes each. */
const CAUSES = {
    click: (page) => page.mouse.click(200, 200),
    typing: (page) => page.keyboard.press("a"),
    scroll: (page) => page.evaluate(() => scrollTo(0, scrollY === 0 ? 50 : 0)),
    resize: (page) => page.setViewportSize({ ...DESKTOP, height: page.viewportSize().height === DESKTOP.height ? DESKTOP.height - 20 : DESKTOP.height }),
    changes: (page, colour) => page.evaluate(paint, colour),
};

/** Builds the extension, and returns where it is and its origin in Chromium. */
async function built(t, browser = "chromium") {
    const out = await mkdtemp(join(tmpdir(), "encke-extension-"));
    t.after(() => rm(out, { recursive: true }));
    await promisify(execFile)(process.execPath, [fileURLToPath(new URL("../../screenpush/build.mjs", import.meta.url)), out]);
    return { folder: join(out, browser), origin: "chrome-extension://gpjlomgpmphjeakpggjckpjnldgjkdid" };
}

/** Runs in the page: gives all of it one colour. */
function paint(colour) {
    document.documentElement.style.cssText = `height: 200%; background: ${colour}`;
    document.body.replaceChildren();
}
