/** The replay extension that docs/clients.md offers to pages. Our pages use that very file. */

export { ReplayExtension } from "../../docs/clients/replay-extension.js";

/** The position of each channel: -1 begins with new messages, -2 with all that the server retains. */
export type Positions = Record<string, number | { id: number; epoch: string }>;
