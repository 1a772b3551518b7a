/** The error of all refused promises and ended subscriptions. */

/** The kind of an error. */
export type ErrorCode =
    /** The server refused; `status` and `message` are its words. */
    | "refused"
    /** The connection broke before the reply: the message may have arrived or not. */
    | "connection_lost"
    /** There was no reply in time: the message may have arrived or not. */
    | "timed_out"
    /** The caller's signal aborted. */
    | "aborted"
    /** The message is longer than the server takes. It was not sent, or not accepted, and never will be. */
    | "too_large"
    /** More messages wait than `pendingMax`. */
    | "too_many"
    /** The client is closed. */
    | "closed";

/** An error of a client. */
export class EnckeError extends Error {
    /** The kind of the error. */
    readonly code: ErrorCode;
    /** The number in a Bayeux error, such as 403, or the status of an HTTP response. */
    readonly status: number | undefined;

    constructor(code: ErrorCode, message: string, status?: number) {
        super(message);
        this.name = "EnckeError";
        this.code = code;
        this.status = status;
    }

    /** True if the same request may succeed later. */
    get isTransient(): boolean {
        const { code, status = 0 } = this;
        return code === "refused" ? status === 402 || status === 429 || status >= 500 : ["connection_lost", "timed_out", "too_many"].includes(code);
    }
}

/** An error as it crosses from one tab to another. */
export interface PlainError {
    code: ErrorCode;
    message: string;
    status?: number;
}

export function plain(code: ErrorCode, message: string, status?: number): PlainError {
    return { code, message, status };
}

/** The connection broke. */
export function broken(message: string, status?: number): PlainError {
    return plain("connection_lost", message, status);
}

/** The error that a Bayeux reply reports: `403:args:text`. */
export function refusal(error: unknown): PlainError {
    const message = String(error || "no reason given");
    const status = Number(/^\d{3}(?=:)/.exec(message)?.[0]) || undefined;
    return plain("refused", message, status);
}

export function revive({ code, message, status }: PlainError): EnckeError {
    return new EnckeError(code, message, status);
}
