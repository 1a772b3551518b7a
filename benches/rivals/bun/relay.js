// What becomes of data on its way through the server: `bun relay.js URL DATA` prints what a member of a room gets of it.
const [url, data] = Bun.argv.slice(2);
const socket = new WebSocket(url);

socket.onopen = () => socket.send("+1");
socket.onmessage = ({ data: came }) => {
  if (came === "+1") return socket.send(`=1 ${data}`);
  console.log(came);
  process.exit(0);
};
socket.onerror = ({ message }) => {
  console.error(message);
  process.exit(1);
};
