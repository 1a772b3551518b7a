//! A mail server with faults: it answers each line of a client as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::common::wait_until;

/// An answer of the server.
pub enum Answer {
    Text(String),
    /// Closes the connection after these bytes.
    Last(Vec<u8>),
    /// Answers with a text, and then speaks TLS.
    Tls(String),
}

pub fn text(text: impl Into<String>) -> Answer {
    Answer::Text(text.into())
}

/// A server on loopback. Its function gets the number of the connection, from 0, and a line of the client. The first line is empty: the
/// answer is the greeting.
pub struct MailServer {
    pub port: u16,
    pub connections: Arc<AtomicUsize>,
}

impl MailServer {
    pub fn start(answer: impl Fn(usize, &str) -> Answer + Send + Sync + 'static) -> MailServer {
        MailServer::with_tls(None, answer)
    }

    pub fn with_tls(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(usize, &str) -> Answer + Send + Sync + 'static,
    ) -> MailServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (answer, counted) = (Arc::new(answer), connections.clone());
        std::thread::spawn(move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let (answer, tls) = (answer.clone(), tls.clone());
                std::thread::spawn(move || serve(tcp, tls.as_ref(), number, &*answer));
            }
        });
        MailServer { port, connections }
    }
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Serves a connection to its end. A client that is gone ends it, too.
fn serve(tcp: TcpStream, tls: Option<&Arc<ServerConfig>>, number: usize, answer: &dyn Fn(usize, &str) -> Answer) {
    let is_implicit = tls.is_some() && !matches!(answer(number, ""), Answer::Tls(_));
    let encrypted = |tcp: TcpStream| -> Box<dyn Stream> {
        let connection = ServerConnection::new(tls.expect("TLS").clone()).expect("a connection");
        Box::new(StreamOwned::new(connection, tcp))
    };
    let plain = tcp.try_clone().expect("cloned");
    let mut stream = BufReader::new(if is_implicit { encrypted(tcp) } else { Box::new(tcp) as Box<dyn Stream> });
    let mut line = String::new();
    loop {
        let sent = match answer(number, line.trim_end()) {
            Answer::Text(text) => stream.get_mut().write_all(text.as_bytes()),
            Answer::Last(bytes) => {
                let _gone = stream.get_mut().write_all(&bytes).and_then(|()| stream.get_mut().flush());
                return;
            }
            Answer::Tls(text) => {
                let sent = stream.get_mut().write_all(text.as_bytes());
                if !line.is_empty() {
                    stream = BufReader::new(encrypted(plain.try_clone().expect("cloned")));
                }
                sent
            }
        };
        line.clear();
        if sent.and_then(|()| stream.get_mut().flush()).is_err() || !matches!(stream.read_line(&mut line), Ok(1..)) {
            return;
        }
    }
}

/// The header of a mail with a number.
pub fn header(number: u32) -> String {
    format!("Subject: =?UTF-8?Q?N=C2=B0_{number}?=\r\nFrom: Ann <ann@example.org>\r\n\r\n")
}

/// A mailbox: the numbers of its mails, which a test adds to.
#[derive(Clone, Default)]
pub struct Mailbox {
    mails: Arc<Mutex<Vec<u32>>>,
    /// Looks that a client has finished.
    looks: Arc<AtomicUsize>,
}

impl Mailbox {
    pub fn add(&self, number: u32) {
        self.mails.lock().expect("unpoisoned").push(number);
    }

    pub fn numbers(&self) -> Vec<u32> {
        self.mails.lock().expect("unpoisoned").clone()
    }

    /// Waits until a client knows the mails that are there.
    pub async fn is_known(&self) {
        wait_until("a client has looked", || self.looks.load(Ordering::Relaxed) > 0).await;
    }

    /// The answers of a POP3 server whose only password is `secret`.
    pub fn pop3(&self, line: &str) -> String {
        let mails = self.numbers();
        self.looks.fetch_add(usize::from(line == "QUIT"), Ordering::Relaxed);
        match line.split_once(' ').unwrap_or((line, "")) {
            ("PASS", password) if password != "secret" => format!("-ERR not {password}\r\n"),
            ("UIDL", _) => {
                let list = mails.iter().enumerate().map(|(at, mail)| format!("{} id-{mail}\r\n", at + 1));
                format!("+OK\r\n{}.\r\n", list.collect::<String>())
            }
            ("TOP", of) => {
                let at: usize = of.split(' ').next().and_then(|at| at.parse().ok()).expect("a number");
                format!("+OK\r\n{}.\r\n", header(mails[at - 1]))
            }
            _ => "+OK\r\n".into(),
        }
    }

    /// The answers of an IMAP server without IDLE, whose mails have their numbers as UIDs.
    pub fn imap(&self, line: &str) -> String {
        let mails = self.numbers();
        let (tag, command) = line.split_once(' ').unwrap_or(("", ""));
        self.looks.fetch_add(usize::from(command == "NOOP"), Ordering::Relaxed);
        let fetched = |from: &str| -> Vec<u32> {
            let after = from.split_once(':').and_then(|(from, _)| from.parse().ok());
            match after {
                // The last mail belongs to each such set.
                Some(after) => mails.iter().copied().filter(|uid| *uid >= after || Some(uid) == mails.last()).collect(),
                None => mails.iter().copied().filter(|uid| from == uid.to_string()).collect(),
            }
        };
        let words: Vec<&str> = command.split(' ').collect();
        let untagged = match words[..] {
            [""] => return "* OK ready\r\n".into(),
            ["LOGIN", _, password] if password != "\"secret\"" => return format!("{tag} NO not {password}\r\n"),
            ["CAPABILITY"] => "* CAPABILITY IMAP4rev1\r\n".into(),
            ["EXAMINE", _] => {
                let next = mails.last().map_or(1, |last| last + 1);
                format!("* {} EXISTS\r\n* OK [UIDVALIDITY 7] x\r\n* OK [UIDNEXT {next}] x\r\n", mails.len())
            }
            ["UID", "FETCH", set, "(UID)"] => {
                fetched(set).iter().map(|uid| format!("* 1 FETCH (UID {uid})\r\n")).collect()
            }
            ["UID", "FETCH", set, ..] => fetched(set)
                .iter()
                .map(|uid| {
                    format!(
                        "* 1 FETCH (UID {uid} BODY[HEADER.FIELDS (X)]<0> {{{}}}\r\n{})\r\n",
                        header(*uid).len(),
                        header(*uid)
                    )
                })
                .collect(),
            _ => String::new(),
        };
        format!("{untagged}{tag} OK done\r\n")
    }
}
