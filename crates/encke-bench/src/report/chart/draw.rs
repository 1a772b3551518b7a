//! The pen: SVG elements, one after the other, from top to bottom; and how wide letters are.

/// A drawing that grows downwards.
pub(super) struct Svg {
    out: String,
    width: f64,
    /// Attributes of the whole element, for scripts.
    data: String,
    /// Space left and right.
    pub(super) edge: f64,
    /// How far down it has come.
    pub(super) y: f64,
}

impl Svg {
    pub(super) fn new(width: f64, edge: f64) -> Self {
        Svg { out: String::new(), width, data: String::new(), edge, y: edge }
    }

    /// Width between the edges.
    pub(super) fn inner(&self) -> f64 {
        self.width - 2.0 * self.edge
    }

    /// Where the right edge is.
    pub(super) fn right(&self) -> f64 {
        self.width - self.edge
    }

    pub(super) fn skip(&mut self, pixels: f64) {
        self.y += pixels;
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let (x, y, text) = (short(x), short(y), escape(text));
        let anchor = if anchor == "start" { String::new() } else { format!(r#" text-anchor="{anchor}""#) };
        self.out += &format!(r#"<text x="{x}" y="{y}" class="{class}"{anchor}>{text}</text>"#);
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(short);
        self.out += &format!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#);
    }

    /// Tells a page's script something about the drawing.
    pub(super) fn tell(&mut self, name: &str, value: &str) {
        self.data += &format!(r#" data-{name}="{value}""#);
    }

    /// A line through points; it breaks where there is none. A name is for a page's script.
    pub(super) fn path(&mut self, points: &[Option<(f64, f64)>], class: &str, dash: &str, name: Option<&str>) {
        let mut steps = String::new();
        let mut drawing = false;
        for point in points {
            if let Some((x, y)) = point {
                steps += &format!("{}{} {}", if drawing { 'L' } else { 'M' }, short(*x), short(*y));
                if !drawing {
                    // A point between two gaps would not be seen; a line of no length has round ends.
                    steps += "h0";
                }
            }
            drawing = point.is_some();
        }
        if !steps.is_empty() {
            let dash = if dash.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dash}""#) };
            let name = name.map(|name| format!(r#" data-name="{}""#, escape(name))).unwrap_or_default();
            self.out += &format!(r#"<path d="{steps}" class="{class}"{dash}{name}/>"#);
        }
    }

    pub(super) fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        let [x, y, width, height] = [x, y, width, height].map(short);
        self.out += &format!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2" class="{class}"/>"#);
    }

    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, class: &str, note: &str) {
        let [x, y, radius] = [x, y, radius].map(short);
        let note = title(note);
        self.out += &format!(r#"<circle cx="{x}" cy="{y}" r="{radius}" class="{class}">{note}</circle>"#);
    }

    /// The mark of the series with this number: circle, square, triangle, diamond and so on.
    pub(super) fn mark(&mut self, (x, y): (f64, f64), slot: usize, class: &str, note: &str) {
        let steps = match slot % SLOTS {
            0 => return self.circle((x, y), 4.0, class, note),
            1 => "m-3.6 -3.6h7.2v7.2h-7.2z",
            2 => "m0 -4.8l4.6 8h-9.2z",
            3 => "m0 -5l5 5l-5 5l-5 -5z",
            4 => "m0 4.8l4.6 -8h-9.2z",
            _ => "m-5 -2h10v4h-10z",
        };
        let (x, y, note) = (short(x), short(y), title(note));
        self.out += &format!(r#"<path d="M{x} {y}{steps}" class="{class}">{note}</path>"#);
    }

    /// Opens a group; what it holds takes its colour from the series with this number.
    pub(super) fn open(&mut self, class: &str) {
        self.out += &format!(r#"<g class="{class}">"#);
    }

    pub(super) fn close(&mut self) {
        self.out += "</g>";
    }

    /// What another pen has drawn, on top; goes on where it has come to.
    pub(super) fn append(&mut self, sheet: Svg) {
        self.out += &sheet.out;
        self.y = sheet.y;
    }

    /// The whole element; with a style it is a file of its own and gets a ground.
    pub(super) fn finish(self, name: &str, style: Option<&str>) -> String {
        let (width, height, name) = (short(self.width), short(self.y + 2.0), escape(name));
        let ground = style.map_or(String::new(), |style| {
            let (right, bottom) = (short(self.width - 1.0), short(self.y + 1.0));
            let back = format!(r#"<rect x=".5" y=".5" width="{right}" height="{bottom}" rx="10" class="back"/>"#);
            format!("<title>{name}</title><style>{style}</style>{back}")
        });
        let data = &self.data;
        let space = if style.is_some() { r#" xmlns="http://www.w3.org/2000/svg""# } else { "" };
        format!(
            r#"<svg{space} class="chart"{data} role="img" aria-label="{name}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{ground}{}</svg>"#,
            self.out
        )
    }
}

/// A text for HTML, SVG and their attributes in quotes. Characters that XML does not have become `�`.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for char in text.chars() {
        match char {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\t' | '\n' => escaped.push(char),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            char if char.is_control() => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

/// How wide a text of 12 pixels may become at most: no font is at hand, so the widest common one counts (DejaVu Sans).
pub(super) fn text_width(text: &str) -> f64 {
    let em = |char: char| match char {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | '(' | ')' | '[' | ']' | 'f' | 't' | 'r'
        | '/' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' => 0.97,
        'A'..='Z' => 0.72,
        char if char.is_ascii() => 0.635,
        '\u{1100}'.. => 1.05,
        _ => 0.7,
    };
    text.chars().map(em).sum::<f64>() * LETTER_PIXELS
}

/// The text cut to a width; what had to go is told by `…`.
pub(super) fn cut_to(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.into();
    }
    let mut cut = String::new();
    let mut used = text_width("…");
    for char in text.chars() {
        used += text_width(char.encode_utf8(&mut [0; 4]));
        if used > width {
            break;
        }
        cut.push(char);
    }
    cut.trim_end().to_owned() + "…"
}

/// The text in lines of at most this width, broken at spaces; words that are wider are cut.
pub(super) fn wrapped_to(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(" ") + text_width(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(cut_to(word, width)),
        }
    }
    lines
}

/// A coordinate with one decimal, and none where it is whole.
pub(super) fn short(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // No minus before zero.
    format!("{}", rounded + 0.0)
}

fn title(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!("<title>{}</title>", escape(note)) }
}

/// How many series have a colour, a dash and a mark of their own; then they begin again.
pub(super) const SLOTS: usize = 6;

/// Dashes of the series.
pub(super) const DASHES: [&str; SLOTS] = ["", "8 5", "2 5", "10 4 2 4", "14 5", "4 4"];

/// Size of letters.
pub(super) const LETTER_PIXELS: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(escape(r#"<b a="1">&'"#), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        assert_eq!(escape("a\x1b\0\u{ffff}b\n"), "a\u{fffd}\u{fffd}\u{fffd}b\n");
    }

    #[test]
    fn texts_are_cut_and_broken_to_their_width() {
        let cut = cut_to("a rather long name of a series", 80.0);
        assert!(cut.ends_with('…') && text_width(&cut) <= 80.0, "{cut}");
        let lines = wrapped_to("one two three four five six seven", 100.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| text_width(line) <= 100.0), "{lines:?}");
        assert_eq!(lines.join(" "), "one two three four five six seven");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([1.0, 1.26, -0.01].map(short), ["1", "1.3", "0"]);
    }
}
