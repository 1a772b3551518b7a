// The bundle that runs in the browser: the same scenarios, driven by the test through the page.

import {CallbackPollingTransport, LongPollingTransport, WebSocketTransport} from "cometd";
import {runScenario} from "./run.js";

const TRANSPORTS = {
    "websocket": WebSocketTransport,
    "long-polling": LongPollingTransport,
    "callback-polling": CallbackPollingTransport
};

/** Runs a scenario; interopControl and interopRawTexts are bindings of the test. */
window.interopRun = (name, transport, set) => runScenario(name, {
    transport,
    // The windows of one browser share their cookie, and only one of them may hold a connect
    // over HTTP: the other session uses WebSocket.
    peerTransport: "websocket",
    url: window.location.origin + "/cometd",
    set,
    newTransport: type => new TRANSPORTS[type](),
    control: (...command) => window.interopControl(command),
    rawTexts: () => window.interopRawTexts()
});
