// Runs every code block of every document, in its language. See the table LANGUAGES.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const REPOSITORY = join(HERE, "../..");
const { ENCKE_BIN: ENCKE, PYTHON, CLASSPATH } = process.env;
/** The longest time of a block. */
const BLOCK_MS_MAX = 180_000;
/** The messages that are published until a program must have printed one. */
const MESSAGES_MAX = 300;

/** What is done with a block of each language; `page` is the Page. */
const LANGUAGES = {
    sh: (page, text) => page.shell(text),
    // The lines after `$` are commands, the others are their output.
    console: (page, text) => page.shell(text.split("\n").filter((line) => line.startsWith("$ ")).map((line) => line.slice(2)).join("\n")),
    toml: (page, text) => page.configuration(text),
    json: (_, text) => JSON.parse(text),
    yaml: (page, text) => page.run([PYTHON, "-c", "import sys, yaml; yaml.safe_load(sys.stdin)"], { input: text }),
    js: (page, text) => page.javascript(text, "js"),
    ts: (page, text) => page.javascript(text, "ts"),
    python: (page, text) => page.python(text),
    go: (page, text) => page.go(text),
    java: (page, text) => page.java(text),
    rust: (page) => page.hasDocumentationTests(),
    "rust,no_run": (page) => page.hasDocumentationTests(),
    // Pictures, protocols, output: nothing that runs.
    text: () => {},
    http: () => {},
    "": () => {},
};

/** Pages whose tests are elsewhere. */
const TESTED_ELSEWHERE = {
    "docs/command-line.md": "crates/encke-cli/tests/program/command_line.rs",
    "docs/chat-as-a-webhook.md": "crates/encke-webhooks/tests/examples.rs",
};

/** What the commands of a page find in their folder, beside what its blocks before have made. */
const BEFORE = {
    "docs/operations.md": `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=push.example.com \
        -keyout push.example.com.key -out push.example.com.pem 2>/dev/null`,
    "docs/screenpush.md": "printf picture >picture.png",
    "docs/files.md": "mkdir -p srv/www/assets && touch srv/www/assets/app.js && echo '{}' >srv/preload.json",
    "docs/production.md": "mkdir -p etc/systemd/system var/lib/encke usr/local/bin target/release && cp \"$ENCKE\" target/release/encke; TOKEN=of-a-block-before",
};

/** Files that a configuration names and that only its reader has, and MongoDB, which only some programs have; `config check` misses them, and nothing else. */
const ABSENT_FILE = /(\/etc|\/run|\/srv|\/var|\/usr)\/|No such file|built without MongoDB/;

class Page {
    constructor(name, folder) {
        Object.assign(this, { name, folder });
        for (const path of ["examples", "deploy", "docs/clients"]) {
            cpSync(join(REPOSITORY, path), join(folder, path), { recursive: true });
        }
        cpSync(join(REPOSITORY, "docs/clients"), folder, { recursive: true });
        const modules = join(folder, "node_modules");
        mkdirSync(modules);
        for (const name of readdirSync(join(HERE, "node_modules"))) {
            symlinkSync(join(HERE, "node_modules", name), join(modules, name));
        }
        symlinkSync(join(REPOSITORY, "clients/js"), join(modules, "encke"));
        writeFileSync(join(folder, "package.json"), '{"type":"module"}');
    }

    /** Runs a program in the folder; fails unless it ends with 0. */
    run([program, ...args], { input = "", env = {} } = {}) {
        const child = spawn(program, args, { cwd: this.folder, env: { ...process.env, ...env }, timeout: BLOCK_MS_MAX, killSignal: "SIGKILL" });
        let printed = "";
        child.stdout.on("data", (bytes) => (printed += bytes));
        child.stderr.on("data", (bytes) => (printed += bytes));
        child.stdin.on("error", () => {});
        child.stdin.end(input);
        return new Promise((resolve, reject) => {
            child.on("error", reject);
            child.on("close", (code, signal) => (code === 0 ? resolve(printed) : reject(new Error(`${signal ?? `exit code ${code}`}: ${printed}`))));
        });
    }

    /** Runs commands in a sandbox, beside a server if they start none. */
    shell(text) {
        // Paths of a real system are below the folder here.
        const commands = text
            .replaceAll(/(?<![\w/.}])\/(etc\/encke|etc\/systemd\/system|var\/lib\/encke|usr\/local\/bin|srv)/g, `${this.folder}/$1`)
            .replaceAll("target/serve/encke ", "encke ")
            // Other tests run these.
            .replaceAll(/^scripts\/\S+/gm, '[ -x "$REPOSITORY/$&" ] #');
        const startsOne = /\bencke (serve|demo)\b|make serve/.test(commands);
        const needsOne = /\bencke (publish|subscribe|request|history|presence|sessions)|\bcurl\b|pidof/.test(commands.replaceAll(/^.*example.com.*$/gm, ""));
        const begin = needsOne && !startsOne ? "begin_server serve" : "";
        const script = [". \"$REPOSITORY/tests/documents/commands.sh\"", BEFORE[this.name] ?? "", begin, commands, "finish"].join("\n");
        writeFileSync(join(this.folder, "block.sh"), script);
        return this.sandboxed(["bash", "block.sh"]);
    }

    sandboxed(command) {
        const env = { REPOSITORY, ENCKE, HOME: this.folder, XDG_CONFIG_HOME: this.folder };
        return this.run(["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", ...command], { env });
    }

    /** Runs a program beside a server until it prints a message of `/stock/GOOG`. */
    program(command) {
        const script = `. "$REPOSITORY/tests/documents/commands.sh"
            begin_server serve --set 'channels=[{pattern="/stock/**",history_messages=100}]'
            ${command} >printed 2>errors &
            for _ in {1..${MESSAGES_MAX}}; do
                "$ENCKE" publish /stock/GOOG 190
                sleep 0.2
                ! grep -q 190 printed || { kill $! 2>/dev/null || true; finish; exit; }
                kill -0 $! 2>/dev/null || fail "the program has ended: $(cat printed errors)"
            done
            fail "the program printed no message: $(cat printed errors)"`;
        writeFileSync(join(this.folder, "block.sh"), script);
        return this.sandboxed(["bash", "block.sh"]);
    }

    /** A configuration must be good, but for files that only its reader has. */
    async configuration(text) {
        writeFileSync(join(this.folder, "encke.toml"), text);
        try {
            await this.run([ENCKE, "config", "check", "encke.toml"]);
        } catch ({ message }) {
            const mistakes = message.split("\n").filter((line) => /^\S+:\d+|^encke.toml/.test(line) && !ABSENT_FILE.test(line));
            assert.deepEqual(mistakes, [], message);
        }
    }

    /** Runs a whole program, and checks the syntax of a part of one. */
    async javascript(text, loader) {
        await transform(text.replaceAll("…", "{}"), { loader, format: "esm" });
        const isWhole = loader === "js" && /^import .* from '(cometd|encke)'|^import .* from "encke"/m.test(text) && text.includes("127.0.0.1:8080");
        if (text.includes("SignJWT")) {
            await this.token(text, "js", "node make_token.mjs", (block) => `${block}\nprocess.stdout.write(token);\n`);
        } else if (isWhole) {
            // CometD's client is made for pages.
            const adapter = "import { adapt } from 'cometd-nodejs-client';\nadapt();\n";
            writeFileSync(join(this.folder, "adapter.mjs"), adapter);
            writeFileSync(join(this.folder, "program.mjs"), text);
            await this.program("node --experimental-websocket --no-warnings --import ./adapter.mjs program.mjs");
        }
    }

    async python(text) {
        if (text.includes("jwt.encode")) {
            return this.token(text, "py", `${PYTHON} make_token.py`, (block) => `${block}\nprint(token, end="")\n`);
        }
        writeFileSync(join(this.folder, "program.py"), text);
        await this.program(`${PYTHON} program.py`);
    }

    async java(text) {
        const [, name] = /public class (\w+)/.exec(text);
        writeFileSync(join(this.folder, `${name}.java`), text);
        await this.run(["javac", "-cp", `${CLASSPATH}:.`, `${name}.java`]);
        await this.program(`java -cp "$CLASSPATH:." ${name}`);
    }

    async go(text) {
        if (text.startsWith("package main")) {
            writeFileSync(join(this.folder, "program.go"), text);
            await this.run(["go", "build", "-o", "program", "program.go"]);
            return this.program("./program");
        }
        assert.ok(text.includes("jwt.NewWithClaims"), "a block in Go needs a program around it");
        for (const name of ["go.mod", "go.sum"]) {
            cpSync(join(HERE, "go", name), join(this.folder, name));
        }
        const program = (block) => `package main

import (
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

func main() {
${block}
	if err != nil {
		panic(err)
	}
	fmt.Print(token)
}
`;
        return this.token(text, "go", "go run make_token.go", program);
    }

    /** Makes a token as a block does, and lets the program check it. */
    async token(text, kind, command, program) {
        writeFileSync(join(this.folder, `make_token.${kind === "js" ? "mjs" : kind}`), program(text));
        const script = `set -euo pipefail
            [ -e token.private.pem ] || "$ENCKE" token keys EdDSA
            "$ENCKE" token check --public-key token.public.pem --audience push.example "$(${command})"`;
        await this.run(["bash", "-c", script], { env: { ENCKE } });
    }

    /** Blocks in Rust are compiled by `cargo test --doc`, if a crate includes the page. */
    hasDocumentationTests() {
        const crates = readdirSync(join(REPOSITORY, "crates")).map((name) => join(REPOSITORY, "crates", name, "src/lib.rs"));
        const includes = (path) => {
            const included = [...readFileSync(path, "utf8").matchAll(/doc = include_str!\("(.*?)"\)/g)];
            return included.some(([, file]) => relative(REPOSITORY, join(dirname(path), file)) === this.name);
        };
        assert.ok(crates.filter(existsSync).some(includes), `no crate includes ${this.name} in its documentation tests`);
    }
}

/** The code blocks of a page, each with its first line and language. */
function blocksOf(text) {
    const blocks = [];
    let open;
    text.split("\n").forEach((line, index) => {
        const fence = /^( *)```(\S*)/.exec(line);
        if (open === undefined && fence) {
            open = { line: index + 1, language: fence[2], indent: fence[1].length, text: "" };
        } else if (fence) {
            blocks.push(open);
            open = undefined;
        } else if (open) {
            open.text += `${line.slice(open.indent)}\n`;
        }
    });
    assert.equal(open, undefined, "a block does not end");
    return blocks;
}

const folderOf = (path) => readdirSync(join(REPOSITORY, path)).filter((name) => name.endsWith(".md")).map((name) => join(path, name));
const readmes = readdirSync(join(REPOSITORY, "crates")).map((name) => `crates/${name}/README.md`);
const pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "clients/js/README.md", ...folderOf("docs"), ...folderOf("docs/contributing"), ...readmes].filter((name) => existsSync(join(REPOSITORY, name)));

for (const name of pages.filter((name) => !(name in TESTED_ELSEWHERE))) {
    const blocks = blocksOf(readFileSync(join(REPOSITORY, name), "utf8")).filter(({ text }) => text !== "");
    if (blocks.length === 0) {
        continue;
    }
    test(name, async (t) => {
        const folder = mkdtempSync(join(tmpdir(), "encke-documents-"));
        t.after(() => rmSync(folder, { recursive: true, force: true }));
        const page = new Page(name, folder);
        for (const { line, language, text } of blocks) {
            await t.test(`${name}:${line} ${language}`, async () => {
                const run = LANGUAGES[language];
                assert.ok(run, `no test knows the language ${language}`);
                await run(page, text);
            });
        }
    });
}
