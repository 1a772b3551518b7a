/** The menu of demos in each page's header. It opens without a script; with one, Escape and a click elsewhere close it. */

for (const menu of document.querySelectorAll<HTMLDetailsElement>(".menu")) {
    addEventListener("click", ({ target }) => {
        if (target instanceof Node && !menu.contains(target)) {
            menu.open = false;
        }
    });
    menu.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && menu.open) {
            menu.open = false;
            menu.querySelector("summary")?.focus();
        }
    });
}
