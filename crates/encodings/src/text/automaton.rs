//! Deterministic automata over bytes, for tests of strings.
//!
//! Operations return `None` if the result would have too many states.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use crate::byte_strings;
use crate::predicate::Predicate;

/// Maximum states of an automaton before it is minimized.
const MOST_EXPLORED: usize = 512;

/// A test of strings, byte by byte. Each byte leads from one state, a number, to the next; a string passes if its last
/// state accepts.
///
/// Automata are minimal, and states are numbered in the order of the strings that lead to them, shorter ones first. So
/// two automata are equal if the same strings pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Automaton {
    /// For each state, the next one for each byte.
    next: Vec<[u8; 256]>,
    accepts: Vec<bool>,
}

impl Automaton {
    /// Maximum states of an automaton: a state takes 7 bits of a table's bytes, the last bit has another meaning.
    pub const MOST_STATES: usize = 127;

    /// The first state.
    pub fn start(&self) -> u8 {
        0
    }

    /// The number of states.
    pub fn states(&self) -> usize {
        self.next.len()
    }

    /// The state after `byte`.
    pub fn step(&self, state: u8, byte: u8) -> u8 {
        let next = self.next.get(usize::from(state));
        next.map_or(0, |next| next[usize::from(byte)])
    }

    /// The states that a byte leads to, from each state.
    fn column(&self, byte: u8) -> Vec<u8> {
        self.next
            .iter()
            .map(|next| next[usize::from(byte)])
            .collect()
    }

    /// Returns true if strings that end in this state pass.
    pub fn accepts(&self, state: u8) -> bool {
        self.accepts
            .get(usize::from(state))
            .is_some_and(|accepts| *accepts)
    }

    /// Returns true if a string passes.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let last = bytes
            .iter()
            .fold(self.start(), |state, byte| self.step(state, *byte));
        self.accepts(last)
    }

    /// The strings that pass and `false`, or the strings that fail and `true`; `None` if both are more than `most`.
    pub fn few(&self, most: usize) -> Option<(Vec<Vec<u8>>, bool)> {
        let few = |others: bool| Some((self.reaching(!others, most)?, others));
        few(false).or_else(|| few(true))
    }

    /// The strings whose last state accepts or does not, as `accepts` says; `None` if they are more than `most`.
    fn reaching(&self, accepts: bool, most: usize) -> Option<Vec<Vec<u8>>> {
        // the automaton is minimal: from every state that is not dead, some string reaches such an end
        let is_dead = |state: u8| {
            let next = &self.next[usize::from(state)];
            self.accepts(state) != accepts && next.iter().all(|next| *next == state)
        };
        let (mut strings, mut pending) = (vec![], vec![]);
        pending.extend((!is_dead(self.start())).then(|| (self.start(), vec![])));
        while let Some((state, string)) = pending.pop() {
            // a string that visits a state twice can repeat the loop any number of times
            if string.len() >= self.states() || strings.len() + pending.len() > most {
                return None;
            }
            for byte in 0..=u8::MAX {
                let next = self.step(state, byte);
                if !is_dead(next) {
                    pending.push((next, [&string[..], &[byte]].concat()));
                }
            }
            if self.accepts(state) == accepts {
                strings.push(string);
            }
        }
        (strings.len() <= most).then_some(strings)
    }

    /// Passes all strings, or none.
    pub fn constant(passes: bool) -> Self {
        Self {
            next: vec![[0; 256]],
            accepts: vec![passes],
        }
    }

    /// Passes strings whose order relative to `constant` `passes`, byte by byte, as in Arrow.
    pub fn compared(constant: &[u8], passes: impl Fn(Ordering) -> bool) -> Option<Self> {
        if constant.len() > MOST_EXPLORED {
            return None;
        }
        // Bytes between two bytes of the constant are alike.
        let letters: BTreeSet<u8> = constant.iter().copied().collect();
        let firsts = alike(|byte| (letters.range(..byte).count(), letters.contains(&byte)));
        // A state is the number of equal bytes so far, or the order of the first unequal one.
        let step = |state: &Result<usize, Ordering>, byte: u8| {
            let equal = (*state)?;
            let other = constant.get(equal).ok_or(Ordering::Greater)?;
            match byte.cmp(other) {
                Ordering::Equal => Ok(equal + 1),
                unequal => Err(unequal),
            }
        };
        Self::build_alike(firsts, Ok(0), step, |state| match state {
            Ok(equal) => passes(equal.cmp(&constant.len())),
            Err(unequal) => passes(*unequal),
        })
    }

    /// Passes the strings between two bounds.
    pub fn range(low: Bound<&[u8]>, high: Bound<&[u8]>) -> Option<Self> {
        if let (Bound::Included(low), Bound::Included(high)) = (low, high)
            && low == high
        {
            return Self::compared(low, Ordering::is_eq);
        }
        let above = match low {
            Bound::Unbounded => Self::constant(true),
            Bound::Included(low) => Self::compared(low, Ordering::is_ge)?,
            Bound::Excluded(low) => Self::compared(low, Ordering::is_gt)?,
        };
        let below = match high {
            Bound::Unbounded => return Some(above),
            Bound::Included(high) => Self::compared(high, Ordering::is_le)?,
            Bound::Excluded(high) => Self::compared(high, Ordering::is_lt)?,
        };
        above.and(&below)
    }

    /// Passes these strings.
    pub fn one_of<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        // A state is the set of possible rests of the string.
        let rests: BTreeSet<&[u8]> = values.into_iter().collect();
        if rests.len() > MOST_EXPLORED {
            return None;
        }
        let letters: BTreeSet<u8> = rests.iter().flat_map(|rest| rest.iter().copied()).collect();
        let firsts = alike(|byte| letters.contains(&byte).then_some(byte));
        let step = |rests: &Vec<&'a [u8]>, byte: u8| {
            let rests = rests.iter();
            rests
                .filter_map(|rest| rest.strip_prefix(&[byte]))
                .collect()
        };
        Self::build_alike(firsts, rests.into_iter().collect(), step, |rests| {
            rests.contains(&[].as_slice())
        })
    }

    /// Passes strings whose number of bytes `passes`. Longer ones than `most` pass if `most` does.
    pub fn of_bytes(most: usize, passes: impl Fn(usize) -> bool) -> Option<Self> {
        Self::build(0, |count, _| most.min(count + 1), |count| passes(*count))
    }

    /// Passes UTF-8 strings whose number of characters `passes`. Longer ones than `most` pass if `most` does.
    pub fn of_characters(most: usize, passes: impl Fn(usize) -> bool) -> Option<Self> {
        let step = |count: &usize, byte| most.min(count + usize::from(begins_character(byte)));
        Self::build(0, step, |count| passes(*count))
    }

    /// Passes the UTF-8 strings whose first `most` characters pass `self`.
    pub fn of_front(&self, most: usize) -> Option<Self> {
        let step = |&(state, count): &(u8, usize), byte| {
            let count = count + usize::from(begins_character(byte));
            match count <= most {
                true => (self.step(state, byte), count),
                false => (state, most.saturating_add(1)),
            }
        };
        let firsts = alike(|byte| (self.column(byte), begins_character(byte)));
        Self::build_alike(firsts, (self.start(), 0), step, |(state, _)| {
            self.accepts(*state)
        })
    }

    /// Passes the UTF-8 strings that pass `self` without their first `most` characters.
    pub fn of_rest(&self, most: usize) -> Option<Self> {
        let step = |&(state, count): &(u8, usize), byte| {
            let count = count + usize::from(begins_character(byte));
            match count <= most {
                true => (state, count),
                false => (self.step(state, byte), most.saturating_add(1)),
            }
        };
        let firsts = alike(|byte| (self.column(byte), begins_character(byte)));
        Self::build_alike(firsts, (self.start(), 0), step, |(state, _)| {
            self.accepts(*state)
        })
    }

    /// Passes the strings that pass a predicate; nulls are not considered. `None` also for null tests and other types.
    pub fn of_predicate(predicate: &Predicate) -> Option<Self> {
        let (passed, negated) = match predicate {
            Predicate::Range { low, high, negated } => {
                let (low, high) = (bound(low)?, bound(high)?);
                let slices = |bound| Bound::map(bound, Vec::as_slice);
                let passed = Self::range(slices(low.as_ref()), slices(high.as_ref()))?;
                (passed, *negated)
            }
            Predicate::In { values, negated } => {
                let values = strings(values)?;
                let passed = Self::one_of(values.iter().map(Vec::as_slice))?;
                (passed, *negated)
            }
            Predicate::IsNull | Predicate::IsNotNull => return None,
        };
        Some(if negated { passed.not() } else { passed })
    }

    /// Passes the strings that fail `self`.
    pub fn not(&self) -> Self {
        Self {
            next: self.next.clone(),
            accepts: self.accepts.iter().map(|accepts| !accepts).collect(),
        }
    }

    /// Passes the strings that pass both.
    pub fn and(&self, other: &Self) -> Option<Self> {
        self.product(other, |one, other| one && other)
    }

    /// Passes the strings that pass either.
    pub fn or(&self, other: &Self) -> Option<Self> {
        self.product(other, |one, other| one || other)
    }

    fn product(&self, other: &Self, accepts: impl Fn(bool, bool) -> bool) -> Option<Self> {
        Self::build_alike(
            alike(|byte| (self.column(byte), other.column(byte))),
            (self.start(), other.start()),
            |(one, two), byte| (self.step(*one, byte), other.step(*two, byte)),
            |(one, two)| accepts(self.accepts(*one), other.accepts(*two)),
        )
    }

    /// Builds the minimal automaton of a transition function `step`, from the state `start`.
    pub(super) fn build<S: Clone + Ord>(
        start: S,
        step: impl Fn(&S, u8) -> S,
        accepts: impl Fn(&S) -> bool,
    ) -> Option<Self> {
        Self::build_alike(std::array::from_fn(|byte| byte as u8), start, step, accepts)
    }

    /// As [`build`](Self::build), in less time: `firsts` has for each byte the first one that leads where it does, from
    /// every state.
    pub(super) fn build_alike<S: Clone + Ord>(
        firsts: [u8; 256],
        start: S,
        step: impl Fn(&S, u8) -> S,
        accepts: impl Fn(&S) -> bool,
    ) -> Option<Self> {
        let mut numbers = BTreeMap::from([(start.clone(), 0)]);
        let mut states = vec![start];
        let mut next: Vec<[usize; 256]> = vec![];
        while let Some(state) = states.get(next.len()).cloned() {
            let mut row = [0; 256];
            for (byte, first) in (0..=u8::MAX).zip(firsts) {
                row[usize::from(byte)] = match first < byte {
                    true => row[usize::from(first)],
                    false => *numbers
                        .entry(step(&state, byte))
                        .or_insert_with_key(|after| {
                            states.push(after.clone());
                            states.len() - 1
                        }),
                };
            }
            if states.len() > MOST_EXPLORED {
                return None;
            }
            next.push(row);
        }
        let firsts: BTreeSet<u8> = firsts.into_iter().collect();
        Self::minimize(&next, &firsts, states.iter().map(accepts).collect())
    }

    /// Moore's algorithm: two states are different if only one accepts, or a byte leads to different states. Other bytes
    /// than `firsts` lead where one of these does.
    fn minimize(next: &[[usize; 256]], firsts: &BTreeSet<u8>, accepts: Vec<bool>) -> Option<Self> {
        let mut classes: Vec<usize> = accepts.iter().copied().map(usize::from).collect();
        let mut count = 0;
        loop {
            let mut known = BTreeMap::new();
            let rows = next.iter().map(|row| -> Vec<usize> {
                let to = firsts.iter().map(|byte| row[usize::from(*byte)]);
                to.map(|to| classes[to]).collect()
            });
            let refined = classes.iter().copied().zip(rows).map(|state| {
                let number = known.len();
                *known.entry(state).or_insert(number)
            });
            classes = refined.collect();
            if known.len() > Self::MOST_STATES {
                return None;
            }
            if known.len() == count {
                break;
            }
            count = known.len();
        }
        // Classes are numbered in the order of their first states.
        let mut minimal = Self {
            next: vec![],
            accepts: vec![],
        };
        for ((class, row), accepts) in classes.iter().zip(next).zip(accepts) {
            if *class == minimal.states() {
                minimal.next.push(row.map(|to| classes[to] as u8));
                minimal.accepts.push(accepts);
            }
        }
        Some(minimal)
    }
}

/// Returns true if a byte of UTF-8 is the first of a character.
pub(super) fn begins_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// For each byte, the first one with its key: bytes with equal keys lead to the same states.
pub(super) fn alike<K: Ord>(key: impl Fn(u8) -> K) -> [u8; 256] {
    let mut firsts = BTreeMap::new();
    std::array::from_fn(|byte| *firsts.entry(key(byte as u8)).or_insert(byte as u8))
}

/// The bytes of each string that is not null; `None` for arrays of other types.
fn strings(array: &ArrayRef) -> Option<Vec<Vec<u8>>> {
    if let DataType::FixedSizeBinary(_) = array.data_type() {
        return None;
    }
    let values = byte_strings::values(array)?.into_iter().enumerate();
    let valid = values.filter(|(row, _)| array.is_valid(*row));
    Some(valid.map(|(_, value)| value.to_vec()).collect())
}

/// The bytes of a bound that is an array of one string; `None` for other types.
fn bound(bound: &Bound<ArrayRef>) -> Option<Bound<Vec<u8>>> {
    let only = |array| strings(array)?.pop();
    Some(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(array) => Bound::Included(only(array)?),
        Bound::Excluded(array) => Bound::Excluded(only(array)?),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Int32Array, Scalar, StringArray};
    use arrow::compute::cast;
    use arrow::compute::kernels::cmp;
    use proptest::prelude::*;

    use super::*;

    fn matches(automaton: &Automaton, strings: &[String]) -> BooleanArray {
        let strings = strings
            .iter()
            .map(|string| automaton.matches(string.as_bytes()));
        strings.map(Some).collect()
    }

    fn array(strings: &[String]) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(strings))
    }

    fn text() -> impl Strategy<Value = String> {
        let one = prop::sample::select(vec!["a", "b", "é", "è", "楽", "\0", "\u{10ffff}"]);
        prop::collection::vec(one, 0..5).prop_map(|parts| parts.concat())
    }

    fn texts(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(text(), count)
    }

    fn types() -> impl Strategy<Value = DataType> {
        use DataType::*;
        prop::sample::select(vec![
            Utf8,
            LargeUtf8,
            Utf8View,
            Binary,
            LargeBinary,
            BinaryView,
        ])
    }

    /// Automata of three states, which `a` takes elsewhere than other bytes.
    fn automata() -> impl Strategy<Value = Automaton> {
        let tables: [[std::ops::Range<usize>; 2]; 3] = [const { [const { 0..3 }; 2] }; 3];
        (tables, any::<[bool; 3]>()).prop_map(|(next, accepts)| {
            let step = |state: &usize, byte| next[*state][usize::from(byte != b'a')];
            Automaton::build(0, step, |state| accepts[*state]).unwrap()
        })
    }

    /// All strings of two letters up to this length.
    fn words(length: usize) -> Vec<Vec<u8>> {
        let mut words = vec![vec![]];
        for word in 0..(1 << length) - 1 {
            words.extend([b'a', b'b'].map(|letter| [words[word].as_slice(), &[letter]].concat()));
        }
        words
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn strings_compare_as_in_arrow(constant in text(), mut strings in texts(16)) {
            strings.push(constant.clone());
            let compared = |passes: fn(Ordering) -> bool| {
                matches(&Automaton::compared(constant.as_bytes(), passes).unwrap(), &strings)
            };
            let (array, constant) = (array(&strings), Scalar::new(StringArray::from(vec![constant.as_str()])));
            prop_assert_eq!(compared(Ordering::is_eq), cmp::eq(&array, &constant).unwrap());
            prop_assert_eq!(compared(Ordering::is_ne), cmp::neq(&array, &constant).unwrap());
            prop_assert_eq!(compared(Ordering::is_lt), cmp::lt(&array, &constant).unwrap());
            prop_assert_eq!(compared(Ordering::is_le), cmp::lt_eq(&array, &constant).unwrap());
            prop_assert_eq!(compared(Ordering::is_gt), cmp::gt(&array, &constant).unwrap());
            prop_assert_eq!(compared(Ordering::is_ge), cmp::gt_eq(&array, &constant).unwrap());
        }

        #[test]
        fn predicates_say_the_same(
            values in texts(0..6), low in text(), high in text(), mut strings in texts(16), data_type in types(), negated: bool,
        ) {
            strings.extend(values.iter().chain([&low, &high]).cloned());
            let of = |strings: &[String]| cast(&array(strings), &data_type).unwrap();
            let bounds = |bound: ArrayRef| [Bound::Unbounded, Bound::Included(Arc::clone(&bound)), Bound::Excluded(bound)];
            let mut predicates = vec![Predicate::In { values: of(&values), negated }];
            for low in bounds(of(&[low])) {
                let high = bounds(of(std::slice::from_ref(&high))).into_iter();
                predicates.extend(high.map(|high| Predicate::Range { low: low.clone(), high, negated }));
            }
            for predicate in predicates {
                let automaton = Automaton::of_predicate(&predicate).unwrap();
                prop_assert_eq!(matches(&automaton, &strings), predicate.evaluate(&of(&strings)).unwrap());
            }
        }

        #[test]
        fn few_strings_are_all_that_pass(values in texts(0..6), other in text(), negated: bool) {
            let values: BTreeSet<Vec<u8>> = values.into_iter().map(String::into_bytes).collect();
            let one_of = Automaton::one_of(values.iter().map(Vec::as_slice)).unwrap();
            let automaton = if negated { one_of.not() } else { one_of };
            let (mut few, others) = automaton.few(values.len()).unwrap();
            few.sort();
            prop_assert!(few.into_iter().eq(values.clone()) && others == negated);
            prop_assert_eq!(values.len().checked_sub(1).and_then(|most| automaton.few(most)), None);
            // infinitely many strings have a given prefix
            let begins = |from: &[u8]| Automaton::range(Bound::Included(from), Bound::Unbounded).unwrap();
            let infinite = begins(&[other.as_bytes(), b"a"].concat());
            prop_assert_eq!(infinite.few(1000), None);
        }

        #[test]
        fn parts_and_lengths_are_in_characters(
            skipped in 0_usize..4, taken in 0_usize..4, part in text(), strings in texts(16),
        ) {
            let automaton = Automaton::compared(part.as_bytes(), Ordering::is_le).unwrap();
            let automaton = automaton.of_front(taken).unwrap().of_rest(skipped).unwrap();
            let characters = Automaton::of_characters(skipped + 1, |count| count > skipped).unwrap();
            let bytes = Automaton::of_bytes(skipped + 1, |count| count == skipped).unwrap();
            for string in strings {
                let of_string: String = string.chars().skip(skipped).take(taken).collect();
                prop_assert_eq!(automaton.matches(string.as_bytes()), of_string <= part);
                prop_assert_eq!(characters.matches(string.as_bytes()), string.chars().count() > skipped);
                prop_assert_eq!(bytes.matches(string.as_bytes()), string.len() == skipped);
            }
        }

        #[test]
        fn automata_are_equal_if_their_strings_are(one in automata(), two in automata()) {
            for word in words(5) {
                let passes = (one.matches(&word), two.matches(&word));
                prop_assert_eq!(one.and(&two).unwrap().matches(&word), passes.0 && passes.1);
                prop_assert_eq!(one.or(&two).unwrap().matches(&word), passes.0 || passes.1);
                prop_assert_eq!(one.not().matches(&word), !passes.0);
            }
            let same = words(5).iter().all(|word| one.matches(word) == two.matches(word));
            prop_assert_eq!(one == two, same);
            prop_assert_eq!(one.and(&two).unwrap().not(), two.not().or(&one.not()).unwrap());
            prop_assert_eq!(one.or(&one.not()).unwrap(), Automaton::constant(true));
            prop_assert_eq!(one.and(&one.not()).unwrap(), Automaton::constant(false));
        }
    }

    #[test]
    fn lists_share_their_ends() {
        let years: Vec<String> = (1990..2000).map(|year| year.to_string()).collect();
        let automaton = Automaton::one_of(years.iter().map(String::as_bytes)).unwrap();
        assert_eq!(automaton.states(), 6);
        assert_eq!(Automaton::one_of([]), Some(Automaton::constant(false)));
        let words: Vec<String> = (0..200_u64)
            .map(|n| n.wrapping_mul(n ^ 0x9e37_79b9).to_string())
            .collect();
        assert_eq!(Automaton::one_of(words.iter().map(String::as_bytes)), None);
    }

    #[test]
    fn only_strings_have_automata() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert_eq!(Automaton::of_predicate(&Predicate::equal(numbers)), None);
        assert_eq!(Automaton::of_predicate(&Predicate::IsNull), None);
        let strings = cast(&array(&["a".into()]), &DataType::BinaryView).unwrap();
        let automaton = Automaton::of_predicate(&Predicate::equal(strings)).unwrap();
        assert!(automaton.matches(b"a") && !automaton.matches(b"aa"));
    }
}
