// Makes docs/benchmarks/flood.json, the data of the chart on the page /demo/stream, from two reports of `encke bench flood`:
//
//   node web/flood.mjs async.json threads.json > docs/benchmarks/flood.json
//
// docs/bench.md has the commands that measure them.

import { readFile } from "node:fs/promises";

const [async, threads] = await Promise.all(process.argv.slice(2).map(async (path) => JSON.parse(await readFile(path, "utf8"))));
const lines = [
    `"measured": ${JSON.stringify(new Date(async.began_unix_ms).toISOString().slice(0, 10))}`,
    `"machine": ${JSON.stringify(async.machine)}`,
    `"settings": ${JSON.stringify(Object.fromEntries(async.settings.map(({ name, value }) => [name, value])))}`,
    `"async": ${JSON.stringify(summary(async))}`,
    `"threads": ${JSON.stringify(summary(threads))}`,
];
console.log(`{\n${lines.map((line) => `  ${line}`).join(",\n")}\n}`);

/** The figures of a run, and its values second by second. */
function summary({ trials: [trial], holds }) {
    const { latency, samples, server } = trial;
    return {
        connections: trial.clients,
        holds,
        welcome_p50_us: latency.p50_us,
        welcome_p99_us: latency.p99_us,
        memory_peak_bytes: server.rss_peak_bytes,
        server_cores: round(server.cores),
        other_cores: round(trial.others_cores),
        at_s: samples.map(({ at_ms }) => Math.round(at_ms / 1_000)),
        connected: samples.map(({ connected }) => connected),
        memory_bytes: samples.map(({ server_rss_bytes }) => server_rss_bytes),
    };
}

function round(number) {
    return Math.round(number * 1_000) / 1_000;
}
