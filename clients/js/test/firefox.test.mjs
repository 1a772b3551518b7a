// The client in Firefox: each transport, and 3,000 channels over a reload.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Firefox } from "../../../tests/browser/firefox.mjs";
import { Server, client } from "./harness.mjs";
import { counted, follow, goOnOverReloads, untilCount } from "./pages/follow.mjs";
import { pages } from "./pages/folder.mjs";

const config = await pages();

test("pages in Firefox", { skip: !Firefox.isThere() && "there is no Firefox" }, async (t) => {
    const firefox = await Firefox.start(t);

    for (const transport of ["websocket", "eventsource", "long-polling"]) {
        await t.test(`follow channels by ${transport}`, async (t) => {
            const server = await Server.start(t, config());
            const page = await firefox.open(`${server.url}/blank.html`);
            assert.equal(await page.evaluate(follow("/stock/*", { transports: [transport] })), transport);
            const writer = client(t, server.url);
            for (let n = 1; n <= 20; n++) {
                await writer.publish("/stock/a", { n });
            }
            await untilCount(page, 20);
            (await counted(page)).check(["/stock/a"], 20);
            await page.close();
        });
    }

    await t.test("go on over reloads", async (t) => {
        const server = await Server.start(t, config());
        await goOnOverReloads(t, server, await firefox.open(`${server.url}/blank.html`), 2);
    });
});
