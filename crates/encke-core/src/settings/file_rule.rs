//! The rules for files.

use serde::{Deserialize, Serialize};

/// A rule for the files whose paths match a pattern, written as `FileRule { pattern: …, ..FileRule::default() }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRule {
    /// A path such as `/index.html`. `*` stands for any characters of one name, `**` also for slashes: `/assets/**`, `/**.woff2`.
    pub pattern: String,
    /// The field `Cache-Control` of these files, such as `public, max-age=31536000, immutable`.
    #[serde(default)]
    pub cache_control: String,
}

impl FileRule {
    /// True if the rule is for the file at this path.
    pub fn matches(&self, path: &str) -> bool {
        matches(self.pattern.as_bytes(), path.as_bytes())
    }
}

/// Compares a path with a pattern, in a time that grows with the product of their lengths.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    // The ends of the parts of the path that the beginning of the pattern matches.
    let mut ends = vec![false; path.len() + 1];
    ends[0] = true;
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'*' {
            for end in (0..path.len()).rev() {
                ends[end + 1] = ends[end] && path[end] == *first;
            }
            ends[0] = false;
            continue;
        }
        let is_deep = rest.first() == Some(&b'*');
        rest = if is_deep { &rest[1..] } else { rest };
        for end in 0..path.len() {
            ends[end + 1] |= ends[end] && (is_deep || path[end] != b'/');
        }
    }
    ends[path.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_in_one_name_and_two_pass_slashes() {
        for (pattern, path, wanted) in [
            ("/index.html", "/index.html", true),
            ("/index.html", "/index.htm", false),
            ("/index.html", "/sub/index.html", false),
            ("/assets/*", "/assets/a.js", true),
            ("/assets/*", "/assets/", true),
            ("/assets/*", "/assets/sub/a.js", false),
            ("/assets/*.js", "/assets/a.js.br", false),
            ("/assets/**", "/assets/sub/a.js", true),
            ("/assets/**", "/assets", false),
            ("/**.woff2", "/a/b/c.woff2", true),
            ("/**.woff2", "/c.woff2", true),
            ("/**.woff2", "/c.woff", false),
            ("/*/*.css", "/a/b.css", true),
            ("/*/*.css", "/a/b/c.css", false),
            ("/**/x/*", "/a/b/x/c", true),
            ("/**", "/", true),
            ("", "/", false),
        ] {
            let rule = FileRule { pattern: pattern.into(), ..FileRule::default() };
            assert_eq!(rule.matches(path), wanted, "{pattern} {path}");
        }
    }

    /// A matcher that goes back would need years.
    #[test]
    fn many_stars_take_no_time() {
        let rule = FileRule { pattern: format!("{}b", "/**a*".repeat(200)), ..FileRule::default() };
        assert!(!rule.matches(&"/a".repeat(4_000)));
    }
}
