/** A page with the stores of examples/svelte.ts, without Svelte: a component subscribes as this does. */

import { connect } from "encke";
import { connection, latest } from "../../examples/svelte";

const client = connect("/cometd");
const root = document.getElementById("root")!;
const [state, price] = [root.appendChild(document.createElement("p")), root.appendChild(document.createElement("p"))];
connection(client).subscribe(({ name }) => (state.textContent = name));
latest<{ price: number }>(client, "/stock/*").subscribe((message) => (price.textContent = message === undefined ? "" : `${message.channel}: ${message.data.price}`));
