/** The chart of 2008: one thread for all connections beside a thread for each, as `encke bench flood` measured them. */

import uPlot from "uplot";
import flood from "../../../../docs/benchmarks/flood.json";
import { byId, element } from "../../dom";

/** Draws both charts, and again when the theme or the width changes. */
export function drawCharts(): void {
    const { async, threads, settings, machine } = flood;
    const opened = (connected: number[]) => connected.map((count, index) => count - (connected[index - 1] ?? 0));
    const mebibytes = (bytes: number[]) => bytes.map((count) => count / 2 ** 20);
    const charts: [string, string, number[][]][] = [
        ["opened", "opened in a second", [async.at_s, opened(async.connected), opened(threads.connected)]],
        ["memory", "MiB", [async.at_s, mebibytes(async.memory_bytes), mebibytes(threads.memory_bytes)]],
    ];
    let plots: uPlot[] = [];
    const draw = () => {
        plots.forEach((plot) => plot.destroy());
        plots = charts.map(([id, unit, data]) => plot(byId(id), unit, data));
    };
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let width = innerWidth;
    addEventListener("resize", () => {
        if (innerWidth !== width) {
            width = innerWidth;
            draw();
        }
    });
    byId("measured").textContent = `${async.connections.toLocaleString("en")} streams, ${settings.rate} opened a second, a chunk every ${settings["chunk-every"]}; ${machine.cores} cores of an ${machine.processor}, ${flood.measured}. Other programs used up to ${Math.max(async.other_cores, threads.other_cores).toFixed(1)} cores meanwhile.`;
    const ms = (us: number) => `${(us / 1_000).toFixed(1)} ms`;
    const row = (name: string, run: typeof async) => {
        const line = element("tr", "");
        const head = element("th", "", name);
        head.setAttribute("scope", "row");
        const cells = [ms(run.welcome_p50_us), ms(run.welcome_p99_us), `${(run.memory_peak_bytes / 2 ** 20).toFixed(0)} MiB`, `${run.server_cores}`];
        line.append(head, ...cells.map((text) => element("td", "number", text)));
        return line;
    };
    byId("runs").append(row("one thread for all", async), row("a thread for each", threads));
}

function plot(parent: HTMLElement, unit: string, data: number[][]): uPlot {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: `12px ${colour("--sans")}` };
    const line = (label: string, stroke: string, dash: number[]) => ({ label, stroke: colour(stroke), width: 2, dash, points: { show: false }, value: (_: uPlot, value: number | null) => (value === null ? "–" : value.toFixed(value < 100 ? 1 : 0)) });
    return new uPlot({
        width: parent.clientWidth,
        height: 240,
        scales: { x: { time: false }, y: { range: (_, __, max) => [0, max * 1.05] } },
        axes: [{ ...axis, values: (_, values) => values.map((value) => `${value} s`) }, { ...axis, size: 52 }],
        series: [{ label: "at", value: (_, value) => (value === null ? "–" : `${value} s`) }, line(`one thread, ${unit}`, "--accent", []), line(`threads, ${unit}`, "--warn", [6, 4])],
        cursor: { drag: { x: false, y: false } },
    }, data as uPlot.AlignedData, parent);
}
