/** The menu of the toolbar button. */

import { byId, showLink } from "../../web/src/dom";
import type { Command, Status } from "./messages";
import { load, save, whenChanged, type ExtensionSettings } from "./settings";

let settings: ExtensionSettings;

async function send(command: Command["command"]): Promise<void> {
    showStatus(await chrome.runtime.sendMessage({ kind: "command", command } satisfies Command) as Status);
}

function showStatus({ state, problem, last }: Status): void {
    showLink(state, "");
    byId("problem").textContent = problem;
    byId("problem").hidden = problem === "";
    byId("last").textContent = `Last push: ${last}`;
    byId("last").hidden = last === "";
    const isOn = state !== "closed" && state !== "ended";
    byId("connect").textContent = isOn ? "Disconnect" : "Connect";
    byId("connect").dataset["command"] = isOn ? "disconnect" : "connect";
}

function showOptions(now: ExtensionSettings): void {
    settings = now;
    byId<HTMLInputElement>("auto-push").checked = now.autoPush;
    byId<HTMLInputElement>("pointer").checked = now.pointer;
    byId<HTMLInputElement>("pointer").disabled = !now.autoPush;
}

/** The viewer's page of the server that gets the pictures. */
function watch(): void {
    const { origin } = new URL(settings.server);
    void chrome.tabs.create({ url: `${origin}/demo/screenpush/watch?${new URLSearchParams({ channel: settings.channel })}` });
}

async function start(): Promise<void> {
    byId("push").addEventListener("click", () => void send("push"));
    byId("connect").addEventListener("click", () => void send(byId("connect").dataset["command"] as "connect" | "disconnect"));
    byId("watch").addEventListener("click", watch);
    byId("options").addEventListener("click", () => void chrome.runtime.openOptionsPage());
    byId("auto-push").addEventListener("change", () => void save({ autoPush: byId<HTMLInputElement>("auto-push").checked }));
    byId("pointer").addEventListener("change", () => void save({ pointer: byId<HTMLInputElement>("pointer").checked }));
    chrome.runtime.onMessage.addListener((message) => {
        if ((message as Status).kind === "status") {
            showStatus(message as Status);
        }
    });
    whenChanged(showOptions);
    showOptions(await load());
    await send("status");
}

void start();
