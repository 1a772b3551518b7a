// Runs one scenario in an environment (Node or a page) and cleans up after it.

import {disconnect, newClient} from "./client.js";
import {scenarios} from "./scenarios.js";

/** The number of wire texts that a failure report shows, the last ones, and the characters of each. */
const WIRE_LINES = 14;
const WIRE_CHARACTERS = 300;

/**
 * Runs the scenario `name`. The environment has transport, peerTransport, url, set,
 * newTransport(type), control(…) and rawTexts(). Rejects with the wire exchange when it fails.
 */
export async function runScenario(name, environment) {
    const clients = [];
    const make = (type, options) => {
        const client = newClient(environment.url, type, environment.newTransport(type), options);
        clients.push(client);
        return client;
    };
    const world = {
        ...environment,
        client: options => make(environment.transport, options),
        peer: options => make(environment.peerTransport, options)
    };
    try {
        await scenarios[name](world);
    } catch (error) {
        throw new Error(error.message + clients.map(wireOf).join(""), {cause: error});
    } finally {
        await Promise.all(clients.filter(client => !client.isDisconnected()).map(client => disconnect(client).catch(() => undefined)));
    }
}

function wireOf(client, index) {
    const lines = client.wire.slice(-WIRE_LINES).map(text => text.slice(0, WIRE_CHARACTERS));
    return `\n  client ${index + 1}:\n    ${lines.join("\n    ")}`;
}
