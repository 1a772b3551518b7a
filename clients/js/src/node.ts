/** The client for Node, whose `fetch` keeps no cookies: a session that was opened over HTTP belongs to the cookie that its handshake set. */

import { connect as connectAnywhere } from "./index.js";
import type { Client } from "./client.js";
import type { ClientOptions } from "./types.js";

export * from "./index.js";

/** As in a page, but for the URL, which is not optional. */
export function connect(url: string | URL, options: ClientOptions = {}): Client {
    return connectAnywhere(url, { ...options, fetch: withCookies(options.fetch ?? fetch) });
}

/** A `fetch` that sends the cookies which the server has set. */
function withCookies(request: typeof fetch): typeof fetch {
    const cookies = new Map<string, string>();
    return async (url, init) => {
        const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
        const response = await request(url, cookie === "" ? init : { ...init, headers: { ...(init?.headers as object), cookie } });
        for (const line of response.headers.getSetCookie()) {
            const [, name, value] = /^\s*([^=;]+)=([^;]*)/.exec(line) ?? [];
            if (name !== undefined && value !== undefined) {
                cookies.set(name, value);
            }
        }
        return response;
    };
}
