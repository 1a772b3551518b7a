// Bun's native publish and subscribe, speaking the floor's dialect: "+ROOM" joins a room and is answered with the same
// line, "=ROOM DATA" sends DATA to all in the room, "?DATA" is answered with DATA.
const WAITING_BYTES_MAX = 1024 * 1024; // as the floor: about two seconds of its highest rate

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch(request, server) {
    if (server.upgrade(request)) return undefined;
    return new Response("WebSocket only", { status: 400 });
  },
  websocket: {
    perMessageDeflate: false,
    sendPings: false,
    idleTimeout: 0,
    backpressureLimit: WAITING_BYTES_MAX,
    closeOnBackpressureLimit: true,
    message(socket, text) {
      for (const line of text.split("\n")) obey(socket, line);
    },
  },
});

function obey(socket, line) {
  const kind = line[0];
  if (kind === "=") {
    const space = line.indexOf(" ");
    server.publish(line.slice(1, space), line.slice(space + 1));
  } else if (kind === "+") {
    socket.subscribe(line.slice(1));
    socket.send(line);
  } else if (kind === "?") {
    socket.send(line.slice(1));
  }
}

console.log(`listening on 127.0.0.1:${server.port}`);
