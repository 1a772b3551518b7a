//! `kind = "mail"` with servers that break, lie and flood. `scripts/mail.sh` tests it with a real one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::common::{Folder, Messages, TestServer, wait_until};
use crate::mail_server::{Answer, MailServer, Mailbox, text};

/// A source of an account.
fn account(name: &str, protocol: &str, port: u16, more: &str) -> String {
    let all = "kind = \"mail\"\nuser = \"ann\"\nhost = \"127.0.0.1\"\npoll_ms = 100\nrestart_pause_ms = 1\nrestart_pause_max_ms = 20\n";
    let more = if more.contains("tls") { more.to_string() } else { format!("tls = \"none\"\n{more}") };
    let more = if more.contains("password") { more } else { format!("password = \"secret\"\n{more}") };
    format!("[[source]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nport = {port}\n{all}{more}\n")
}

/// The subjects of the next mails.
async fn subjects(messages: &mut Messages, count: usize) -> Vec<Value> {
    let mut subjects = Vec::new();
    for _ in 0..count {
        subjects.push(messages.data().await["subject"].take());
    }
    subjects
}

fn numbered(numbers: impl IntoIterator<Item = u32>) -> Vec<Value> {
    numbers.into_iter().map(|number| json!(format!("N° {number}"))).collect()
}

type Answers = fn(&Mailbox, &str) -> String;

const PROTOCOLS: [(&str, Answers); 2] = [("pop3", Mailbox::pop3), ("imap", Mailbox::imap)];

#[tokio::test]
async fn a_new_mail_is_published_and_those_from_before_the_start_are_not() {
    for (protocol, answers) in PROTOCOLS {
        let mailbox = Mailbox::default();
        mailbox.add(1);
        let of_server = mailbox.clone();
        let mails = MailServer::start(move |_, line| text(answers(&of_server, line)));
        let (server, mut messages) = TestServer::with("/mail/home", &account("home", protocol, mails.port, "")).await;
        mailbox.is_known().await;
        mailbox.add(2);
        let expected = json!({
            "account": "home", "sender": "ann@example.org", "sender_name": "Ann", "subject": "N° 2", "date": null,
            "message_id": null,
        });
        assert_eq!(messages.data().await, expected, "{protocol}");
        mailbox.add(3);
        assert_eq!(subjects(&mut messages, 1).await, numbered([3]));
        server.wait_for("messages", "home", 2).await;
        assert_eq!((server.metric("messages", "home"), server.metric("errors", "home")), (2, 0));
    }
}

#[tokio::test]
async fn a_wrong_password_is_one_error_after_another_and_other_accounts_go_on() {
    for (protocol, answers) in PROTOCOLS {
        let mailbox = Mailbox::default();
        let of_server = mailbox.clone();
        let mails = MailServer::start(move |_, line| text(answers(&of_server, line)));
        let both =
            account("bad", protocol, mails.port, "password = \"wrong\"") + &account("good", protocol, mails.port, "");
        let (server, mut messages) = TestServer::with("/mail/*", &both).await;
        server.wait_for("restarts", "bad", 3).await;
        mailbox.is_known().await;
        mailbox.add(1);
        assert_eq!(messages.data().await["account"], json!("good"));
        assert_eq!(server.metric("messages", "bad"), 0);
    }
}

/// The connection breaks in the middle of one answer after another. No mail is lost, and none comes twice.
#[tokio::test]
async fn a_connection_that_breaks_anywhere_loses_and_doubles_no_mail() {
    for (protocol, answers) in PROTOCOLS {
        let mailbox = Mailbox::default();
        mailbox.add(1);
        let (of_server, breaks) = (mailbox.clone(), Arc::new(AtomicBool::new(false)));
        let is_breaking = breaks.clone();
        let answered = Mutex::new((0, 0));
        let mails = MailServer::start(move |connection, line| {
            let whole = answers(&of_server, line);
            let mut answered = answered.lock().expect("unpoisoned");
            if answered.0 != connection {
                *answered = (connection, 0);
            }
            answered.1 += 1;
            // Each connection lives for one answer more than the one before, and ends inside of it.
            if is_breaking.load(Ordering::Relaxed) && connection < 40 && answered.1 > connection % 13 {
                return Answer::Last(whole.as_bytes()[..whole.len() * (connection % 7) / 7].to_vec());
            }
            text(whole)
        });
        let (server, mut messages) = TestServer::with("/mail/a", &account("a", protocol, mails.port, "")).await;
        mailbox.is_known().await;
        breaks.store(true, Ordering::Relaxed);
        (2..8).for_each(|number| mailbox.add(number));
        assert_eq!(subjects(&mut messages, 6).await, numbered(2..8), "{protocol}");
        wait_until("it works again", || {
            mails.connections.load(Ordering::Relaxed) > 40 || server.metric("running", "a") == 1
        })
        .await;
        mailbox.add(8);
        assert_eq!(subjects(&mut messages, 1).await, numbered([8]), "{protocol}");
        server.wait_for("messages", "a", 7).await;
        assert_eq!(server.metric("messages", "a"), 7);
    }
}

/// The answer to a line, if it is a wrong one.
type Fault = Box<dyn Fn(&str) -> Option<Answer> + Send + Sync>;

#[tokio::test]
async fn servers_that_send_garbage_cost_an_error_and_no_memory() {
    let endless = || "x".repeat(200_000);
    let faults: Vec<(&str, Fault)> = vec![
        ("imap", Box::new(|line| line.is_empty().then(|| text("HTTP/1.1 400 Bad Request\r\n\r\n")))),
        ("imap", Box::new(move |line| line.is_empty().then(|| Answer::Last(endless().into())))),
        ("imap", Box::new(|line| line.contains("EXAMINE").then(|| text("* OK {99999999999999}\r\n")))),
        ("imap", Box::new(|line| line.contains("EXAMINE").then(|| text("* X {1}\r\n*{1}\r\n*".repeat(20))))),
        ("imap", Box::new(|line| line.contains("EXAMINE").then(|| Answer::Last(vec![0xff; 10_000])))),
        ("imap", Box::new(|line| line.contains("EXAMINE").then(|| text("* BYE not now\r\n")))),
        ("imap", Box::new(|line| line.contains("EXAMINE").then(|| text("a3 OK without numbers\r\n")))),
        ("pop3", Box::new(|line| line.is_empty().then(|| text("SSH-2.0-x\r\n")))),
        ("pop3", Box::new(|line| (line == "UIDL").then(|| text("+OK\r\nno number\r\n.\r\n")))),
        ("pop3", Box::new(|line| (line == "UIDL").then(|| text("-ERR what?\r\n")))),
        ("pop3", Box::new(|line| (line == "UIDL").then(|| text(format!("+OK\r\n1 {}\r\n.\r\n", "i".repeat(71)))))),
        ("pop3", Box::new(|line| (line == "UIDL").then(|| text("+OK\r\n".to_string() + &"1 a\r\n".repeat(12))))),
    ];
    for (number, (protocol, fault)) in faults.into_iter().enumerate() {
        let mailbox = Mailbox::default();
        let answers = if protocol == "imap" { Mailbox::imap } else { Mailbox::pop3 };
        let of_server = mailbox.clone();
        let mails = MailServer::start(move |connection, line| {
            let fault = if connection < 2 { fault(line) } else { None };
            fault.unwrap_or_else(|| text(answers(&of_server, line)))
        });
        let more = if protocol == "pop3" { "mails_max = 10" } else { "" };
        let (server, mut messages) = TestServer::with("/mail/a", &account("a", protocol, mails.port, more)).await;
        server.wait_for("restarts", "a", 2).await;
        mailbox.is_known().await;
        mailbox.add(1);
        assert_eq!(subjects(&mut messages, 1).await, numbered([1]), "fault {number}");
    }
}

#[tokio::test]
async fn a_mail_without_a_header_or_with_a_huge_one_is_published_once() {
    for (protocol, answers) in PROTOCOLS {
        let mailbox = Mailbox::default();
        let of_server = mailbox.clone();
        let huge = format!("Subject: huge\r\n{}", format!("X: {}\r\n", "x".repeat(10_000)).repeat(5_000));
        let long = format!("Subject: cut\r\n{}", format!("X: {}\r\n", "x".repeat(70_000)).repeat(2));
        let mails = MailServer::start(move |_, line| {
            let words: Vec<&str> = line.split(' ').collect();
            let mail = match words[..] {
                ["TOP", number, _] => number,
                [_, "UID", "FETCH", uid, field, ..] if field != "(UID)" => uid,
                _ => return text(answers(&of_server, line)),
            };
            let header = match mail {
                "2" => huge.as_str(),
                "3" => "",
                "4" => long.as_str(),
                _ => return text(answers(&of_server, line)),
            };
            let imap =
                format!("* 1 FETCH (UID {mail} BODY[X] {{{}}}\r\n{header})\r\n{} OK done\r\n", header.len(), words[0]);
            text(if protocol == "imap" { imap } else { format!("+OK\r\n{header}\r\n.\r\n") })
        });
        let (server, mut messages) = TestServer::with("/mail/a", &account("a", protocol, mails.port, "")).await;
        mailbox.is_known().await;
        (1..6).for_each(|number| mailbox.add(number));
        let expected = [json!("N° 1"), Value::Null, Value::Null, json!("cut"), json!("N° 5")];
        assert_eq!(subjects(&mut messages, 5).await, expected, "{protocol}");
        assert_eq!(server.metric("errors", "a"), 1, "{protocol}: the connection with the huge header");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_left() {
    for (protocol, answers) in PROTOCOLS {
        let of_server = Mailbox::default();
        let mails = MailServer::start(move |connection, line| {
            // Longer than any test takes.
            let is_silent = connection == 0 && (line == "UIDL" || line.contains("EXAMINE"));
            if is_silent { text("") } else { text(answers(&of_server, line)) }
        });
        let (server, _messages) =
            TestServer::with("/mail/a", &account("a", protocol, mails.port, "timeout_ms = 200")).await;
        server.wait_for("restarts", "a", 1).await;
        wait_until("it connects again", || mails.connections.load(Ordering::Relaxed) > 1).await;
    }
}

/// A server with IDLE reports a mail; one report comes before the client waits, as RFC 3501 §7 allows.
#[tokio::test]
async fn a_report_of_new_mail_is_not_lost_whenever_it_comes() {
    let mailbox = Mailbox::default();
    let of_server = mailbox.clone();
    let mails = MailServer::start(move |_, line| {
        let add = |number| {
            let known = of_server.numbers();
            if !known.contains(&number) {
                of_server.add(number);
            }
            !known.contains(&number)
        };
        let tag = line.split(' ').next().unwrap_or_default();
        if line.ends_with("CAPABILITY") {
            return text(format!("* CAPABILITY IMAP4rev1 IDLE\r\n{tag} OK done\r\n"));
        }
        if line == "DONE" {
            return text("a99 OK before\r\n");
        }
        if line.ends_with("IDLE") {
            // The first report comes with the answer, the second one before it.
            let report = if add(1) {
                "+ idling\r\n* 1 EXISTS\r\n"
            } else if add(2) {
                "* 2 EXISTS\r\n+ idling\r\n"
            } else {
                "+ idling\r\n"
            };
            return text(format!("{report}{tag} OK done\r\n"));
        }
        // The third one comes during another command.
        if line.contains("FETCH 2 ") && add(3) {
            return text(format!("* 3 EXISTS\r\n{}", of_server.imap(line)));
        }
        text(of_server.imap(line))
    });
    let (_server, mut messages) =
        TestServer::with("/mail/a", &account("a", "imap", mails.port, "idle_ms = 1740000")).await;
    assert_eq!(subjects(&mut messages, 3).await, numbered(1..4));
    drop(mailbox);
}

#[tokio::test]
async fn the_state_of_a_mailbox_outlives_the_server_if_there_is_a_data_directory() {
    for (protocol, answers) in PROTOCOLS {
        let folder = Folder::new();
        let mailbox = Mailbox::default();
        mailbox.add(1);
        let of_server = mailbox.clone();
        let mails = MailServer::start(move |_, line| text(answers(&of_server, line)));
        for number in 2..5 {
            let server = TestServer::start(Some(PathBuf::from(folder.path("data")))).await;
            let mut messages = server.messages("/mail/a").await;
            server.reload(&account("a", protocol, mails.port, ""));
            if number == 2 {
                mailbox.is_known().await;
                mailbox.add(2);
            }
            assert_eq!(subjects(&mut messages, 1).await, numbered([number]), "{protocol}");
            server.stop();
            // It comes while no server runs.
            mailbox.add(number + 1);
        }
    }
}

/// A certificate for 127.0.0.1, as the configuration of a server and as a file of PEM.
fn certificate(folder: &Folder) -> (Arc<ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).expect("a certificate");
    let file = folder.write("ca.pem", &made.cert.pem());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    (Arc::new(config.expect("a configuration")), file)
}

#[tokio::test]
async fn connections_are_encrypted_and_a_certificate_that_is_not_trusted_gets_no_password() {
    let folder = Folder::new();
    let (tls, ca_file) = certificate(&folder);
    for (protocol, mode, answers) in [
        ("imap", "implicit", Mailbox::imap as Answers),
        ("imap", "starttls", Mailbox::imap),
        ("pop3", "starttls", Mailbox::pop3),
    ] {
        let (mailbox, passwords) = (Mailbox::default(), Arc::new(Mutex::new(0)));
        let (of_server, counted) = (mailbox.clone(), passwords.clone());
        let is_starttls = mode == "starttls";
        let mails = MailServer::with_tls(Some(tls.clone()), move |_, line| {
            *counted.lock().expect("unpoisoned") += usize::from(line.contains("secret"));
            let starts_tls = line.ends_with("STARTTLS") || line == "STLS";
            if is_starttls && (line.is_empty() || starts_tls) {
                return Answer::Tls(answers(&of_server, line));
            }
            text(answers(&of_server, line))
        });
        let untrusted = account("a", protocol, mails.port, &format!("tls = \"{mode}\""));
        let (server, mut messages) = TestServer::with("/mail/a", &untrusted).await;
        server.wait_for("errors", "a", 2).await;
        assert_eq!(*passwords.lock().expect("unpoisoned"), 0, "{protocol} {mode}");
        let trusted = format!("tls = \"{mode}\"\nca_file = \"{ca_file}\"");
        server.reload(&account("a", protocol, mails.port, &trusted));
        mailbox.is_known().await;
        mailbox.add(1);
        assert_eq!(subjects(&mut messages, 1).await, numbered([1]), "{protocol} {mode}");
    }
}

#[tokio::test]
async fn a_server_without_starttls_gets_no_password() {
    for (protocol, answers) in PROTOCOLS {
        let (of_server, passwords) = (Mailbox::default(), Arc::new(Mutex::new(0)));
        let counted = passwords.clone();
        let mails = MailServer::start(move |connection, line| {
            *counted.lock().expect("unpoisoned") += usize::from(line.contains("secret"));
            let starts_tls = line.ends_with("STARTTLS") || line == "STLS";
            match (starts_tls, connection % 2) {
                (true, 0) if protocol == "imap" => text("a1 NO\r\n"),
                (true, 0) => text("-ERR\r\n"),
                // Whoever changes the connection on the way adds an answer that would count after the handshake.
                (true, _) if protocol == "imap" => text("a1 OK\r\na2 OK\r\n* OK\r\n"),
                (true, _) => text("+OK\r\n+OK\r\n"),
                (false, _) => text(answers(&of_server, line)),
            }
        });
        let (server, _messages) =
            TestServer::with("/mail/a", &account("a", protocol, mails.port, "tls = \"starttls\"\ntimeout_ms = 300"))
                .await;
        server.wait_for("errors", "a", 4).await;
        assert_eq!(*passwords.lock().expect("unpoisoned"), 0, "{protocol}");
    }
}
