/** Pages of a PDF as pictures, by pdf.js. Loaded when somebody chooses a PDF. */

import { GlobalWorkerOptions, getDocument } from "pdfjs-dist";
import type { OpenPdf } from "./deck";

GlobalWorkerOptions.workerSrc = "/assets/slides-pdf.worker.js";

/** Opens a PDF. Throws if it is none, or if it asks for a password. */
export const openPdf: OpenPdf = async (bytes) => {
    // No code of the document runs: pdf.js makes no functions of its fonts, and scripts are never read.
    const document = await getDocument({ data: bytes, isEvalSupported: false, enableXfa: false }).promise;
    return {
        pages: document.numPages,
        async draw(number, maxWidth, maxHeight) {
            const page = await document.getPage(number);
            const { width, height } = page.getViewport({ scale: 1 });
            const viewport = page.getViewport({ scale: Math.min(maxWidth / width, maxHeight / height) });
            const canvas = globalThis.document.createElement("canvas");
            [canvas.width, canvas.height] = [Math.max(1, Math.round(viewport.width)), Math.max(1, Math.round(viewport.height))];
            await page.render({ canvasContext: canvas.getContext("2d")!, viewport }).promise;
            page.cleanup();
            return canvas;
        },
    };
};
