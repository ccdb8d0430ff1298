//! Patterns of `LIKE` as automata, with the semantics of arrow-rs.

use std::collections::BTreeSet;

use super::automaton::{Automaton, alike, begins_character};

/// The escape character of patterns: the character after it stands for itself.
const ESCAPE: char = '\\';

/// A part of a pattern.
enum PatternPart {
    /// Any characters.
    Any,
    /// One character.
    One,
    /// One of these byte sequences: the spellings of a character.
    Bytes(Vec<Vec<u8>>),
}

/// A position in a pattern: the index of the next part, and the rest of a spelling that must come before it.
type Position<'a> = (usize, &'a [u8]);

impl Automaton {
    /// Passes the strings that start with `text`.
    pub fn starts_with(text: &str) -> Option<Self> {
        of_parts(exactly(text).chain([PatternPart::Any]).collect())
    }

    /// Passes the strings that end with `text`.
    pub fn ends_with(text: &str) -> Option<Self> {
        of_parts(
            [PatternPart::Any]
                .into_iter()
                .chain(exactly(text))
                .collect(),
        )
    }

    /// Passes the strings that contain `text`.
    pub fn contains(text: &str) -> Option<Self> {
        let back = exactly(text).chain([PatternPart::Any]);
        of_parts([PatternPart::Any].into_iter().chain(back).collect())
    }

    /// Passes the strings that are `LIKE` a pattern, or `ILIKE` if case is ignored. `None` also for an `ILIKE` pattern
    /// that is not ASCII.
    pub fn like(pattern: &str, ignores_case: bool) -> Option<Self> {
        let literal = |character| match ignores_case {
            true => PatternPart::either_case(character),
            false => Some(PatternPart::exactly(character)),
        };
        let mut parts = vec![];
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            parts.push(match character {
                '%' => PatternPart::Any,
                '_' => PatternPart::One,
                // An escape at the end stands for itself.
                ESCAPE => literal(characters.next().unwrap_or(ESCAPE))?,
                other => literal(other)?,
            });
        }
        of_parts(parts)
    }
}

impl PatternPart {
    fn exactly(character: char) -> Self {
        Self::Bytes(vec![bytes_of(character)])
    }

    /// A letter in both cases, with the further spellings of Unicode (Kelvin sign, long s); `None` if it is not ASCII.
    fn either_case(character: char) -> Option<Self> {
        let (lower, upper) = (
            character.to_ascii_lowercase(),
            character.to_ascii_uppercase(),
        );
        let other = match lower {
            'k' => Some('\u{212a}'),
            's' => Some('\u{17f}'),
            _ => None,
        };
        let spellings = [lower, upper].into_iter().chain(other);
        character
            .is_ascii()
            .then(|| Self::Bytes(spellings.map(bytes_of).collect()))
    }
}

fn exactly(text: &str) -> impl Iterator<Item = PatternPart> {
    text.chars().map(PatternPart::exactly)
}

fn bytes_of(character: char) -> Vec<u8> {
    character.encode_utf8(&mut [0; 4]).as_bytes().to_vec()
}

/// Passes the strings that match a sequence of parts. A state is the set of possible positions.
fn of_parts(parts: Vec<PatternPart>) -> Option<Automaton> {
    let all = parts.len();
    let read = parts
        .iter()
        .filter(|part| !matches!(part, PatternPart::Any));
    // Each byte of the shortest string has a state of its own.
    if read.count() >= Automaton::MOST_STATES {
        return None;
    }
    let spellings = parts.iter().filter_map(|part| match part {
        PatternPart::Bytes(spellings) => Some(spellings.iter().flatten().copied()),
        _ => None,
    });
    let spelled: BTreeSet<u8> = spellings.flatten().collect();
    // Bytes in no spelling differ only in whether they begin a character.
    Automaton::build_alike(
        alike(|byte| (spelled.get(&byte), begins_character(byte))),
        settled(&parts, [(0, [].as_slice())].into()),
        |positions, byte| {
            let next = positions.iter().flat_map(|at| after(&parts, *at, byte));
            settled(&parts, next.collect())
        },
        |positions| positions.contains(&(all, [].as_slice())),
    )
}

/// The positions that a byte leads to from a position.
fn after<'a>(
    parts: &'a [PatternPart],
    (behind, rest): Position<'a>,
    byte: u8,
) -> Vec<Position<'a>> {
    if let [first, rest @ ..] = rest {
        let reads = first == &byte;
        return reads.then_some((behind, rest)).into_iter().collect();
    }
    let before = behind.checked_sub(1).and_then(|before| parts.get(before));
    match (before, parts.get(behind)) {
        (_, Some(PatternPart::Any)) => vec![(behind, rest)],
        // A further byte of the character before.
        (Some(PatternPart::One), _) | (_, Some(PatternPart::One)) if !begins_character(byte) => {
            vec![(behind, rest)]
        }
        (_, Some(PatternPart::One)) => vec![(behind + 1, rest)],
        (_, Some(PatternPart::Bytes(spellings))) => spellings
            .iter()
            .filter_map(|spelling| Some((behind + 1, spelling.strip_prefix(&[byte])?)))
            .collect(),
        _ => vec![],
    }
}

/// Adds the position behind each [`PatternPart::Any`], and drops positions before the last `Any`: strings that match
/// from them match from it, too.
fn settled<'a>(
    parts: &[PatternPart],
    mut positions: BTreeSet<Position<'a>>,
) -> BTreeSet<Position<'a>> {
    let mut last = None;
    for (index, part) in parts.iter().enumerate() {
        let position: Position<'_> = (index, &[]);
        if matches!(part, PatternPart::Any) && positions.contains(&position) {
            positions.insert((index + 1, &[]));
            last = Some(position);
        }
    }
    if let Some((index, _)) = last {
        positions.retain(|(behind, rest)| *behind > index || *behind == index && rest.is_empty());
    }
    positions
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Scalar, StringArray};
    use arrow::compute;
    use proptest::prelude::*;

    use super::*;

    /// Asserts that the automaton passes the same strings as arrow-rs.
    fn check(automaton: &Automaton, strings: &StringArray, passed: &BooleanArray, what: &str) {
        for (string, passed) in strings
            .iter()
            .zip(passed)
            .map(|(s, p)| (s.unwrap(), p.unwrap()))
        {
            let matches = automaton.matches(string.as_bytes());
            assert_eq!(matches, passed, "{string:?} {what}");
        }
    }

    fn check_pattern(pattern: &str, strings: &StringArray) {
        let constant = Scalar::new(StringArray::from(vec![pattern]));
        if let Some(like) = Automaton::like(pattern, false) {
            let passed = compute::like(strings, &constant).unwrap();
            check(&like, strings, &passed, &format!("LIKE {pattern:?}"));
            let failed = compute::nlike(strings, &constant).unwrap();
            check(
                &like.not(),
                strings,
                &failed,
                &format!("NOT LIKE {pattern:?}"),
            );
        } else {
            assert!(pattern.contains('_'), "{pattern:?}");
        }
        if let Some(like) = Automaton::like(pattern, true) {
            let passed = compute::ilike(strings, &constant).unwrap();
            check(&like, strings, &passed, &format!("ILIKE {pattern:?}"));
        } else {
            assert!(pattern.contains('_') || !pattern.is_ascii(), "{pattern:?}");
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let characters = "a b k K s S \u{212a} \u{17f} é 楽 𐀀 % _ \\ \n".split(' ');
        let one = prop::sample::select(characters.collect::<Vec<_>>());
        prop::collection::vec(one, 0..7).prop_map(|parts| parts.concat())
    }

    /// A pattern, and strings that fill its placeholders.
    fn pattern() -> impl Strategy<Value = (String, Vec<String>)> {
        let piece = prop_oneof![
            3 => prop::sample::select(vec!["a", "b", "k", "S", "é", "\\\\", "\\%", "\\a", "\n"]),
            2 => Just("%"),
            1 => Just("_"),
            1 => Just("\\"),
        ];
        let fillings = prop::collection::vec(text(), 16);
        (prop::collection::vec(piece, 0..8), fillings).prop_map(|(pieces, fillings)| {
            let fill = |filling: &String| -> String {
                let one = filling.chars().next_back().unwrap_or('a').to_string();
                let filled = pieces.iter().map(|piece| match *piece {
                    "%" => filling.as_str(),
                    "_" => &one,
                    other => other.trim_start_matches('\\'),
                });
                filled.collect()
            };
            let strings = fillings.iter().map(fill).collect();
            (pieces.concat(), strings)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn patterns_match_as_in_arrow((pattern, strings) in pattern(), others in prop::collection::vec(text(), 16)) {
            let upper = strings.iter().map(|string| string.to_ascii_uppercase());
            let strings = upper.chain(strings.iter().cloned()).chain(others);
            check_pattern(&pattern, &StringArray::from_iter_values(strings));
        }

        #[test]
        fn substrings_match_as_in_arrow(part in text(), strings in prop::collection::vec((text(), text()), 16)) {
            let each = strings.iter().flat_map(|(front, back)| {
                [format!("{front}{part}{back}"), format!("{front}{back}"), format!("{part}{back}"), format!("{front}{part}")]
            });
            let strings = StringArray::from_iter_values(each);
            let constant = Scalar::new(StringArray::from(vec![part.as_str()]));
            let check = |automaton: Option<Automaton>, passed: BooleanArray, what: &str| {
                check(&automaton.unwrap(), &strings, &passed, &format!("{what} {part:?}"));
            };
            check(Automaton::starts_with(&part), compute::starts_with(&strings, &constant).unwrap(), "starts with");
            check(Automaton::ends_with(&part), compute::ends_with(&strings, &constant).unwrap(), "ends with");
            check(Automaton::contains(&part), compute::contains(&strings, &constant).unwrap(), "contains");
        }
    }

    #[test]
    fn corners_of_patterns() {
        let strings = [
            "", "a", "ab", "%", "_", "\\", "\\%", "a\\", "\n", "é", "éa", "a\nb", "aXbXc", "A",
            "\\a",
        ];
        let strings = StringArray::from_iter_values(strings);
        for pattern in [
            "", "%", "%%", "_", "__", "%_", "_%", "%_%", "\\", "\\\\", "%\\", "\\%", "\\_", "%\\%",
            "\\%%", "a\\", "a%b", "a_b", "a%b%c", "%a%", "\\a", "\\\\%", "é%", "%é", ".*", "(",
            "a%\\",
        ] {
            check_pattern(pattern, &strings);
        }
    }

    #[test]
    fn letters_are_spelled_as_in_unicode() {
        let characters = ('\0'..'\u{3000}').map(|character| character.to_string());
        let characters = StringArray::from_iter_values(characters);
        for letter in ('A'..='z').filter(char::is_ascii_alphabetic) {
            check_pattern(&letter.to_string(), &characters);
        }
        assert_eq!(Automaton::like("é", true), None);
    }

    #[test]
    fn automata_of_patterns_are_small() {
        let states =
            |pattern: &str| Automaton::like(pattern, false).map(|automaton| automaton.states());
        assert_eq!(states("%special%requests%"), Some(16));
        assert_eq!(states("%green%"), Some(6));
        assert_eq!(states("forest%"), Some(8));
        assert_eq!(states("%a_b%"), Some(5));
        assert_eq!(states("_____%"), Some(6));
        assert_eq!(states("%a_________b%"), None);
        assert_eq!(states(&"a".repeat(125)), Some(127));
        assert_eq!(states(&"a".repeat(126)), None);
        assert_eq!(states(&"a".repeat(10_000)), None);
    }
}
