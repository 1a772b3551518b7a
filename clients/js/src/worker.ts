/** The SharedWorker that has one connection for all tabs; see `sharedWorker` of `encke/shared`. */

import { Connection } from "./connection.js";
import { optionsOf } from "./index.js";
import type { Command } from "./protocol.js";
import { Hub } from "./shared.js";
import type { Opening } from "./shared.js";

const hubs = new Map<string, Hub>();

(globalThis as { onconnect?: (event: MessageEvent) => void }).onconnect = ({ ports: [port] }) => {
    let command: ((command: Command) => void) | undefined;
    port!.onmessage = ({ data }) => {
        if (command === undefined) {
            command = join(data as Opening, port!);
        } else {
            command(data as Command);
        }
    };
};

function join({ id, url, options, hasToken }: Opening, port: MessagePort): (command: Command) => void {
    let hub = hubs.get(url);
    if (hub === undefined) {
        const created = new Hub((emit) => new Connection({ ...optionsOf(url, options), hasToken }, emit), () => {
            hubs.delete(url);
            created.close();
        });
        hub = created;
        hubs.set(url, hub);
    }
    const joined = hub;
    joined.join(id, (event) => port.postMessage(event));
    // The tab holds this lock as long as it lives.
    void navigator.locks?.request(`encke:tab:${id}`, () => joined.leave(id));
    return (command) => joined.command(id, command);
}
