//! Names of channels with parameters: the template `/room/{id}/join` stands for `/room/7/join`.

use bayeux::{ChannelName, Limits};

use crate::error::HookError;

/// A channel, a pattern or a template, as a program writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(super) text: Box<str>,
    pub(super) kind: Kind,
    /// Bit *i* is set if segment *i* is a parameter.
    pub(super) parameters: u64,
}

/// The end of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Shallow,
    Deep,
}

impl Name {
    /// A valid name: `parameters` has a bit for each segment that is one.
    fn new(text: &str, parameters: u64) -> Name {
        Name { text: text.into(), kind: parts(text).0, parameters }
    }

    /// True if it is a template.
    pub(crate) fn has_parameters(&self) -> bool {
        self.parameters != 0
    }

    /// The text without stars at its end.
    pub(super) fn stem(&self) -> &str {
        parts(&self.text).1
    }

    /// True if the other name covers the same channels: parameters may have other names.
    pub(super) fn is_same(&self, other: &Name) -> bool {
        self.kind == other.kind && self.parameters == other.parameters && self.fits(other.stem())
    }

    /// True if this stem is that of the name, whatever stands for its parameters.
    pub(super) fn fits(&self, stem: &str) -> bool {
        if self.parameters == 0 {
            return self.stem() == stem;
        }
        let (mut own, mut others) = (segments(self.stem()).enumerate(), segments(stem));
        loop {
            match (own.next(), others.next()) {
                (None, None) => return true,
                (Some((at, own)), Some(other)) => {
                    let is_parameter = at < PARAMETERS_MAX && self.parameters & (1 << at) != 0;
                    if (is_parameter && other.is_empty()) || (!is_parameter && own != other) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }
}

/// The channel, pattern or template with this text. Settings limit only the names of clients.
///
/// # Errors
/// It is none: a parameter is a whole segment, a word in braces, and no other parameter of the template has its name.
pub(crate) fn name_of(text: &str) -> Result<Name, HookError> {
    let limits = Limits { channel_bytes_max: usize::MAX, channel_segments_max: usize::MAX, ..Limits::default() };
    ChannelName::parse(text, &limits).map_err(|_| HookError::Pattern(text.into()))?;
    let (mut names, mut parameters) = (Vec::new(), 0);
    for (at, segment) in segments(text).enumerate().filter(|(_, segment)| segment.contains(['{', '}'])) {
        let name = parameter(segment).filter(|name| at < PARAMETERS_MAX && !names.contains(name));
        names.push(name.ok_or_else(|| HookError::Template(text.into()))?);
        parameters |= 1 << at;
    }
    Ok(Name::new(text, parameters))
}

/// The segments of a name.
pub(crate) fn segments(name: &str) -> impl Iterator<Item = &str> {
    name.split('/').skip(1)
}

/// The name of a parameter, if this segment is one.
fn parameter(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_word && !name.is_empty()).then_some(name)
}

/// The parameters of a template, each with its value in a channel or pattern. There is none where the pattern leaves it open.
pub(crate) fn parameters<'t>(template: &'t str, name: &'t str) -> impl Iterator<Item = (&'t str, Option<&'t str>)> {
    let values = segments(name).map(Some).chain(std::iter::repeat(None));
    let value = |(segment, value): (&'t str, Option<&'t str>)| {
        Some((parameter(segment)?, value.filter(|value| !matches!(*value, "*" | "**"))))
    };
    segments(template).zip(values).filter_map(value)
}

/// The template with the segments of a pattern instead of its parameters, as far as the pattern has them.
pub(super) fn filled(template: &str, pattern: &str) -> String {
    let mut values = segments(pattern);
    let mut filled = String::with_capacity(template.len() + pattern.len());
    for segment in segments(template) {
        let value = values.next().filter(|value| parameter(segment).is_some() && !value.contains('*'));
        filled.push('/');
        filled.push_str(value.unwrap_or(segment));
    }
    filled
}

fn parts(name: &str) -> (Kind, &str) {
    if let Some(stem) = name.strip_suffix("/**") {
        return (Kind::Deep, stem);
    }
    name.strip_suffix("/*").map_or((Kind::Name, name), |stem| (Kind::Shallow, stem))
}

/// A parameter is among the first segments of a name.
const PARAMETERS_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_a_whole_segment_with_a_name_that_the_template_has_once() {
        for text in ["/room/{id}", "/{a}/{b_1}/c", "/{room}/*", "/a/{b}/**", "/a/b"] {
            assert!(name_of(text).is_ok(), "{text}");
        }
        for text in ["/room/{}", "/room/x{id}", "/room/{id", "/room/id}", "/room/{a-b}", "/{id}/{id}", "/{a}{b}"] {
            assert_eq!(name_of(text), Err(HookError::Template(text.into())));
        }
        assert_eq!(name_of("/*/{id}"), Err(HookError::Pattern("/*/{id}".into())));
        let deep = format!("{}/{{id}}", "/a".repeat(PARAMETERS_MAX));
        assert_eq!(name_of(&deep), Err(HookError::Template(deep.clone())));
    }

    #[test]
    fn parameters_have_the_segments_of_a_name_as_values_and_none_where_it_is_open() {
        let of = |template: &str, name: &str| {
            let written = |(name, value): (&str, Option<&str>)| format!("{name}={}", value.unwrap_or("(open)"));
            parameters(template, name).map(written).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("/room/{id}/{seat}", "/room/7/a b"), "id=7 seat=a b");
        assert_eq!(of("/room/{id}/{seat}", "/room/7/*"), "id=7 seat=(open)");
        assert_eq!(of("/room/{id}/{seat}", "/room/**"), "id=(open) seat=(open)");
        assert_eq!(of("/room/{id}/**", "/room/7/x/y"), "id=7");
        assert_eq!(of("/room/*", "/room/7"), "");
    }
}
