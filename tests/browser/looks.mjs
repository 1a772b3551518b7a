// The checks of every page, in both themes and both sizes: axe-core finds nothing serious, nothing has to be scrolled sideways.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { DESKTOP, PHONE, screenshot } from "./harness.mjs";

const AXE = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/**
 * Checks an open page as it stands now, and leaves four pictures of it, called `name` with theme and size. `ignored` names rules of
 * axe-core that the page breaks on purpose.
 */
export async function looksRight(page, name, { ignored = [] } = {}) {
    const before = page.viewportSize();
    // By the debugger's protocol, which the page's policy does not refuse.
    if (await page.evaluate(() => globalThis.axe === undefined)) {
        await page.evaluate(AXE);
    }
    for (const colorScheme of ["light", "dark"]) {
        for (const [size, viewport] of [["desktop", DESKTOP], ["phone", PHONE]]) {
            const look = `${name}-${colorScheme}-${size}`;
            await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
            await page.setViewportSize(viewport);
            await page.evaluate(settled);
            await screenshot(page, look);
            assert.deepEqual(await serious(page, ignored), [], `${look}: axe-core`);
            assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${look} is wider than its window`);
        }
    }
    await page.emulateMedia({ colorScheme: null, reducedMotion: null });
    await page.setViewportSize(before);
}

/** Runs in the page: two frames, so that styles and scripts that follow the size have run; then the end of the animations that end. */
async function settled() {
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const ending = document.getAnimations().filter(({ effect }) => Number.isFinite(effect.getComputedTiming().endTime));
    await Promise.allSettled(ending.map(({ finished }) => finished));
}

/** The serious and critical findings of axe-core: rule, and the elements that break it. */
async function serious(page, ignored) {
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return violations
        .filter(({ id, impact }) => ["serious", "critical"].includes(impact) && !ignored.includes(id))
        .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
}
