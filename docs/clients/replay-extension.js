// The replay extension for CometD's JavaScript client. It needs nothing else: copy it.

/**
 * Lets subscriptions go on where the last message stood, also after the session was forgotten and in another life of the page.
 *
 *     const places = JSON.parse(localStorage.getItem("places") ?? '{"/stock/GOOG": -2}');
 *     cometd.registerExtension("replay", new ReplayExtension(places, (channel, lost) => reload(channel)));
 */
export class ReplayExtension {
    /**
     * Where each channel stands; a channel or pattern that is not here begins with what is new. To be kept wherever the page keeps
     * things, and given to the next extension.
     */
    places;
    /** What the last subscribe has said of them. */
    #asked = {};
    #lost;

    /**
     * `places` says where channels and patterns begin: -1 with what is new, -2 with all that is kept, n after message n, or a place
     * that an extension has noted, {id, epoch}. `lost(channel, range)` hears of messages that are gone: {from, to}, or null where
     * nobody knows which.
     */
    constructor(places = {}, lost = () => undefined) {
        this.places = places;
        this.#lost = lost;
    }

    outgoing(message) {
        if (message.channel === "/meta/handshake") {
            message.ext = {...message.ext, replay: true};
        } else if (message.channel === "/meta/subscribe") {
            this.#asked = {...this.places};
            message.ext = {...message.ext, replay: this.#asked};
        }
        return message;
    }

    incoming(message) {
        const told = message.ext?.replay;
        if (message.channel === "/meta/subscribe") {
            Object.entries(told ?? {}).forEach(([channel, answer]) => this.#answered(channel, answer));
        } else if (message.channel === "/meta/connect") {
            // How far the session is while nothing happens.
            Object.entries(told ?? {}).forEach(([channel, place]) => this.#heard(channel, place));
        } else if (told?.id !== undefined) {
            this.#heard(message.channel, told);
        }
        return message;
    }

    /** A subscription was granted; `recovered` says whether it begins where it was to. */
    #answered(channel, {recovered, epoch, from, lost}) {
        if (epoch === null) {
            // It has no history any more. Should it have one again, all of it is new.
            this.places[channel] = -2;
        } else if (!this.#isAhead(channel, from, epoch, recovered)) {
            this.places[channel] = {id: from - 1, epoch};
        }
        if (!recovered) {
            this.#lost(channel, lost);
        }
    }

    /** Over long-polling messages may come before the answer. The place stays as it was asked for only if it is still there. */
    #isAhead(channel, from, epoch, recovered) {
        const known = this.places[channel];
        const isHeard = known !== this.#asked[channel];
        return known?.epoch === epoch && known.id >= from - 1 && (isHeard || recovered);
    }

    #heard(channel, {id, epoch, lost}) {
        const known = this.places[channel];
        const isNews = known?.epoch !== epoch || known.id < (lost?.to ?? Infinity);
        if (lost && isNews) {
            this.#lost(channel, lost.to === null ? null : lost);
        }
        this.places[channel] = id === null ? -2 : {id, epoch};
    }
}
