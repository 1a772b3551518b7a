// The chat page as its visitor meets it: by labels, roles and visible words.

import { eventually } from "./harness.mjs";

export class Chatter {
    page;
    name;

    /** Opens the page as `name` and joins. */
    static async join(browser, server, name, { query = "", ...options } = {}) {
        const chatter = new Chatter();
        chatter.name = name;
        chatter.page = await browser.open(`${server.url}/demo/chat?${query}`, options);
        await chatter.page.getByLabel("Your name").fill(name);
        await chatter.page.getByRole("button", { name: "Join" }).click();
        await chatter.connected();
        return chatter;
    }

    async connected() {
        await this.page.locator("#link[data-state=connected]").waitFor();
    }

    link() {
        return this.page.getByRole("status").innerText();
    }

    async say(text) {
        await this.page.getByLabel("Message", { exact: true }).fill(text);
        await this.page.getByRole("button", { name: "Send" }).click();
    }

    /** Chooses `peer` in the list of members. */
    async turnTo(peer) {
        await this.page.getByRole("button", { name: `Write to ${peer} alone` }).click();
    }

    async turnToAll() {
        await this.page.getByRole("button", { name: "Write to everyone" }).click();
    }

    async leave() {
        await this.page.getByRole("button", { name: "Leave" }).click();
    }

    async sees(names) {
        await eventually(() => this.members(), [...names].sort());
    }

    async members() {
        return (await this.page.locator("#members .member").allInnerTexts()).sort();
    }

    /** Waits for these words as one message of the log. */
    async receives(words) {
        await this.page.getByRole("log").getByText(words, { exact: true }).waitFor();
    }

    /** All messages so far (not who came and went), oldest first. */
    messages() {
        return this.page.locator("#log .words").allInnerTexts();
    }

    notices() {
        return this.page.locator("#log .notice").allInnerTexts();
    }
}
