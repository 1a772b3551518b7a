// A proxy that drops the server's bytes before it cuts the connection, as broken networks do.

import {connect, createServer} from "node:net";

export class Proxy {
    #target;
    #server = createServer(socket => this.#pass(socket));
    #sockets = new Set();
    /** Resolves when something is lost; undefined while everything arrives. */
    #lost;

    constructor(target) {
        this.#target = target;
    }

    async start() {
        await new Promise(resolve => this.#server.listen(0, "127.0.0.1", resolve));
        this.port = this.#server.address().port;
    }

    /** From now on nothing of the server arrives; resolves when something did not. */
    swallow() {
        return new Promise(resolve => this.#lost = resolve);
    }

    /** All connections break; new ones work. */
    cut() {
        this.#lost = undefined;
        this.#sockets.forEach(socket => socket.destroy());
    }

    stop() {
        this.cut();
        this.#server.close();
    }

    #pass(client) {
        const server = connect(this.#target, "127.0.0.1");
        client.on("data", bytes => server.write(bytes));
        server.on("data", bytes => this.#lost ? this.#lost() : client.write(bytes));
        for (const [socket, other] of [[client, server], [server, client]]) {
            this.#sockets.add(socket);
            socket.on("error", () => {});
            socket.on("close", () => {
                this.#sockets.delete(socket);
                other.destroy();
            });
        }
    }
}
