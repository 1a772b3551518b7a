// Faye's own server, at /cometd as the others, with a service that answers. Ends when its input does.
"use strict";

const http = require("node:http");

const faye = require("faye");

const BACKLOG_CONNECTIONS = 4096; // all clients connect at once
const IDLE_CONNECTION_MS = 120_000; // Node's 5 s would close connections between two publications
const POLL_S = 45; // as in Faye's documentation

const bayeux = new faye.NodeAdapter({ mount: "/cometd", timeout: POLL_S });
const { _engine: memory } = bayeux._server._engine;

/** Puts a message before one session alone, the way the engine's own `publish` does it for each subscriber. */
function deliver(clientId, message) {
  if (!memory._messages.has(clientId)) memory._messages.set(clientId, []);
  memory._messages.get(clientId).push(message);
  memory.emptyQueue(clientId);
}

bayeux.addExtension({
  incoming(message, callback) {
    if (message.channel === "/service/echo" && memory._namespace.exists(message.clientId)) {
      deliver(message.clientId, { channel: message.channel, id: message.id, data: message.data });
    }
    callback(message);
  },
});

const server = http.createServer((_request, response) => response.writeHead(404).end());
server.keepAliveTimeout = IDLE_CONNECTION_MS;
bayeux.attach(server);
server.listen({ host: "127.0.0.1", port: 0, backlog: BACKLOG_CONNECTIONS }, () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
process.stdin.on("end", () => process.exit(0)).resume();
