/** The part of pdf.js that reads the document, in a worker. */

import "pdfjs-dist/build/pdf.worker.mjs";
