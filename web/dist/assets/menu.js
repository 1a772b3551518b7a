/*! Encke's pages; chat, slides and Screenpush with the cometd client (cometd.org); all Apache-2.0 */
for(let e of document.querySelectorAll(".menu"))addEventListener("click",({target:n})=>{n instanceof Node&&!e.contains(n)&&(e.open=!1)}),e.addEventListener("keydown",n=>{n.key==="Escape"&&e.open&&(e.open=!1,e.querySelector("summary")?.focus())});
