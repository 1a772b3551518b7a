/** Hooks for React: the state of a client, the latest message of a channel, and a list of all. Copy this file to your sources. */

import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import type { Client, Message, State, SubscribeOptions } from "encke";

/** The state of the connection. */
export function useConnection(client: Client): State {
    const subscribe = useCallback((changed: () => void) => client.on("state", changed), [client]);
    const state = () => client.state;
    return useSyncExternalStore(subscribe, state, state);
}

/** The latest message of a channel or pattern; `undefined` before the first. */
export function useLatest<T>(client: Client, name: string): Message<T> | undefined {
    const [message, setMessage] = useState<Message<T>>();
    useEffect(() => {
        setMessage(undefined);
        const subscription = client.subscribe<T>(name, setMessage);
        return () => subscription.unsubscribe();
    }, [client, name]);
    return message;
}

/** The last messages of a channel or pattern, at most `max`. They begin with those that the server retains. */
export function useMessages<T>(client: Client, name: string, max = 100): Message<T>[] {
    const [messages, setMessages] = useState<Message<T>[]>([]);
    useEffect(() => {
        setMessages([]);
        const options: SubscribeOptions = { from: "earliest" };
        const subscription = client.subscribe<T>(name, options, (message) => setMessages((before) => [...before, message].slice(-max)));
        return () => subscription.unsubscribe();
    }, [client, name, max]);
    return messages;
}
