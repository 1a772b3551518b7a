// Bun's native publish and subscribe, speaking the floor's dialect: lines sent to /pub go to every socket on /sub.
const TOPIC = "a";
const WAITING_BYTES_MAX = 1024 * 1024; // as the floor: about two seconds of its highest rate

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch(request, server) {
    const publisher = new URL(request.url).pathname === "/pub";
    if (server.upgrade(request, { data: { publisher } })) return undefined;
    return new Response("WebSocket only", { status: 400 });
  },
  websocket: {
    perMessageDeflate: false,
    sendPings: false,
    idleTimeout: 0,
    backpressureLimit: WAITING_BYTES_MAX,
    closeOnBackpressureLimit: true,
    open(socket) {
      if (!socket.data.publisher) socket.subscribe(TOPIC);
    },
    message(_socket, text) {
      for (const line of text.split("\n")) server.publish(TOPIC, line);
    },
  },
});

console.log(`listening on 127.0.0.1:${server.port}`);
