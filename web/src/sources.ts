/** The sources of the server: programs that publish by themselves. A page asks if the one that it shows is on. */

import type { Client } from "encke";
import { element } from "./dom";
import { notice } from "./notices";

/** A source, as `/service/demo/sources` lists it. */
export interface Source {
    name: string;
    kind: string;
    channel: string;
}

/** Asks for the sources of a kind: `undefined` if the server does not say. */
export async function askSources(client: Client, kind: string): Promise<Source[] | undefined> {
    const answer = await client.call<{ sources?: unknown } | undefined>("/service/demo/sources", {}, { timeoutMs: ANSWER_MS }).catch(() => undefined);
    const list = answer?.sources;
    return Array.isArray(list) ? list.filter(isSource).filter((source) => source.kind === kind) : undefined;
}

/** Says how to switch a source on: with `encke demo`, or with these lines in the configuration file. */
export function offNotice(subject: string, lines: string): void {
    const file = element("pre", "lines", lines);
    file.tabIndex = 0;
    notice("off", `${subject} Start the server with `, element("code", "", "encke demo"), ", or add these lines to ", element("code", "", "encke.toml"),
        " and send the server SIGHUP; this page notices it by itself.", file);
}

function isSource(source: unknown): source is Source {
    const { name, kind, channel } = (source ?? {}) as Partial<Source>;
    return typeof name === "string" && typeof kind === "string" && typeof channel === "string";
}

const ANSWER_MS = 5_000;
