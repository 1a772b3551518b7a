// A reporter for Node's test runner: a line for each test that failed. Tabs divide its file; its file, name and message; the message alone.
// See `twice` in scripts/lib.sh.

import { relative } from "node:path";

const MESSAGE_CHARACTERS = 300;

export default async function* failedTests(events) {
    for await (const { type, data } of events) {
        // A suite fails with its tests.
        if (type === "test:fail" && data.details.error.failureType !== "subtestsFailed") {
            const file = relative("", data.file ?? data.name);
            const message = String(data.details.error.cause?.message ?? data.details.error.message).replaceAll(/\s+/g, " ");
            const shown = message.slice(0, MESSAGE_CHARACTERS);
            yield `${file}\t${file}: ${data.name === data.file ? "" : `${data.name}: `}${shown}\t${shown}\n`;
        }
    }
}
