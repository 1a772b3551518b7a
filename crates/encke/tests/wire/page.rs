//! The page `docs/bad-input.md` names tests: each of them exists.

/// The page, and where its tests are.
const PAGE: &str = include_str!("../../../../docs/bad-input.md");
const FILES: [(&str, &str); 14] = [
    ("bayeux_messages", include_str!("bayeux_messages.rs")),
    ("channel_names", include_str!("channel_names.rs")),
    ("file_descriptors", include_str!("../file_descriptors.rs")),
    ("files", include_str!("files.rs")),
    ("http_requests", include_str!("http_requests.rs")),
    ("jsonp", include_str!("jsonp.rs")),
    ("limits", include_str!("limits.rs")),
    ("logs", include_str!("../logs.rs")),
    ("long_polling", include_str!("long_polling.rs")),
    ("origins", include_str!("origins.rs")),
    ("sessions", include_str!("sessions.rs")),
    ("slow_consumers", include_str!("slow_consumers.rs")),
    ("transports", include_str!("transports.rs")),
    ("websocket_frames", include_str!("websocket_frames.rs")),
];

#[test]
fn every_test_that_the_page_names_exists() {
    let files = std::collections::HashMap::from(FILES);
    let names = PAGE.split('`').filter_map(|quoted| quoted.split_once("::"));
    let mut found = 0;
    for (file, test) in names {
        let Some(text) = files.get(file) else { continue };
        assert!(text.contains(&format!("#[test]\nfn {test}() {{")), "{file}::{test}");
        found += 1;
    }
    assert!(found > 90, "{found}");
}
