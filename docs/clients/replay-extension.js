// The replay extension for CometD's JavaScript client. It has no dependencies: copy it.

/**
 * Resumes subscriptions after the last received message, also if the server has forgotten the session or the page was reloaded.
 *
 *     const positions = JSON.parse(localStorage.getItem("positions") ?? '{"/stock/*": -2}');
 *     const replay = new ReplayExtension(positions, (channel, lost) => reload(channel));
 *     cometd.registerExtension("replay", replay);
 *     cometd.addListener("/meta/handshake", ({successful}) => successful && replay.subscribe(cometd, "/stock/*", show));
 */
export class ReplayExtension {
    /**
     * The position of each channel, the one that changed last at the end. A channel or pattern that is not here begins with new
     * messages. The page may store this object and pass it to its next extension.
     */
    positions;
    /** The positions that subscribes have requested, by channel. */
    #requested = new Map();
    /** By name the positions that its next subscribes request. */
    #parts = new Map();
    /** The number of positions of channels. */
    #stored;
    #lost;
    #charsMax;

    /**
     * `positions` are the positions at which channels and patterns begin: -1 with new messages, -2 with all that the server retains,
     * n after message n, {last: n} with the latest n messages, or a position of an earlier extension, {id, epoch}. The extension calls
     * `lost(channel, range)` when messages are gone: {from, to}, or null if the server cannot know which. `messageCharsMax`: the
     * client's `maxSendBayeuxMessageSize`.
     */
    constructor(positions = {}, lost = () => undefined, messageCharsMax = 8192) {
        this.positions = positions;
        this.#stored = Object.keys(positions).length;
        this.#lost = lost;
        this.#charsMax = messageCharsMax;
    }

    /**
     * Subscribes as `cometd.subscribe` does, and returns the subscription. For a pattern with many positions it sends several
     * messages, each as long as the client may send.
     */
    subscribe(cometd, channel, callback, subscribed) {
        const parts = this.#partsOf(channel);
        this.#parts.set(channel, [...parts]);
        let subscription = cometd.subscribe(channel, callback, subscribed);
        for (let sent = 1; sent < parts.length; sent++) {
            subscription = cometd.resubscribe(subscription);
        }
        return subscription;
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            message.ext = {...message.ext, replay: {positions: "ext"}};
        } else if (message.channel === "/meta/subscribe") {
            const requested = this.#nextPart(message.subscription);
            Object.entries(requested).forEach(([channel, position]) => this.#requested.set(channel, position));
            message.ext = {...message.ext, replay: requested};
        } else if (message.channel === "/meta/unsubscribe") {
            this.#coveredBy(message.subscription).forEach(([channel]) => delete this.positions[channel]);
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
        } else if (replay?.id !== undefined && message.data !== undefined) {
            // The reply to a publication has its position, too, and may come before the message.
            const known = this.positions[message.channel];
            if (known?.epoch === replay.epoch && replay.id <= known.id) {
                // The page has it.
                return null;
            }
            this.#received(message.channel, replay);
        }
        return message;
    }

    #nextPart(name) {
        const parts = this.#parts.get(name);
        const part = parts?.shift() ?? this.#partsOf(name)[0];
        const begin = this.positions[name] ?? -1;
        const hasMore = parts?.length > 0 && begin !== -1;
        if (!parts?.length) {
            this.#parts.delete(name);
        }
        return {...part, [name]: hasMore ? {more: true} : begin};
    }

    /** The positions of the channels of a pattern, as many together as one message takes. */
    #partsOf(name) {
        const parts = [{}];
        const charsMax = Math.max(this.#charsMax - 3 * name.length - OTHER_CHARS, 1);
        let chars = 0;
        let count = 0;
        for (const [channel, position] of isPattern(name) ? this.#coveredBy(name) : []) {
            const length = JSON.stringify({[channel]: position}).length;
            if (count > 0 && chars + length > charsMax || count >= PART_POSITIONS) {
                parts.push({});
                chars = count = 0;
            }
            parts.at(-1)[channel] = position;
            chars += length;
            count += 1;
        }
        return parts;
    }

    #coveredBy(name) {
        return Object.entries(this.positions).filter(([channel]) => !isPattern(channel) && covers(name, channel));
    }

    /** A subscription was granted; `recovered` is true if it begins at the requested position. */
    #answered(channel, {recovered, epoch, from, lost}) {
        if (epoch === null) {
            // The channel has no history any more. If it gets one again, all of its messages are new.
            this.#moveTo(channel, -2);
        } else if (!this.#isAhead(channel, from, epoch, recovered)) {
            this.#moveTo(channel, {id: from - 1, epoch});
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
        const hasChanged = known !== this.#requested.get(channel);
        return known?.epoch === epoch && known.id >= from - 1 && (hasChanged || recovered);
    }

    #received(channel, {id, epoch, lost}) {
        const known = this.positions[channel];
        const isNews = known?.epoch !== epoch || known.id < (lost?.to ?? Infinity);
        if (lost && isNews) {
            this.#lost(channel, lost.to === null ? null : lost);
        }
        this.#moveTo(channel, id === null ? -2 : {id, epoch});
    }

    /** If there are too many, the channels that have been silent for the longest time lose their positions. */
    #moveTo(channel, position) {
        this.#stored += channel in this.positions ? 0 : 1;
        delete this.positions[channel];
        this.positions[channel] = position;
        if (this.#stored > POSITIONS_MAX) {
            const channels = Object.keys(this.positions).filter(name => !isPattern(name));
            const removed = channels.slice(0, Math.max(channels.length - POSITIONS_MAX * 0.9, 0));
            removed.forEach(name => delete this.positions[name]);
            this.#stored = channels.length - removed.length;
        }
    }
}

function isPattern(name) {
    return name.endsWith("/*") || name.endsWith("/**");
}

/** Returns true if a subscription to `name` gets the messages of `channel`. */
function covers(name, channel) {
    const parent = name.replace(/\*+$/, "");
    return name === channel ||
        isPattern(name) && channel.startsWith(parent) && (name.endsWith("**") || !channel.slice(parent.length).includes("/"));
}

/** The characters of a subscribe beside its positions and its channel. */
const OTHER_CHARS = 400;
/** The most positions of one subscribe. The server takes 1,000. */
const PART_POSITIONS = 900;
/** The most positions that the extension stores. The server begins with 4,000 channels in one request at most. */
const POSITIONS_MAX = 3_700;
