/*! Encke's pages; chat, slides and Screenpush with the cometd client (cometd.org); all Apache-2.0 */
var t=new Map;onmessage=({data:{id:e,delay:s}})=>{if(s===void 0){clearTimeout(t.get(e)),t.delete(e);return}t.set(e,setTimeout(()=>{t.delete(e),postMessage(e)},s))};
