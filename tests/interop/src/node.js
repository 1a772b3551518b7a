// The client environment of Node: the official adapter, one cookie jar per client.

import {LongPollingTransport, WebSocketTransport} from "cometd";
import {adapt} from "cometd-nodejs-client";
import {runScenario} from "./run.js";
import {suite} from "./suite.js";

/** Declares the scenarios for one transport in Node. */
export function nodeSuite(type) {
    adapt();
    suite(`cometd in Node over ${type}`, (name, server) => runScenario(name, {
        transport: type,
        peerTransport: type,
        url: server.origin + "/cometd",
        set: server.set,
        newTransport: () => type === "websocket" ? new WebSocketTransport() : new OwnBrowserLongPolling(),
        control: (...command) => server.control(...command),
        rawTexts: async () => []
    }));
}

/**
 * Long-polling of a client that acts as a separate browser. The adapter has one cookie jar per
 * process, made by adapt(), so that all clients would share BAYEUX_BROWSER and the second would
 * be advised to poll. Here each transport has the XMLHttpRequest class, thus the jar, of a
 * separate adapt(); the client looks the class up when it sends, which is synchronous.
 */
export class OwnBrowserLongPolling extends LongPollingTransport {
    #xmlHttpRequest;

    constructor() {
        super();
        adapt();
        this.#xmlHttpRequest = globalThis.window.XMLHttpRequest;
    }

    xhrSend(packet) {
        globalThis.window.XMLHttpRequest = this.#xmlHttpRequest;
        return super.xhrSend(packet);
    }
}
