//! The filter for chat messages. CometD's demo shows texts as HTML, so markup must not reach it.

use bayeux::json;

use super::quoted;
use encke::Verdict;

/// Filters a chat message: escapes markup in its texts, drops it for a bad word, and leaves everything else unchanged,
/// byte by byte.
pub(super) fn filter(data: &str) -> Verdict {
    if data.starts_with('"') {
        return match filter_text(data) {
            Some(text) if text == data => Verdict::Forward,
            Some(text) => Verdict::Replace(text),
            None => Verdict::Delete,
        };
    }
    if !data.starts_with('{') {
        return Verdict::Forward;
    }
    let mut clean = Vec::new();
    let mut changed = false;
    for (key, value) in json::members(data) {
        let value = if value.starts_with('"') {
            let Some(text) = filter_text(value) else { return Verdict::Delete };
            changed |= text != value;
            text
        } else {
            value.to_string()
        };
        clean.push(format!("{}:{value}", key.raw()));
    }
    if changed { Verdict::Replace(format!("{{{}}}", clean.join(","))) } else { Verdict::Forward }
}

/// A raw JSON string with its markup escaped. `None` if it holds the bad word, or half a surrogate pair, which is not
/// valid text.
fn filter_text(raw: &str) -> Option<String> {
    let text = json::decode_string(raw)?;
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    if words.any(|word| word.eq_ignore_ascii_case("dang")) {
        return None;
    }
    let escaped = escape_markup(&text);
    Some(if escaped == text { raw.to_string() } else { quoted(&escaped) })
}

/// Replaces `<` and `>` with entities, as CometD's `NoMarkupFilter` does: a page that renders HTML shows them as text,
/// and no text is lost.
pub(super) fn escape_markup(text: &str) -> String {
    text.replace('<', "&lt;").replace('>', "&gt;")
}
