//! The part of a file that a request asks for (RFC 9110 §14).

/// The part of a body that a `Range` field selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: the field is invalid, of another unit, or asks for several parts. A server may always answer so (§14.2).
    Whole,
    /// The bytes from the first to the last one, both included.
    Bytes { first: u64, last: u64 },
    /// None: the body ends before it.
    Unsatisfiable,
}

impl Part {
    /// The part of a body with this number of bytes.
    pub(super) fn of(range: &str, bytes: u64) -> Part {
        let Some((unit, specs)) = range.split_once('=') else { return Part::Whole };
        // A list may have empty elements (§5.6.1.2).
        let mut specs = specs.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty());
        let (true, Some(spec), None) = (unit.eq_ignore_ascii_case("bytes"), specs.next(), specs.next()) else {
            return Part::Whole;
        };
        match spec.split_once('-') {
            Some(("", count)) => number(count).map_or(Part::Whole, |count| Part::of_last(count, bytes)),
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), None) if last.is_empty() => Part::between(first, u64::MAX, bytes),
                (Some(first), Some(last)) if first <= last => Part::between(first, last, bytes),
                _ => Part::Whole,
            },
            None => Part::Whole,
        }
    }

    fn of_last(count: u64, bytes: u64) -> Part {
        if count == 0 { Part::Unsatisfiable } else { Part::between(bytes.saturating_sub(count), u64::MAX, bytes) }
    }

    fn between(first: u64, last: u64, bytes: u64) -> Part {
        if first < bytes { Part::Bytes { first, last: last.min(bytes - 1) } } else { Part::Unsatisfiable }
    }
}

/// A number in digits. One that is too large for a file of any size is the largest one.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_part_is_selected_by_its_ends_or_from_the_end_of_the_body() {
        let part = |first, last| Part::Bytes { first, last };
        for (range, wanted) in [
            ("bytes=0-0", part(0, 0)),
            ("bytes=0-99", part(0, 99)),
            ("bytes=90-", part(90, 99)),
            ("bytes=90-1000", part(90, 99)),
            ("bytes=-10", part(90, 99)),
            ("bytes=-1000", part(0, 99)),
            ("BYTES=5-7", part(5, 7)),
            ("bytes= 5-7 ,", part(5, 7)),
            ("bytes=5-99999999999999999999999999", part(5, 99)),
            ("bytes=100-", Part::Unsatisfiable),
            ("bytes=99999999999999999999999999-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
        ] {
            assert_eq!(Part::of(range, 100), wanted, "{range}");
        }
        assert_eq!(Part::of("bytes=0-", 0), Part::Unsatisfiable);
        assert_eq!(Part::of("bytes=-5", 0), Part::Unsatisfiable);
    }

    #[test]
    fn a_field_that_is_invalid_or_asks_for_several_parts_selects_the_whole_body() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=7-5",
            "bytes=a-b",
            "bytes=+5-7",
            "bytes=5-7x",
            "bytes=--5",
            "bytes=5-7-9",
            "bytes 5-7",
            "rows=5-7",
            "bytes=0-0,5-7",
            "bytes=0-0, -1",
            "bytes=500-,600-",
        ] {
            assert_eq!(Part::of(range, 100), Part::Whole, "{range}");
        }
    }

    proptest! {
        #[test]
        fn a_part_is_never_outside_of_the_body(range in "(bytes=)?[-,0-9 a]{0,12}", bytes in 0..200_u64) {
            if let Part::Bytes { first, last } = Part::of(&range, bytes) {
                prop_assert!(first <= last && last < bytes);
            }
        }

        /// The selected bytes are those that the numbers name, taken one by one.
        #[test]
        fn a_part_has_the_bytes_that_the_numbers_name(first in 0..150_u64, last in 0..150_u64, bytes in 0..120_u64) {
            let named = |range: String| match Part::of(&range, bytes) {
                Part::Whole => (0..bytes).collect::<Vec<_>>(),
                Part::Bytes { first, last } => (first..=last).collect(),
                Part::Unsatisfiable => Vec::new(),
            };
            let wanted: Vec<u64> = (0..bytes).filter(|at| first > last || (first..=last).contains(at)).collect();
            prop_assert_eq!(named(format!("bytes={first}-{last}")), wanted);
            prop_assert_eq!(named(format!("bytes={first}-")), (0..bytes).skip(first as usize).collect::<Vec<_>>());
            let end: Vec<u64> = (0..bytes).filter(|at| bytes - at <= last).collect();
            prop_assert_eq!(named(format!("bytes=-{last}")), end);
        }
    }
}
