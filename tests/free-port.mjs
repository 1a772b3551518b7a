// A port for a server that a test kills and starts again. The system gives it to nobody meanwhile: it is below those for outgoing
// connections, which are also those of a program that asks for any port.

import { createServer } from "node:net";

export async function freePort() {
    for (;;) {
        const port = 20_000 + Math.floor(Math.random() * 12_000);
        const probe = createServer();
        const isFree = await new Promise((resolve) => probe.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
        if (isFree) {
            await new Promise((resolve) => probe.close(resolve));
            return port;
        }
    }
}
