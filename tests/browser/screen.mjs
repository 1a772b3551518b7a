// Screenpush as its users meet it: a publisher that shares a painted screen, and a viewer whose pixels can be read.

import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { eventually } from "./harness.mjs";

/** A publisher's page. Its "screen" is a canvas that the test paints. */
export class Publisher {
    page;

    static async open(browser, server, { name = "", query = "", channel, ...options } = {}) {
        const publisher = new Publisher();
        publisher.page = await browser.open(`${server.url}/demo/screenpush?${query}`, { before: fakeScreen, ...options });
        await publisher.page.getByLabel("Your name").fill(name);
        if (channel !== undefined) {
            await publisher.page.getByLabel("Channel").fill(channel);
        }
        return publisher;
    }

    async share() {
        await this.page.getByRole("button", { name: "Share a screen" }).click();
        await this.page.locator("#link[data-state=connected]").waitFor();
    }

    /** Paints the whole screen, or a rectangle of it. */
    async paint(colour, rectangle = undefined) {
        await this.page.evaluate(([colour, rectangle]) => globalThis.paint(colour, rectangle), [colour, rectangle]);
    }

    async noise() {
        await this.page.evaluate(() => globalThis.noise());
    }

    async choose(label, value) {
        await this.page.getByLabel(label).selectOption(value);
    }

    problem() {
        return this.page.locator("#problem").innerText();
    }
}

/** A viewer's page. */
export class Watcher {
    page;

    static async open(browser, url, options = {}) {
        const watcher = new Watcher();
        watcher.page = await browser.open(url, options);
        await watcher.page.locator("#link[data-state=connected]").waitFor();
        return watcher;
    }

    /** Waits until the pixel has about this colour: JPEG changes it a little, and so does a video. */
    async sees(x, y, [red, green, blue]) {
        const isNear = ([r, g, b]) => Math.abs(r - red) + Math.abs(g - green) + Math.abs(b - blue) < 64;
        await eventually(async () => {
            const pixel = await this.pixel(x, y);
            return pixel !== undefined && isNear(pixel) ? "right" : `(${x}, ${y}) is ${pixel}, not ${[red, green, blue]}`;
        }, "right");
    }

    pixel(x, y) {
        return this.page.evaluate(([x, y]) => {
            const canvas = document.querySelector("#stage canvas");
            if (canvas === null || canvas.width === 0) {
                return undefined;
            }
            // Read from a copy: a canvas of the page that is read again and again complains.
            const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, x, y, 1, 1, 0, 0, 1, 1);
            return [...copy.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        }, [x, y]);
    }

    publishers() {
        return this.page.locator("#publishers button").allInnerTexts();
    }
}

/** A program without a page: returns a function that publishes data on the demo's channel. */
export async function programOf(server, channel = "/demo/screenpush/demo") {
    let cookie = "";
    const post = async (message) => {
        const reply = await fetch(`${server.url}/cometd`, { method: "POST", headers: { cookie, "content-type": "application/json" }, body: JSON.stringify([message]) });
        cookie = reply.headers.get("set-cookie")?.split(";")[0] ?? cookie;
        return (await reply.json())[0];
    };
    const { clientId } = await post({ channel: "/meta/handshake", version: "1.0", supportedConnectionTypes: ["long-polling"] });
    await post({ channel: "/meta/connect", clientId, connectionType: "long-polling", advice: { timeout: 0 } });
    return async (data, on = channel) => {
        const { successful, error } = await post({ channel: on, clientId, data });
        assert.equal(successful, true, error);
    };
}

/** A way to the server that lets so many bytes a second through, towards the browser. */
export class SlowLine {
    url;

    static async open(test, server, bytesPerSecond) {
        const line = new SlowLine();
        const sockets = new Set();
        const listener = createServer((near) => {
            const far = connect(server.port, "127.0.0.1");
            sockets.add(near).add(far);
            near.pipe(far);
            far.on("data", (bytes) => {
                far.pause();
                near.write(bytes);
                setTimeout(() => far.resume(), (bytes.length / bytesPerSecond) * 1_000);
            });
            for (const [one, other] of [[near, far], [far, near]]) {
                one.on("error", () => other.destroy());
                one.on("close", () => other.destroy());
            }
        });
        await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
        test.after(() => {
            listener.close();
            sockets.forEach((socket) => socket.destroy());
        });
        line.url = `http://127.0.0.1:${listener.address().port}`;
        return line;
    }
}

/** A PNG of one red pixel. */
export const RED_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/** The first bytes of a PNG of 30,000 × 30,000 pixels. */
export function hugePng() {
    const bytes = Buffer.from(RED_PNG, "base64");
    bytes.writeUInt32BE(30_000, 16);
    bytes.writeUInt32BE(30_000, 20);
    return bytes.toString("base64");
}

/** Runs in a page: a PNG of about 100 kB that no compression makes smaller. */
export async function noisePng() {
    const canvas = new OffscreenCanvas(180, 180);
    const context = canvas.getContext("2d");
    const picture = context.createImageData(180, 180);
    for (let at = 0; at < picture.data.length; at += 16_384) {
        crypto.getRandomValues(picture.data.subarray(at, at + 16_384));
    }
    for (let at = 3; at < picture.data.length; at += 4) {
        picture.data[at] = 255;
    }
    context.putImageData(picture, 0, 0);
    const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

export const RED = [255, 0, 0];
export const GREEN = [0, 255, 0];
export const BLUE = [0, 0, 255];
export const colour = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

/** Runs in the page before its own script: a screen of 1280 × 800 that the test paints. */
function fakeScreen() {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [1280, 800];
    const context = canvas.getContext("2d");
    globalThis.paint = (colour, [x, y, width, height] = [0, 0, 1280, 800]) => {
        context.fillStyle = colour;
        context.fillRect(x, y, width, height);
        globalThis.track?.requestFrame();
    };
    globalThis.noise = () => {
        const picture = context.createImageData(1280, 800);
        for (let at = 0; at < picture.data.length; at += 16_384) {
            crypto.getRandomValues(picture.data.subarray(at, at + 16_384));
        }
        for (let at = 3; at < picture.data.length; at += 4) {
            picture.data[at] = 255;
        }
        context.putImageData(picture, 0, 0);
        globalThis.track?.requestFrame();
    };
    globalThis.paint("rgb(255 0 0)");
    if (navigator.mediaDevices !== undefined) {
        navigator.mediaDevices.getDisplayMedia = async () => {
            const stream = canvas.captureStream(0);
            globalThis.track = stream.getVideoTracks()[0];
            // A frame is captured when something is painted.
            const { data } = context.getImageData(0, 0, 1, 1);
            globalThis.paint(`rgb(${data[0]} ${data[1]} ${data[2]})`, [0, 0, 1, 1]);
            return stream;
        };
    }
}
