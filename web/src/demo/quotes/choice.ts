/** The choice of symbols: a text field with a list of the names that match, by keyboard and mouse. */

import { byId, element } from "../../dom";

/** The field of the page and its list. */
export class Choice {
    readonly #input = byId<HTMLInputElement>("search");
    readonly #list = byId("matches");
    readonly #add: (symbol: string) => void;
    readonly #isChosen: (symbol: string) => boolean;
    #names: string[] = [];
    #matches: string[] = [];
    /** The match that Enter takes; -1: the text itself. */
    #active = -1;

    constructor(add: (symbol: string) => void, isChosen: (symbol: string) => boolean) {
        this.#add = add;
        this.#isChosen = isChosen;
        this.#input.addEventListener("input", () => this.#search());
        this.#input.addEventListener("focus", () => this.#search());
        this.#input.addEventListener("blur", () => this.#close());
        this.#input.addEventListener("keydown", (event) => this.#key(event));
        byId("choose").addEventListener("submit", (event) => {
            event.preventDefault();
            this.#take(this.#matches[this.#active] ?? this.#input.value.trim());
        });
    }

    names(names: string[]): void {
        this.#names = names;
    }

    #search(): void {
        const wanted = this.#input.value.trim().toLowerCase();
        const rank = (name: string) => name.toLowerCase().indexOf(wanted);
        const matches = this.#names.filter((name) => rank(name) >= 0 && !this.#isChosen(name));
        this.#matches = wanted === "" ? matches.slice(0, MAX_MATCHES) : matches.sort((a, b) => rank(a) - rank(b)).slice(0, MAX_MATCHES);
        this.#active = -1;
        this.#show();
    }

    #show(): void {
        this.#list.replaceChildren(...this.#matches.map((name, index) => {
            const item = element("li", "match", name);
            item.id = `match-${index}`;
            item.setAttribute("role", "option");
            item.setAttribute("aria-selected", String(index === this.#active));
            // Not click: the field loses the focus before it.
            item.addEventListener("pointerdown", (event) => {
                event.preventDefault();
                this.#take(name);
            });
            return item;
        }));
        this.#list.hidden = this.#matches.length === 0;
        this.#input.setAttribute("aria-expanded", String(!this.#list.hidden));
        const active = this.#list.children[this.#active];
        active?.scrollIntoView({ block: "nearest" });
        if (active === undefined) {
            this.#input.removeAttribute("aria-activedescendant");
        } else {
            this.#input.setAttribute("aria-activedescendant", active.id);
        }
    }

    #key(event: KeyboardEvent): void {
        if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            const [step, count] = [event.key === "ArrowDown" ? 1 : -1, this.#matches.length];
            this.#active = Math.min(Math.max(this.#active + step, -1), count - 1);
            this.#show();
        } else if (event.key === "Escape") {
            this.#close();
        }
    }

    #take(symbol: string): void {
        if (symbol !== "") {
            this.#add(symbol);
            this.#input.value = "";
            this.#close();
        }
    }

    #close(): void {
        this.#matches = [];
        this.#active = -1;
        this.#show();
    }
}

const MAX_MATCHES = 50;
