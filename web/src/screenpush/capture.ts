/** A tab, window or screen that the visitor has chosen, as frames. */

import type { Frame } from "./pusher";

/** The events of a capture. */
export interface CaptureEvents {
    /** Somebody has stopped it: the visitor, the browser's own bar, or the system. */
    ended(): void;
    /** No frames come for now: the screen is locked, or the window is minimised. False: they come again. */
    still(isStill: boolean): void;
}

/** Reads the frames of a track in Chromium, also while the page is hidden. */
interface TrackProcessor {
    readable: ReadableStream<VideoFrame>;
}
declare const MediaStreamTrackProcessor: (new (init: { track: MediaStreamTrack; maxBufferSize?: number }) => TrackProcessor) | undefined;

/** True if the browser can capture a screen at all: browsers of phones cannot, and no page without https can but on this machine. */
export function canCapture(): boolean {
    return typeof navigator.mediaDevices?.getDisplayMedia === "function";
}

/** A capture under way. */
export class Capture {
    readonly stream: MediaStream;
    readonly #track: MediaStreamTrack;
    readonly #video: HTMLVideoElement;
    #latest: VideoFrame | undefined;
    #isOver = false;

    private constructor(stream: MediaStream, track: MediaStreamTrack, video: HTMLVideoElement, events: CaptureEvents) {
        this.stream = stream;
        this.#track = track;
        this.#video = video;
        track.addEventListener("ended", () => {
            this.#end();
            events.ended();
        });
        track.addEventListener("mute", () => events.still(true));
        track.addEventListener("unmute", () => events.still(false));
        if (typeof MediaStreamTrackProcessor !== "undefined") {
            void this.#read(new MediaStreamTrackProcessor({ track, maxBufferSize: 1 }).readable.getReader());
        }
    }

    /** Asks the visitor what to share. Throws a DOMException if nothing was chosen. `video` shows it. */
    static async start(video: HTMLVideoElement, pointer: boolean, events: CaptureEvents): Promise<Capture> {
        const constraints = { cursor: pointer ? "always" : "never", frameRate: { max: FRAMES_PER_SECOND_MAX } };
        const stream = await navigator.mediaDevices.getDisplayMedia({ video: constraints as MediaTrackConstraints, audio: false });
        const [track] = stream.getVideoTracks();
        if (track === undefined) {
            throw new DOMException("the browser shares no picture", "NotFoundError");
        }
        video.srcObject = stream;
        // It plays when the first frame is there.
        video.play().catch(() => undefined);
        return new Capture(stream, track, video, events);
    }

    /** The picture on the screen now; undefined before the first frame. */
    frame(): Frame | undefined {
        if (this.#latest !== undefined) {
            return { image: this.#latest, width: this.#latest.displayWidth, height: this.#latest.displayHeight };
        }
        const { videoWidth: width, videoHeight: height } = this.#video;
        return width > 0 && this.#video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA ? { image: this.#video, width, height } : undefined;
    }

    /** Shows the pointer on the next frames, or hides it, where the browser can change that. */
    showPointer(pointer: boolean): void {
        void this.#track.applyConstraints({ cursor: pointer ? "always" : "never" } as MediaTrackConstraints).catch(() => undefined);
    }

    stop(): void {
        this.#track.stop();
        this.#end();
    }

    #end(): void {
        this.#isOver = true;
        this.#latest?.close();
        this.#latest = undefined;
        this.#video.srcObject = null;
    }

    /** Keeps the latest frame alone. */
    async #read(frames: ReadableStreamDefaultReader<VideoFrame>): Promise<void> {
        for (;;) {
            const { done, value } = await frames.read();
            if (done || this.#isOver) {
                value?.close();
                return;
            }
            this.#latest?.close();
            this.#latest = value;
        }
    }
}

const FRAMES_PER_SECOND_MAX = 30;
