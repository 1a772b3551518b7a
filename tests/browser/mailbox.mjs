// A POP3 server with one mailbox (RFC 1939), as far as the source `mail` uses it.

import { once } from "node:events";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

export class Mailbox {
    #server;
    /** The headers of all mails, oldest first. */
    #mails = [];
    /** The sessions that have ended, each a look at all mails. */
    looks = 0;

    static async start(test) {
        const mailbox = new Mailbox();
        mailbox.#server = createServer((socket) => mailbox.#serve(socket)).listen(0, "127.0.0.1");
        await once(mailbox.#server, "listening");
        test.after(() => mailbox.#server.close());
        return mailbox;
    }

    /** The lines of the configuration file for a source that looks often. */
    source(name) {
        const { port } = this.#server.address();
        return `[[source]]\nkind = "mail"\nname = "${name}"\nprotocol = "pop3"\nhost = "127.0.0.1"\nport = ${port}\ntls = "none"\nuser = "ann"\npassword = "secret"\npoll_ms = 100\n`;
    }

    put(from, subject) {
        this.#mails.push([`From: ${from}`, `Subject: ${subject}`, "Date: Sun, 22 Nov 2026 15:04:05 +0100", `Message-ID: <${this.#mails.length}@example.org>`]);
    }

    #serve(socket) {
        socket.on("error", () => {});
        const send = (...lines) => socket.write(lines.map((line) => `${line}\r\n`).join(""));
        send("+OK ready");
        createInterface({ input: socket }).on("error", () => {}).on("line", (line) => {
            const [command, argument] = line.trim().split(/\s+/);
            const mail = this.#mails[Number(argument) - 1];
            switch (command.toUpperCase()) {
                case "UIDL":
                    return send("+OK", ...this.#mails.map((_, index) => `${index + 1} uid-${index}`), ".");
                case "LIST":
                    return send("+OK", ...this.#mails.map((_, index) => `${index + 1} 500`), ".");
                case "TOP":
                    return mail === undefined ? send("-ERR no such mail") : send("+OK", ...mail, "", ".");
                case "STAT":
                    return send(`+OK ${this.#mails.length} 500`);
                case "CAPA":
                    return send("+OK", "USER", "UIDL", "TOP", ".");
                case "QUIT":
                    this.looks += 1;
                    send("+OK");
                    return socket.end();
                default:
                    return send("+OK");
            }
        });
    }
}
