// A crosshair over lines that are too dense for marks: the figures under the pointer, read back from the drawing.
for (const svg of document.querySelectorAll("svg.chart[data-x]")) {
    const [x, y] = [svg.dataset.x, svg.dataset.y].map((text) => {
        const [kind, unit, low, high, from, to] = text.split(" ");
        return { kind, unit, low: +low, high: +high, from: +from, to: +to };
    });
    const lines = [...svg.querySelectorAll("path[data-name]")].map((path) => ({
        name: path.dataset.name,
        points: [...path.getAttribute("d").matchAll(/[ML](-?[\d.]+) (-?[\d.]+)/g)].map((step) => [+step[1], +step[2]]),
    }));
    if (!lines.length) continue;
    const cross = svg.appendChild(document.createElementNS(svg.namespaceURI, "line"));
    cross.setAttribute("class", "base");
    cross.setAttribute("y1", y.to);
    cross.setAttribute("y2", y.from);
    const tip = document.body.appendChild(document.createElement("div"));
    tip.className = "tip";
    const hide = () => { cross.style.display = tip.style.display = "none"; };
    hide();
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const at = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
        if (at < x.from - 4 || at > x.to + 4) return hide();
        const near = lines.map((line) => line.points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)));
        const place = near.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a))[0];
        cross.setAttribute("x1", place);
        cross.setAttribute("x2", place);
        const told = lines.map((line, n) => (Math.abs(near[n][0] - place) > 12 ? "" : `${line.name ? line.name + ": " : ""}${say(y, near[n][1])}`));
        tip.textContent = [say(x, place), ...told.filter(Boolean)].join("\n");
        cross.style.display = tip.style.display = "";
        const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
        tip.style.left = `${Math.max(8, left)}px`;
        tip.style.top = `${event.clientY + 18}px`;
    });
}

function say(ruler, pixel) {
    const place = ruler.low + (pixel - ruler.from) / (ruler.to - ruler.from) * (ruler.high - ruler.low);
    if (ruler.kind === "tail") return `${+(100 * (1 - 10 ** -place)).toPrecision(Math.max(3, Math.ceil(place) + 2))} %`;
    const value = ruler.kind === "log" ? 10 ** place : place;
    const sizes = {
        micros: [[1e6, "s"], [1e3, "ms"], [1, "µs"]],
        bytes: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
        seconds: [[3600, "h"], [60, "min"], [1, "s"]],
        count: [[1, ""]],
    }[ruler.unit];
    const [size, unit] = sizes.find(([size]) => Math.abs(value) >= size) ?? sizes.at(-1);
    return `${(+(value / size).toPrecision(3)).toLocaleString("en")} ${unit}`.trim();
}
