// The replay extension for CometD's JavaScript client. It has no dependencies: copy it.

/**
 * Resumes subscriptions after the last received message, also if the server has forgotten the session or the page was reloaded.
 *
 *     const positions = JSON.parse(localStorage.getItem("positions") ?? '{"/stock/GOOG": -2}');
 *     cometd.registerExtension("replay", new ReplayExtension(positions, (channel, lost) => reload(channel)));
 */
export class ReplayExtension {
    /**
     * The position of each channel. A channel or pattern that is not here begins with new messages. The page may store this object
     * and pass it to its next extension.
     */
    positions;
    /** The positions that the last subscribe requested. */
    #requested = {};
    #lost;

    /**
     * `positions` are the positions at which channels and patterns begin: -1 with new messages, -2 with all that the server retains,
     * n after message n, or a position of an earlier extension, {id, epoch}. The extension calls `lost(channel, range)` when
     * messages are gone: {from, to}, or null if the server cannot know which.
     */
    constructor(positions = {}, lost = () => undefined) {
        this.positions = positions;
        this.#lost = lost;
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            message.ext = {...message.ext, replay: {positions: "ext"}};
        } else if (message.channel === "/meta/subscribe") {
            this.#requested = {...this.positions};
            message.ext = {...message.ext, replay: this.#requested};
        }
        return message;
    }

    incoming(message) {
        const replay = message.ext?.replay;
        if (message.channel === "/meta/subscribe") {
            Object.entries(replay ?? {}).forEach(([channel, answer]) => this.#answered(channel, answer));
        } else if (message.channel === "/meta/connect") {
            // The position of the session while no message waits for it.
            Object.entries(replay ?? {}).forEach(([channel, position]) => this.#received(channel, position));
        } else if (replay?.id !== undefined) {
            this.#received(message.channel, replay);
        }
        return message;
    }

    /** A subscription was granted; `recovered` is true if it begins at the requested position. */
    #answered(channel, {recovered, epoch, from, lost}) {
        if (epoch === null) {
            // The channel has no history any more. If it gets one again, all of its messages are new.
            this.positions[channel] = -2;
        } else if (!this.#isAhead(channel, from, epoch, recovered)) {
            this.positions[channel] = {id: from - 1, epoch};
        }
        if (!recovered) {
            this.#lost(channel, lost);
        }
    }

    /**
     * Returns true if the known position is at or behind the start in the answer: over long-polling, messages may arrive before the
     * answer. A position that no message has changed since the request counts only if the server has recovered it.
     */
    #isAhead(channel, from, epoch, recovered) {
        const known = this.positions[channel];
        const hasChanged = known !== this.#requested[channel];
        return known?.epoch === epoch && known.id >= from - 1 && (hasChanged || recovered);
    }

    #received(channel, {id, epoch, lost}) {
        const known = this.positions[channel];
        const isNews = known?.epoch !== epoch || known.id < (lost?.to ?? Infinity);
        if (lost && isNews) {
            this.#lost(channel, lost.to === null ? null : lost);
        }
        this.positions[channel] = id === null ? -2 : {id, epoch};
    }
}
