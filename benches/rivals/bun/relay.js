// Shows the changes that the server makes to data: `bun relay.js URL DATA` prints the data as a member of a room receives it.
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
