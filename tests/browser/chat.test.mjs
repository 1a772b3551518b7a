// The chat demo: the channels and services of CometD's demo chat, seen from two windows.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Chatter } from "./chatter.mjs";
import { looksRight } from "./looks.mjs";
import { Browser, DESKTOP, PHONE, Server, TEST_LIMIT_MS, eventually, screenshot } from "./harness.mjs";

for (const [device, viewport] of [["desktop", DESKTOP], ["phone", PHONE]]) {
    test(`two pages chat on a ${device}`, { timeout: TEST_LIMIT_MS }, async (t) => {
        const [johanna, caroline, browser] = await twoChatters(t, { viewport });
        await johanna.sees(["Caroline", "Johanna"]);
        await caroline.sees(["Caroline", "Johanna"]);
        await eventually(() => johanna.notices(), ["You joined", "Caroline joined"]);

        await johanna.say("Did you see the comet tonight?");
        await caroline.receives("Did you see the comet tonight?");
        await caroline.say("Low in the west, just after sunset. I could follow the tail for almost two degrees.");
        await johanna.receives("Low in the west, just after sunset. I could follow the tail for almost two degrees.");
        await caroline.turnTo("Johanna");
        await caroline.say("I have a better eyepiece for you.");
        await johanna.receives("I have a better eyepiece for you.");
        await johanna.say("Caroline::Bring it tomorrow!");
        await caroline.receives("Bring it tomorrow!");
        await johanna.say("Clear skies, everyone.");
        for (const chatter of [johanna, caroline]) {
            await chatter.receives("Clear skies, everyone.");
        }
        assert.deepEqual(await johanna.messages(), await caroline.messages());
        assert.equal(await johanna.page.locator(".whispered").count(), 2);

        await screenshot(caroline.page, `chat-${device}-private`);
        await looksRight(johanna.page, `chat-of-${device}`);
        assert.equal(await fitsTheWindow(johanna.page), true);
        browser.assertNoComplaints();
    });
}

test("a private message reaches the named peers and its sender only", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [johanna, caroline, browser, server] = await twoChatters(t);
    const maria = await Chatter.join(browser, server, "Maria");
    await johanna.sees(["Caroline", "Johanna", "Maria"]);
    await johanna.turnTo("Caroline");
    await johanna.say("for you alone");
    await johanna.turnToAll();
    await johanna.say("for all");
    await johanna.say("Caroline, Maria::for you two");
    for (const [chatter, expected] of [[johanna, ["for you alone", "for all", "for you two"]], [caroline, ["for you alone", "for all", "for you two"]], [maria, ["for all", "for you two"]]]) {
        await chatter.receives("for you two");
        assert.deepEqual(await chatter.messages(), expected, chatter.name);
    }
    assert.equal(await johanna.page.getByText("private to Caroline", { exact: true }).count(), 1);
});

test("a private message to no one stays in its field", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [johanna] = await twoChatters(t);
    await johanna.say("Nobody::hello?");
    await johanna.page.getByText("Not sent: no one here is called Nobody.").waitFor();
    assert.equal(await johanna.page.getByLabel("Message", { exact: true }).inputValue(), "Nobody::hello?");
});

test("markup is text", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [johanna, caroline, browser] = await twoChatters(t);
    const markup = "<b>bold</b> <img src=x onerror=\"document.title='owned'\"> & co";
    await johanna.say(markup);
    await johanna.say("after the markup");
    await caroline.receives("after the markup");
    assert.equal((await caroline.messages())[0], markup);
    assert.equal(await caroline.page.locator("#log b, #log img").count(), 0);
    assert.equal(await caroline.page.title(), "Chat · Encke");
    browser.assertNoComplaints();
});

test("a message with the word dang is dropped, and its writer gets an error", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [johanna, caroline] = await twoChatters(t);
    await johanna.say("oh dang it");
    await johanna.page.getByText("Not accepted by the server: oh dang it").waitFor();
    await johanna.say("pardon");
    await caroline.receives("pardon");
    assert.deepEqual(await caroline.messages(), ["pardon"]);
});

test("who leaves is gone from the list, and may come back", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [johanna, caroline] = await twoChatters(t);
    await caroline.leave();
    await johanna.sees(["Johanna"]);
    await johanna.page.getByText("Caroline left").waitFor();
    await eventually(() => caroline.link(), "Not connected");

    await caroline.page.getByRole("button", { name: "Join" }).click();
    await johanna.sees(["Caroline", "Johanna"]);
    await johanna.say("welcome back");
    await caroline.receives("welcome back");
    assert.deepEqual(await caroline.messages(), ["welcome back"]);
});

test("who closes the window is gone from the list", { timeout: TEST_LIMIT_MS }, async (t) => {
    const [johanna, caroline] = await twoChatters(t);
    await caroline.page.close({ runBeforeUnload: true });
    await johanna.sees(["Johanna"]);
});

test("the name can come with the address", { timeout: TEST_LIMIT_MS }, async (t) => {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const page = await browser.open(`${server.url}/demo/chat/?user=Johanna`);
    assert.equal(await page.getByLabel("Your name").inputValue(), "Johanna");
    await page.keyboard.press("Enter");
    await page.getByText("You joined").waitFor();
});

async function twoChatters(t, options) {
    const server = await Server.start(t);
    const browser = await Browser.start(t);
    const johanna = await Chatter.join(browser, server, "Johanna", options);
    await johanna.sees(["Johanna"]);
    const caroline = await Chatter.join(browser, server, "Caroline", options);
    await johanna.sees(["Caroline", "Johanna"]);
    await johanna.page.getByText("Caroline joined").waitFor();
    return [johanna, caroline, browser, server];
}

/** Nothing has to be scrolled sideways to be seen. */
function fitsTheWindow(page) {
    return page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && document.documentElement.scrollHeight <= innerHeight);
}
