/** Stores for Svelte: `$price` in a component is the latest message. Copy this file to your sources. */

import type { Client, Message, State } from "encke";

/** What Svelte takes for a store: it subscribes while a component shows it. */
export interface Store<T> {
    subscribe(run: (value: T) => void): () => void;
}

/** The state of the connection. */
export function connection(client: Client): Store<State> {
    return {
        subscribe(run) {
            run(client.state);
            return client.on("state", run);
        },
    };
}

/** The latest message of a channel or pattern; `undefined` before the first. */
export function latest<T>(client: Client, name: string): Store<Message<T> | undefined> {
    return {
        subscribe(run) {
            run(undefined);
            const subscription = client.subscribe<T>(name, run);
            return () => subscription.unsubscribe();
        },
    };
}
