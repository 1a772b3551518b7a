// Draws the charts with uPlot: drag to zoom, double-click or double-tap to reset, point at a line or tap it to read its values.
const COLORS = ["--s0", "--s1", "--s2", "--s3", "--s4", "--s5"];
const DASHES = [[], [8, 5], [2, 5], [10, 4, 2, 4], [14, 5], [4, 4]];
const UNITS = {
    micros: [[1e6, "s"], [1e3, "ms"], [1, "µs"]],
    bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
    seconds: [[3600, "h"], [60, "min"], [1, "s"]],
    count: [[1, ""]],
};

const STEPS = {
    bytes: Array.from({ length: 60 }, (_, n) => 2 ** n),
    seconds: [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 36000, 72000],
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The figure `value` of an axis with its unit, to so many digits. On an axis of nines, `value` is the number of nines. */
function text(axis, value, digits = 3) {
    if (axis.scale === "nines") return `${+(100 * (1 - 10 ** -value)).toPrecision(Math.max(3, Math.ceil(value) + 2))} %`;
    const sizes = UNITS[axis.unit];
    const [size, unit] = sizes.find(([size]) => Math.abs(value) >= size) ?? sizes.at(-1);
    return `${(+(value / size).toPrecision(digits)).toLocaleString("en")} ${unit}`.trim();
}

/** A scale of uPlot for an axis: log scales fit their values, others begin at zero. */
function scale(axis) {
    const log = axis.scale === "log";
    const range = (_, min, max) => {
        if (min == null) return [log ? 1 : 0, 10];
        return log ? [min / 1.3, max * 1.3] : [Math.min(0, min), max > Math.min(0, min) ? max * 1.04 : 1];
    };
    return { time: false, distr: log ? 3 : 1, range };
}

/** Powers of ten within a log scale; with fewer than three of them also their double and fivefold. */
function decades(_u, _axis, min, max) {
    const all = (factors) => {
        const powers = Array.from({ length: 61 }, (_, n) => n - 30).filter((n) => 10 ** (n + 1) > min && 10 ** n <= max);
        return powers.flatMap((n) => factors.map((factor) => factor * 10 ** n)).filter((at) => at >= min && at <= max);
    };
    const coarse = all([1]);
    return coarse.length > 2 ? coarse : all([1, 2, 5]);
}

function axis(axis, side) {
    const label = axis.label + (axis.scale === "log" ? " (log scale)" : "");
    const line = { stroke: css("--line"), width: 1 };
    const options = { side, label, labelSize: 22, stroke: css("--soft"), font: "12px sans-serif", labelFont: "12px sans-serif" };
    const values = (_, splits) => splits.map((value) => (value == null ? "" : text(axis, value)));
    if (axis.scale === "nines") options.incrs = [1, 2, 5];
    else if (axis.scale === "log") Object.assign(options, { splits: decades, filter: (_, splits) => splits });
    else if (STEPS[axis.unit]) options.incrs = STEPS[axis.unit];
    return { ...options, grid: line, ticks: line, values, space: side === 2 ? 64 : 32, size: side === 2 ? 34 : 68 };
}

/** Draws a line in the order of its points, which may turn back, with marks where there are few. */
function paths(spec, colors) {
    return (u, index) => {
        uPlot.orient(u, index, (_series, _xs, _ys, scaleX, scaleY, toX, toY, left, top, width, height) => {
            const { points } = spec.series[index - 1];
            const ctx = u.ctx;
            const pixel = devicePixelRatio;
            const toPixel = (point) => [toX(point[0], scaleX, width, left), toY(point[1], scaleY, height, top)];
            ctx.save();
            ctx.beginPath();
            ctx.rect(left, top, width, height);
            ctx.clip();
            ctx.strokeStyle = ctx.fillStyle = colors[(index - 1) % colors.length];
            ctx.lineWidth = 2 * pixel;
            ctx.lineJoin = ctx.lineCap = "round";
            ctx.setLineDash(DASHES[(index - 1) % DASHES.length].map((length) => length * pixel));
            ctx.beginPath();
            points.forEach((point, n) => point && (points[n - 1] ? ctx.lineTo(...toPixel(point)) : ctx.moveTo(...toPixel(point))));
            ctx.stroke();
            ctx.setLineDash([]);
            for (const point of points.length > 24 ? [] : points.filter(Boolean)) {
                ctx.beginPath();
                ctx.arc(...toPixel(point), 4 * pixel, 0, 2 * Math.PI);
                ctx.fillStyle = point[3] ? css("--panel") : ctx.strokeStyle;
                ctx.fill();
                ctx.stroke();
            }
            ctx.restore();
        });
        return null;
    };
}

/** The point of a visible line nearest to the cursor, with its line. */
function nearest(u, spec) {
    let best = null;
    spec.series.forEach((line, n) => {
        if (!u.series[n + 1].show) return;
        for (const point of line.points.filter(Boolean)) {
            const [x, y] = [u.valToPos(point[0], "x"), u.valToPos(point[1], "y")];
            const distance = Math.hypot(x - u.cursor.left, y - u.cursor.top);
            if (distance < (best?.distance ?? 60)) best = { distance, line, point, x, y };
        }
    });
    return best;
}

/** Lets a finger that moves across a chart zoom as a mouse does, since uPlot knows only the mouse. Vertical moves scroll the page. */
function zoomByTouch(over) {
    let from = null;
    let isDrag = false;
    const mouse = (type, { clientX, clientY }) => {
        const event = new MouseEvent(type, { bubbles: true, view: window, clientX, clientY });
        // uPlot ignores a mouse that has not moved.
        Object.defineProperty(event, "movementX", { value: 1 });
        over.dispatchEvent(event);
    };
    const events = {
        pointerdown: (event) => { [from, isDrag] = [event, false]; },
        pointermove: (event) => {
            if (!isDrag) mouse("mousedown", from);
            isDrag = true;
            mouse("mousemove", event);
        },
        pointerup: (event) => isDrag && mouse("mouseup", event),
        // The browser scrolls the page: an empty selection zooms nothing.
        pointercancel: () => isDrag && (mouse("mousemove", from), mouse("mouseup", from)),
    };
    for (const [name, handle] of Object.entries(events)) {
        over.addEventListener(name, (event) => event.pointerType === "touch" && handle(event));
    }
}

function draw(box, spec) {
    const colors = COLORS.map(css);
    const tip = box.appendChild(document.createElement("div"));
    tip.className = "tip";
    const hide = () => { tip.style.display = "none"; };
    hide();
    const point = (u) => {
        const found = u.cursor.left >= 0 ? nearest(u, spec) : null;
        if (!found) return hide();
        const [x, y, name] = found.point;
        const figures = [[spec.x, x], [spec.y, y]].map(([axis, value]) => `${axis.label}: ${text(axis, value, 4)}`);
        // A trial's name may begin with that of its line.
        const line = name?.startsWith(found.line.name) ? "" : found.line.name;
        tip.textContent = [line, name, ...figures].filter(Boolean).join("\n");
        tip.style.display = "";
        const left = u.over.offsetLeft + found.x + 10;
        tip.style.left = `${Math.max(0, Math.min(left, box.clientWidth - tip.offsetWidth))}px`;
        tip.style.top = `${u.over.offsetTop + found.y + 12}px`;
    };
    const size = () => ({ width: box.clientWidth, height: box.clientWidth < 420 ? 250 : 300 });
    const data = [null, ...spec.series.map(({ points }) => [0, 1].map((n) => points.filter(Boolean).map((point) => point[n])))];
    const facets = [{ scale: "x", auto: true }, { scale: "y", auto: true }];
    const line = ({ name }, n) => ({ label: name, stroke: colors[n % colors.length], width: 2, facets, paths: paths(spec, colors) });
    const u = new uPlot({
        mode: 2,
        ...size(),
        scales: { x: scale(spec.x), y: scale(spec.y) },
        axes: [axis(spec.x, 2), axis(spec.y, 3)],
        series: [{}, ...spec.series.map(line)],
        legend: { show: spec.series.length > 1, live: false, markers: { fill: (_, n) => colors[(n - 1) % colors.length] } },
        cursor: { dataIdx: () => null, points: { show: false }, drag: { x: true, y: true, uni: 16 } },
        hooks: { setCursor: [point], setScale: [hide] },
    }, data, box);
    u.over.addEventListener("dblclick", () => u.setData(data, true));
    zoomByTouch(u.over);
    const observer = new ResizeObserver(() => box.clientWidth !== u.width && u.setSize(size()));
    observer.observe(box);
    return () => {
        observer.disconnect();
        u.destroy();
        tip.remove();
    };
}

const plots = [...document.querySelectorAll(".plot")].map((box) => [box, JSON.parse(box.firstElementChild.textContent)]);
let clear = plots.map(([box, spec]) => draw(box, spec));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    clear.forEach((end) => end());
    clear = plots.map(([box, spec]) => draw(box, spec));
});
