// A backend behind Encke whose responses Encke holds, with Node's own modules alone.
//
// ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… PORT=3000 node backend.mjs

import { createServer } from "node:http";

const { ENCKE_URL = "http://127.0.0.1:8080", ENCKE_API_KEY = "", PORT = "3000" } = process.env;

/** Publishes an order on the channel /orders: this releases all responses that wait for it. */
async function publish(data) {
    const response = await fetch(`${ENCKE_URL}/api/v1/publish`, {
        method: "POST",
        headers: { authorization: `Bearer ${ENCKE_API_KEY}`, "content-type": "application/json" },
        body: JSON.stringify({ channel: "/orders", data }),
    });
    if (!response.ok) throw new Error(await response.text());
}

async function body(request) {
    let text = "";
    for await (const part of request) text += part;
    return text;
}

createServer(async (request, response) => {
    switch (`${request.method} ${request.url}`) {
        case "GET /orders/next":
            // Encke holds this response. Without an order for 20 seconds it is the one that the client gets.
            response.setHeader("Grip-Hold", "response").setHeader("Grip-Channel", "orders").setHeader("Grip-Timeout", "20");
            return response.setHeader("Content-Type", "application/json").end("null");
        case "GET /orders/stream":
            // Encke goes on with this response, a line for each order.
            response.setHeader("Grip-Hold", "stream").setHeader("Grip-Channel", "orders");
            return response.setHeader("Grip-Keep-Alive", "\\n; format=cstring; timeout=20").end("orders:\n");
        case "POST /orders":
            try {
                await publish(JSON.parse(await body(request)));
                return response.writeHead(204).end();
            } catch (error) {
                return response.writeHead(500).end(`${error.message}\n`);
            }
        default:
            return response.writeHead(404).end("there is nothing here\n");
    }
}).listen(Number(PORT), "127.0.0.1");
