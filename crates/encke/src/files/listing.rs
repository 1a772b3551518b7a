//! The page that lists a folder (setting `files_listing`).

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The page of a folder at this path, in HTML.
pub(super) fn page(path: &str, names: &[String], has_more: bool) -> String {
    let title = format!("Files in {}", escaped(path));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n<ul>\n"
    );
    if path != "/" {
        page.push_str("<li><a href=\"../\">../</a>\n");
    }
    for name in names {
        let _ = writeln!(page, "<li><a href=\"{}\">{}</a>", utf8_percent_encode(name, ENCODED), escaped(name));
    }
    page.push_str("</ul>\n");
    if has_more {
        let _ = writeln!(page, "<p>Only {} names are shown.</p>", names.len());
    }
    page
}

/// A text in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// All that has a meaning in a URL or in HTML. A colon would end a scheme.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_their_addresses_stay_in_the_folder() {
        let names = ["<img src=x onerror=alert(1)>", "javascript:alert(1)", "a&b\"'", "caf\u{e9}", "sub/"];
        let page = page("/x<y>/", &names.map(String::from), true);
        for line in [
            "<title>Files in /x&lt;y&gt;/</title>",
            "<li><a href=\"../\">../</a>",
            "<li><a href=\"%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E\">&lt;img src=x onerror=alert(1)&gt;</a>",
            "<li><a href=\"javascript%3Aalert%281%29\">javascript:alert(1)</a>",
            "<li><a href=\"a%26b%22%27\">a&amp;b&quot;&#39;</a>",
            "<li><a href=\"caf%C3%A9\">caf\u{e9}</a>",
            "<li><a href=\"sub/\">sub/</a>",
            "<p>Only 5 names are shown.</p>",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(!super::page("/", &[], false).contains("<li>"));
    }
}
