/** A page with the hooks of examples/react.ts. */

import { createRoot } from "react-dom/client";
import { connect } from "encke";
import { useConnection, useLatest, useMessages } from "../../examples/react";

const client = connect("/cometd");

function Prices() {
    const { name } = useConnection(client);
    const latest = useLatest<{ price: number }>(client, "/stock/*");
    const messages = useMessages<{ price: number }>(client, "/stock/a", 3);
    return (
        <>
            <p>{name}</p>
            <p>{latest && `${latest.channel}: ${latest.data.price}`}</p>
            <p>{messages.map(({ data }) => data.price).join(" ")}</p>
        </>
    );
}

createRoot(document.getElementById("root")!).render(<Prices />);
