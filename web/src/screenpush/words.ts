/** Numbers and refusals in words. */

import type { Outcome } from "./pusher";

export function sizeInWords(bytes: number): string {
    if (bytes < 1_000) {
        return `${bytes} bytes`;
    }
    return bytes < 1_000_000 ? `${(bytes / 1_000).toFixed(bytes < 10_000 ? 1 : 0)} kB` : `${(bytes / 1_000_000).toFixed(2)} MB`;
}

/** A sentence about a push that did not reach the viewers, and what to do; "" if it did. */
export function problemOf(outcome: Outcome, channel: string): string {
    switch (outcome.kind) {
        case "too-large": {
            const limit = outcome.limit > 0 ? ` The server takes ${sizeInWords(outcome.limit)} (message_bytes_max).` : " That is more than the server takes.";
            return `Not pushed: the picture needs ${sizeInWords(outcome.bytes)}.${limit} Choose JPEG or WebP, a lower quality or a smaller width, or raise the server’s message_bytes_max.`;
        }
        case "refused":
            return `Not pushed: ${refusalInWords(outcome.error, channel)}`;
        case "away":
            return "Not pushed: waiting for the connection. The next picture follows by itself.";
        default:
            return "";
    }
}

/** A Bayeux error (`code:arguments:text`) and what to do. */
export function refusalInWords(error: string, channel: string): string {
    const [code = "", , ...text] = error.split(":");
    const words = text.join(":").replaceAll("_", " ") || error;
    switch (code) {
        case "403":
            return `the server does not allow the channel ${channel} (${words}). Choose another channel.`;
        case "405":
            return `the server does not take the name ${channel} (${words}). Choose another channel.`;
        case "429":
            return `the server does not take so many pictures a second (${words}). Raise the push delay.`;
        case "507":
            return "the server could not store the picture. Viewers who are here have got it.";
        default:
            return `the server says: ${words}.`;
    }
}

/** A sentence about a server that has never answered, and what to do. `page` is the origin of the page that asks. */
export function unreachableInWords(server: string, page: string): string {
    const setting = page === "null" ? 'allowed_origins = ["*"], which pages from a disk need' : `allowed_origins = ["${page}"]`;
    const isOwn = server.startsWith(`${page}/`);
    return `No Bayeux server answers at ${server}${isOwn ? "" : `, or it lets no page of another origin in (its setting: ${setting})`}. Check the address; it is tried again until it answers.`;
}

/** A sentence about a connection that is lost. */
export const LOST = "The connection to the server is lost. It is tried again until the server is back.";
