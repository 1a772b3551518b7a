// Turns the scenario list into tests for one client environment.

import {readFileSync} from "node:fs";
import {rejects} from "node:assert/strict";
import {after, describe, it} from "node:test";
import {IS_COMETD, Server} from "./server.js";

const LIST = JSON.parse(readFileSync(new URL("../scenarios.json", import.meta.url), "utf8"));

/** Scenarios of one suite that run at once; each has its own server and its own sessions. */
const CONCURRENCY = 4;

/** Upper bound for one scenario; the slowest takes about 10 s. */
const SCENARIO_MS = 180000;

/**
 * Declares one test per scenario. `run(name, server)` runs it and rejects when it fails;
 * `close()` runs after the last.
 */
export function suite(title, run, close = () => undefined) {
    describe(title, {concurrency: CONCURRENCY}, () => {
        after(close);
        for (const scenario of LIST) {
            it(scenario.name, async () => {
                const server = new Server(scenario.server);
                try {
                    await server.start();
                    const outcome = bounded(run(scenario.name, server));
                    await (IS_COMETD && scenario.cometdFails ? rejects(outcome) : outcome);
                } finally {
                    await server.dispose();
                }
            });
        }
    });
}

/** Not the test runner's timeout, which would leave the server behind. */
function bounded(outcome) {
    let timer;
    const end = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not done after ${SCENARIO_MS} ms`)), SCENARIO_MS);
    });
    return Promise.race([outcome, end]).finally(() => clearTimeout(timer));
}
