/** The mail notifier: the same mails by a held request and by a subscription, side by side. */

import type { Client } from "encke";
import { Connection, onRefusal, openWithPage } from "../../connection";
import { byId, element, showLink, type LinkState } from "../../dom";
import { linkNotice, notice } from "../../notices";
import { askSources, offNotice } from "../../sources";
import { count, holdCost, inWords, sessionCost, type Cost } from "./cost";
import { Hold } from "./hold";

/** A mail, as the source publishes it. A field that the mail does not have is null. */
interface Mail {
    account: string;
    sender: string | null;
    sender_name?: string | null;
    subject: string | null;
    date: string | null;
    message_id: string | null;
}

/** One of the two ways to wait: its part of the page. */
class Way {
    readonly #part: HTMLElement;
    readonly #cost: Cost;
    /** The time since which it waits, in milliseconds of the page's clock; undefined if it does not. */
    #since: number | undefined;
    #mails = 0;
    /** The received bytes at the last mail. */
    #bytes = 0;

    constructor(id: string, cost: Cost) {
        this.#part = byId(id);
        this.#cost = cost;
    }

    waits(isWaiting: boolean): void {
        this.#since = isWaiting ? performance.now() : undefined;
        this.show();
    }

    /** Shows a mail, how long it was waited for, and what that cost. */
    mail(mail: Mail): void {
        this.#mails += 1;
        const seconds = (performance.now() - (this.#since ?? performance.now())) / 1_000;
        const item = element("li", "mail");
        const sender = mail.sender_name ?? mail.sender ?? "an unknown sender";
        const cost = element("p", "price");
        item.append(element("p", "subject", mail.subject ?? "(no subject)"), element("p", "sender", `${sender} to ${mail.account}`), cost);
        const list = this.#find("mails");
        list.prepend(item);
        while (list.children.length > MAX_SHOWN_MAILS) {
            list.lastElementChild?.remove();
        }
        this.#find("none").hidden = true;
        // The browser reports the size of a response a moment after its end.
        setTimeout(() => {
            cost.textContent = `waited ${seconds.toFixed(1)} s, ${inWords(this.#cost.receivedBytes - this.#bytes)} since the last mail`;
            this.#bytes = this.#cost.receivedBytes;
        }, REPORT_MS);
    }

    show(): void {
        const state = this.#find("state");
        state.textContent = this.#since === undefined ? "Does not wait" : `Has waited for ${((performance.now() - this.#since) / 1_000).toFixed(0)} s`;
        state.dataset.waits = String(this.#since !== undefined);
        this.#find("mail-count").textContent = this.#mails.toLocaleString("en");
        this.#find("requests").textContent = this.#cost.requests.toLocaleString("en");
        this.#find("received").textContent = inWords(this.#cost.receivedBytes);
        const frames = this.#part.querySelector(".frames");
        if (frames !== null) {
            frames.textContent = this.#cost.frames.toLocaleString("en");
        }
    }

    #find(name: string): HTMLElement {
        return this.#part.querySelector<HTMLElement>(`.${name}`)!;
    }
}

const [held, subscribed] = [new Way("held", holdCost), new Way("subscribed", sessionCost)];
const connection = new Connection({ opened, changed: showState, renewed: () => void askIfOn() });
const hold = new Hold("/mail/*", {
    asked: () => held.waits(true),
    answered: (messages) => messages.filter(isMail).forEach((mail) => held.mail(mail)),
    failed: (why) => {
        if (why === undefined) {
            notice("hold");
        } else {
            held.waits(false);
            notice("hold", why);
        }
    },
});

function opened(client: Client): void {
    onRefusal(client, (why) => notice("refused", `The server does not let you subscribe to mails (${why}). Ask who runs it.`));
    client.subscribe(MAILS, ({ data }) => {
        if (isMail(data)) {
            subscribed.mail(data);
            subscribed.waits(true);
        }
    });
    void askIfOn();
}

/** Says how to switch the source on. While there is none, asks again now and then. */
async function askIfOn(): Promise<void> {
    const sources = connection.client && (await askSources(connection.client, "mail"));
    if (sources?.length === 0) {
        offNotice("No source looks for mails on this server; send a test mail below, or switch one on.", LINES);
        setTimeout(() => connection.state === "connected" && void askIfOn(), ASK_AGAIN_MS);
    } else {
        notice("off");
    }
    byId("accounts").textContent = sources === undefined || sources.length === 0 ? "none" : sources.map(({ name }) => name).join(", ");
}

function showState(state: LinkState): void {
    showLink(state, connection.transport);
    linkNotice(state, "the subscription misses mails meanwhile.", () => connection.open());
    subscribed.waits(state === "connected");
    byId<HTMLButtonElement>("test").disabled = state !== "connected";
}

/** Publishes what the source would publish for a new mail. */
function sendTestMail(): void {
    const number = Math.floor(1e6 * Math.random());
    const mail: Mail = {
        account: "test", sender: "page@example.org", sender_name: "This page", subject: `Test mail ${number}`, date: new Date().toISOString(), message_id: `${number}@example.org`,
    };
    connection.client?.publish("/mail/test", mail).then(
        () => notice("test"),
        () => notice("test", "The server does not accept a test mail from a page. Send a real one to an account of its sources."),
    );
}

function isMail(data: unknown): data is Mail {
    const { account, sender, sender_name, subject } = (data ?? {}) as Partial<Mail>;
    const isText = (text: unknown) => text === undefined || text === null || typeof text === "string";
    return typeof account === "string" && isText(sender) && isText(sender_name) && isText(subject);
}

function start(): void {
    count(() => [held, subscribed].forEach((way) => way.show()));
    const time = byId<HTMLSelectElement>("time");
    hold.timeoutS = Number(time.value);
    time.addEventListener("change", () => {
        hold.timeoutS = Number(time.value);
        hold.restart();
    });
    byId("test").addEventListener("click", sendTestMail);
    setInterval(() => [held, subscribed].forEach((way) => way.show()), 1_000);
    const open = () => {
        hold.start();
        connection.open();
    };
    openWithPage(open, () => {
        hold.stop();
        connection.close();
    });
}

const MAILS = "/mail/*";
const MAX_SHOWN_MAILS = 20;
const ASK_AGAIN_MS = 2_000;
const REPORT_MS = 100;
const LINES = `[[source]]
kind = "mail"
host = "imap.example.org"
user = "ann"
password_file = "/run/secrets/mail"`;

start();
