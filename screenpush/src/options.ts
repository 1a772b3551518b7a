/** The settings page of the extension. A change is stored at once. */

import { byId, element, showLink } from "../../web/src/dom";
import { addressOf, channelOf } from "../../web/src/screenpush/settings";
import type { Command, Status } from "./messages";
import { EVENTS, NAMES, load, extensionSettingsOf, save, whenChanged, type ExtensionSettings } from "./settings";

function fill(settings: ExtensionSettings): void {
    for (const [id, value] of [["server", settings.server], ["channel", settings.channel], ["name", settings.name], ["type", settings.type],
        ["quality", settings.quality], ["max-width", settings.maxWidth], ["push-delay", settings.pushDelay], ["whole-every", settings.wholeEvery]] as const) {
        byId<HTMLInputElement>(id).value = String(value);
    }
    for (const [id, value] of [["auto-push", settings.autoPush], ["pointer", settings.pointer], ["skip-unchanged", settings.skipUnchanged], ["tiles", settings.tiles],
        ...NAMES.map((name) => [`on-${name}`, settings.events[name]] as const)] as const) {
        byId<HTMLInputElement>(id).checked = value;
    }
    byId("quality-value").textContent = String(settings.quality);
    byId("quality-row").hidden = settings.type === "image/png";
}

let stores = 0;

async function store(): Promise<void> {
    const store = ++stores;
    const text = (id: string): string => byId<HTMLInputElement>(id).value;
    const number = (id: string): number => byId<HTMLInputElement>(id).valueAsNumber;
    const isOn = (id: string): boolean => byId<HTMLInputElement>(id).checked;
    const problem = addressOf(text("server")) === undefined ? "Not saved: the server is an address such as http://127.0.0.1:8080/cometd."
        : channelOf(text("channel")) === undefined ? "Not saved: the channel is a name such as /demo/screenpush/demo, without * and spaces." : "";
    byId("saved").textContent = problem === "" ? "Saved." : problem;
    const wanted = {
        server: text("server"), channel: text("channel"), name: text("name"), type: text("type"), quality: number("quality"), maxWidth: number("max-width"),
        pushDelay: number("push-delay"), wholeEvery: number("whole-every"), skipUnchanged: isOn("skip-unchanged"), tiles: isOn("tiles"),
        autoPush: isOn("auto-push"), pointer: isOn("pointer"), events: Object.fromEntries(NAMES.map((name) => [name, isOn(`on-${name}`)])),
    };
    if (problem === "") {
        const settings = extensionSettingsOf(wanted);
        await save(settings);
        // A change that has come meanwhile stays on the page, and is stored next.
        if (store === stores) {
            fill(settings);
        }
    }
}

function showStatus({ state, problem }: Status): void {
    showLink(state, "");
    byId("problem").textContent = problem;
    byId("problem").hidden = problem === "";
}

async function start(): Promise<void> {
    byId("origin").textContent = location.origin;
    byId("events").append(...NAMES.map((name) => {
        const label = element("label", "check");
        const box = document.createElement("input");
        box.type = "checkbox";
        box.id = `on-${name}`;
        label.append(box, EVENTS[name]);
        return label;
    }));
    fill(await load());
    byId("settings").addEventListener("change", () => void store());
    byId("settings").addEventListener("submit", (event) => event.preventDefault());
    whenChanged((settings) => document.hasFocus() || fill(settings));
    byId("allow-part").hidden = await chrome.permissions.contains(ALL);
    byId("allow").addEventListener("click", () => void chrome.permissions.request(ALL).then((isAllowed) => (byId("allow-part").hidden = isAllowed)));
    chrome.runtime.onMessage.addListener((message) => {
        if ((message as Status).kind === "status") {
            showStatus(message as Status);
        }
    });
    showStatus(await chrome.runtime.sendMessage({ kind: "command", command: "status" } satisfies Command) as Status);
}

const ALL = { origins: ["<all_urls>"] };

void start();
