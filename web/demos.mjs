// The demos, in the order of the menu in each page's header.

/** All demos; the menu shows those whose pages are built. */
const DEMOS = [
    { name: "chat", title: "Chat" },
    { name: "screenpush", title: "Screenpush" },
    { name: "slides", title: "Slides" },
    { name: "quotes", title: "Quotes" },
    { name: "orders", title: "Orders" },
    { name: "mail", title: "Mail" },
    { name: "stream", title: "Stream" },
    { name: "game", title: "Chess" },
    { name: "presence", title: "Presence" },
];

/**
 * The page with the menu of demos in its header, in place of `<span class="where">…</span>`, which holds the page's name. It opens
 * without a script. `names` are the files of all pages.
 */
export function withMenu(file, html, names) {
    const built = DEMOS.filter(({ name }) => names.has(`demo/${name}/index.html`));
    const items = built.map(({ name, title }) => {
        const here = file === `demo/${name}/index.html` ? ' aria-current="page"' : "";
        return `        <a href="/demo/${name}"${here}>${title}</a>`;
    });
    return html.replace(/Encke<span class="where">([^<]*)<\/span><\/a>/, (_, where) => `<span class="name">Encke</span></a>
    <details class="menu">
      <summary>${where}</summary>
      <nav aria-label="Demos">
${items.join("\n")}
      </nav>
    </details>`).replace("</head>", '  <script type="module" src="/assets/menu.js"></script>\n</head>');
}
