// A proxy for one client, whose network breaks again and again.

import {connect, createServer} from "node:net";

/**
 * Forwards everything until its time is up. Then all connections of its client break, and for a while it accepts no new
 * ones. Each time is chosen at random between 0.5 and 1.5 times the configured one.
 *
 * A third of the breaks is a reset at any time. A third happens in the middle of a message of the server. A third leaves the
 * server with connections that take everything and have nobody at their end, until shortly before or after the client is back.
 */
export class BreakingProxy {
    #target;
    #times;
    #server = createServer(socket => this.#pass(socket));
    #pairs = new Set();
    #timers = new Set();
    #offline = false;
    /** The number of broken connections. */
    cuts = 0;

    constructor(target, times) {
        this.#target = target;
        this.#times = times;
    }

    async start() {
        await new Promise(resolve => this.#server.listen(0, "127.0.0.1", resolve));
        return this.#server.address().port;
    }

    /** Begins to break connections. */
    begin() {
        this.#later(Math.random() * this.#times.cutEveryMs, () => this.#cut());
    }

    /** Breaks nothing any more. */
    end() {
        this.#timers.forEach(clearTimeout);
        this.#timers.clear();
        this.#offline = false;
    }

    stop() {
        this.end();
        this.#pairs.forEach(pair => pair.destroy());
        this.#server.close();
    }

    #cut() {
        this.#later(around(this.#times.cutEveryMs), () => this.#cut());
        const kind = ["reset", "halfway", "dead"][Math.floor(Math.random() * 3)];
        this.cuts += this.#pairs.size > 0 ? 1 : 0;
        this.#offline = true;
        const offlineMs = around(this.#times.offlineMs);
        this.#later(offlineMs, () => this.#offline = false);
        this.#pairs.forEach(pair => pair.cut(kind, around(this.#times.offlineMs)));
    }

    #pass(client) {
        if (this.#offline) {
            client.resetAndDestroy();
            return;
        }
        const pair = new Pair(client, connect(this.#target, "127.0.0.1"), () => this.#pairs.delete(pair));
        this.#pairs.add(pair);
    }

    #later(ms, act) {
        const timer = setTimeout(() => {
            this.#timers.delete(timer);
            act();
        }, ms);
        this.#timers.add(timer);
    }
}

/** A client's connection, and the one to the server. */
class Pair {
    #client;
    #server;
    #state = "passes";

    constructor(client, server, gone) {
        [this.#client, this.#server] = [client, server];
        client.on("data", bytes => this.#state === "passes" && server.write(bytes));
        server.on("data", bytes => this.#answer(bytes));
        for (const socket of [client, server]) {
            socket.on("error", () => undefined);
        }
        client.on("close", () => {
            gone();
            if (this.#state !== "dead") {
                server.destroy();
            }
        });
        server.on("close", () => client.destroy());
    }

    cut(kind, deadMs) {
        this.#state = kind;
        if (kind === "halfway") {
            // If nothing comes, it is a reset in a moment.
            setTimeout(() => this.#reset(), 100);
        } else if (kind === "dead") {
            this.#client.resetAndDestroy();
            setTimeout(() => this.#server.resetAndDestroy(), deadMs);
        } else {
            this.#reset();
        }
    }

    destroy() {
        this.#client.destroy();
        this.#server.destroy();
    }

    #answer(bytes) {
        if (this.#state === "passes") {
            this.#client.write(bytes);
        } else if (this.#state === "halfway") {
            this.#state = "reset";
            this.#client.end(bytes.subarray(0, Math.ceil(bytes.length / 2)), () => this.#reset());
        }
    }

    #reset() {
        this.#state = "reset";
        this.#client.resetAndDestroy();
        this.#server.resetAndDestroy();
    }
}

function around(meanMs) {
    return meanMs / 2 + Math.random() * meanMs;
}
