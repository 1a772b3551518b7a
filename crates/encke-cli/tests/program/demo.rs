//! `encke demo`: the server with everything that the demo pages show.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use rustix::process::Signal;

use crate::common::{Folder, Server, TIMEOUT, encke, run, text};

/// The next message on a channel.
fn next(server: &Server, channel: &str) -> String {
    text(&run(&["subscribe", "--url", &server.url, "--count", "1", channel]).stdout)
}

#[test]
fn everything_is_on_and_ctrl_c_ends_it_cleanly() {
    let mut server = Server::spawn(encke(&["demo", "--port", "0"]));
    let quote = next(&server, "/stock/S2999");
    assert!(quote.contains(r#""symbol":"S2999""#), "{quote}");
    let mail = next(&server, "/mail/example");
    assert!(mail.contains(r#""subject":"Example: "#), "{mail}");
    let start = format!("Open {}/ in a browser", server.url);
    let chat = format!("  {}/demo/chat\n", server.url);
    server.signal(Signal::INT);
    server.log_until("ended");
    let (code, out) = server.end();
    assert_eq!(code, Some(0));
    assert!(out.contains(&start) && out.contains(&chat), "{out}");
}

#[test]
fn a_browser_is_opened_only_if_it_is_wanted() {
    let folder = Folder::new();
    // The whole file appears at once.
    let opener = folder.write("xdg-open", "#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo \"$1\" >new && mv new opened\n");
    std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755)).expect("a script");
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").expect("a path"));
    let opened = folder.0.join("opened");
    for (flags, is_wanted) in [(&[][..], false), (&["--open"][..], true)] {
        let mut command = encke(&[&["demo", "--port", "0"], flags].concat());
        command.env("PATH", &path);
        let server = Server::spawn(command);
        let began = Instant::now();
        while is_wanted && !opened.exists() && began.elapsed() < TIMEOUT {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(opened.exists(), is_wanted);
        if is_wanted {
            assert_eq!(std::fs::read_to_string(&opened).expect("a file").trim(), format!("{}/", server.url));
        }
        server.signal(Signal::TERM);
        assert_eq!(server.end().0, Some(0));
    }
}
