//! `encke demo`: `encke serve` with everything that the demo pages show switched on.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use encke::Settings;
use encke_sources::SourceSettings;

use crate::assets;

/// The lowest layer of its configuration: a file, the environment and flags take precedence.
pub(crate) const SETTINGS: &str = include_str!("demo.toml");

/// The name of that layer in messages.
pub(crate) const ORIGIN: &str = "encke demo";

/// Adds the sources of `encke demo` to those of the file, which replace the ones of their kind.
pub(crate) fn add_sources(own: Vec<SourceSettings>, all: &mut Vec<SourceSettings>) {
    for source in own {
        let is_there = |other: &SourceSettings| other.name == source.name || other.kind.name() == source.kind.name();
        if !all.iter().any(is_there) {
            all.push(source);
        }
    }
}

/// Lists the pages on stdout, and opens the first one in a browser if that is wanted.
pub(crate) fn welcome(scheme: &str, address: SocketAddr, opens: bool) {
    let start = format!("{scheme}://{}/", reachable(address));
    let mut out = io::stdout().lock();
    // If nobody reads it, the server still runs.
    let _ = write!(out, "{}", text(&start)).and_then(|()| out.flush());
    if opens && let Err(error) = open(&start) {
        tracing::warn!("cannot open a browser ({error}): open {start} yourself");
    }
}

fn text(start: &str) -> String {
    let mut text = format!("\nOpen {start} in a browser. The demos:\n");
    for path in pages() {
        text += &format!("  {}{path}\n", start.trim_end_matches('/'));
    }
    text + "Ctrl-C ends the server.\n"
}

/// The paths of the demo pages.
fn pages() -> impl Iterator<Item = &'static str> {
    let is_page = |path: &&str| path.strip_prefix("/demo/").is_some_and(|name| !name.contains('/'));
    assets::ALL.iter().map(|asset| asset.path).filter(is_page)
}

/// The address at which a browser on this machine reaches the server.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let default = Settings::default().listen.ip();
        address.set_ip(default);
    }
    address
}

/// Opens an address in the user's browser, and does not wait for it.
fn open(address: &str) -> io::Result<()> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut child = Command::new(opener).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    // Its end is awaited elsewhere, so that no dead process stays.
    std::thread::Builder::new().name("browser".into()).spawn(move || child.wait()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn sources_with(file: &str) -> Vec<(String, &'static str)> {
        let path = std::env::temp_dir().join(format!("encke-demo-{}-{}.toml", std::process::id(), file.len()));
        std::fs::write(&path, file).expect("a file");
        let read = Sources { demo: true, file: Some(path.clone()), ..Sources::default() }.read();
        std::fs::remove_file(path).expect("is there");
        let config = read.expect("valid");
        config.sections.sources.into_iter().map(|source| (source.name, source.kind.name())).collect()
    }

    #[test]
    fn sources_of_the_file_come_beside_those_of_the_demo_and_replace_their_own_kind() {
        assert_eq!(sources_with(""), [("quotes".to_string(), "quotes")]);
        let log = "[[source]]\nkind = \"file\"\npath = \"/tmp/log\"\n";
        assert_eq!(sources_with(log), [("file".to_string(), "file"), ("quotes".to_string(), "quotes")]);
        let own = "[[source]]\nkind = \"quotes\"\nname = \"mine\"\nsymbols = 7\n";
        assert_eq!(sources_with(own), [("mine".to_string(), "quotes")]);
    }

    #[test]
    fn the_welcome_names_each_page_at_an_address_that_can_be_opened() {
        let text = text(&format!("http://{}/", reachable("0.0.0.0:81".parse().expect("an address"))));
        assert!(text.contains("Open http://127.0.0.1:81/ in a browser"), "{text}");
        assert!(text.contains("  http://127.0.0.1:81/demo/chat\n"), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("  ")).count(), pages().count());
    }
}
