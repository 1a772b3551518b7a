/**
 * The comet of the start page. It rests on its orbit until a message arrives, then goes round once the way a comet does:
 * slow far out, fast past the sun, its tail away from the sun and longest near it.
 */

import { byId } from "./dom";

/** Sends the comet round once. A revolution asked for while it moves is added, up to `MAX_REVOLUTIONS`. */
export function goRound(): void {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
        return;
    }
    const moving = revolutions > 0;
    revolutions = Math.min(revolutions + 1, MAX_REVOLUTIONS);
    if (!moving) {
        requestAnimationFrame((start) => step(start, start));
    }
}

let revolutions = 0;

function step(start: number, now: number): void {
    const done = Math.max(0, now - start) / REVOLUTION_MS;
    if (done >= revolutions) {
        revolutions = 0;
        draw(REST);
        return;
    }
    draw(REST + 2 * Math.PI * done);
    requestAnimationFrame((next) => step(start, next));
}

/** Draws the comet at a mean anomaly (the share of the period passed since the sun was nearest, in radians). */
function draw(meanAnomaly: number): void {
    const anomaly = eccentricAnomaly(meanAnomaly);
    const x = CENTRE.x + SEMI_MAJOR * Math.cos(anomaly);
    const y = CENTRE.y + SEMI_MINOR * Math.sin(anomaly);
    const awayFromSun = (Math.atan2(y - SUN.y, x - SUN.x) * 180) / Math.PI;
    const distance = 1 - ECCENTRICITY * Math.cos(anomaly);
    byId("comet").setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${awayFromSun.toFixed(1)})`);
    byId("comet-tail").setAttribute("transform", `scale(${(0.55 + 0.6 / (0.35 + distance)).toFixed(3)} 1)`);
}

/** Solves Kepler's equation M = E − e·sin E by Newton's method; six steps are exact to a pixel at this eccentricity. */
function eccentricAnomaly(meanAnomaly: number): number {
    let anomaly = meanAnomaly + ECCENTRICITY * Math.sin(meanAnomaly);
    for (let i = 0; i < 6; i++) {
        anomaly -= (anomaly - ECCENTRICITY * Math.sin(anomaly) - meanAnomaly) / (1 - ECCENTRICITY * Math.cos(anomaly));
    }
    return anomaly;
}

// The ellipse as the page draws it (index.html), with the sun in its focus. The comet Encke's eccentricity is 0.85.
const CENTRE = { x: 318, y: 200 };
const SUN = { x: 536, y: 200 };
const SEMI_MAJOR = 258;
const SEMI_MINOR = 138;
const ECCENTRICITY = (SUN.x - CENTRE.x) / SEMI_MAJOR;

/** The mean anomaly at which the comet rests: on its way in, its tail behind it. */
const REST = 2 * Math.PI * 0.805;
const REVOLUTION_MS = 2_600;
const MAX_REVOLUTIONS = 3;
