//! Random predicates on text, as SQL.

use std::collections::BTreeSet;

use vectile_sql_tests::Random;

use crate::data::{GROUPS, NUMBERS, Text};

/// Generates predicates over columns of one table, or of several joined ones.
pub struct Predicates<'a> {
    /// Determines the form of a query: its operators and columns. Queries of one form often have the same kernel.
    pub form: Random,
    /// Determines the rest: the tests of columns, and their constants.
    pub random: &'a mut Random,
    /// The kinds of predicates used so far.
    pub kinds: BTreeSet<&'static str>,
}

const OPERATORS: &[&str] = &["=", "<>", "<", "<=", ">", ">="];

/// Tests of one column of text.
const KINDS: &[(usize, &str)] = &[
    (12, "comparison"),
    (6, "BETWEEN"),
    (10, "IN"),
    (20, "LIKE"),
    (8, "ILIKE"),
    (5, "starts_with"),
    (5, "ends_with"),
    (6, "contains"),
    (6, "strpos"),
    (10, "substr"),
    (6, "left"),
    (2, "right"),
    (8, "length"),
    (4, "upper"),
    (4, "IS NULL"),
    (4, "IS DISTINCT FROM"),
    (5, "regular expression"),
    (3, "function"),
    (2, "cast"),
];

/// The tests that binary supports.
const BINARY_KINDS: &[(usize, &str)] = &[
    (40, "comparison"),
    (15, "BETWEEN"),
    (20, "IN"),
    (10, "IS NULL"),
    (10, "IS DISTINCT FROM"),
];

impl<'a> Predicates<'a> {
    pub fn new(form: Random, random: &'a mut Random) -> Self {
        Self {
            form,
            random,
            kinds: BTreeSet::new(),
        }
    }

    /// A test of one column, or a combination of several.
    pub fn of_column(&mut self, text: &Text) -> String {
        match self.form.below(100) {
            0..60 => self.leaf(text),
            60..66 => format!("NOT ({})", self.leaf(text)),
            66..75 => format!("{} AND {}", self.part(text), self.part(text)),
            75..84 => format!("{} OR {}", self.part(text), self.part(text)),
            84..89 => {
                self.kinds.insert("CASE");
                let (when, then, otherwise) = (self.leaf(text), self.leaf(text), self.leaf(text));
                let name = &text.name;
                match self.form.below(6) {
                    0 => format!("CASE WHEN {when} THEN {then} ELSE {otherwise} END"),
                    1 => format!("CASE WHEN {when} THEN {then} END"),
                    2 => format!(
                        "CASE WHEN {when} THEN false WHEN {then} THEN true ELSE {otherwise} END"
                    ),
                    3 => format!("CASE WHEN {name} IS NULL THEN true ELSE {otherwise} END"),
                    4 => format!("CASE WHEN {when} THEN {then} ELSE true END"),
                    _ => {
                        let constant = self.constant(text);
                        format!("CASE {name} WHEN {constant} THEN true ELSE {otherwise} END")
                    }
                }
            }
            89..92 => {
                self.kinds.insert("coalesce");
                let default = self.form.chance(50);
                format!("coalesce({}, {default})", self.leaf(text))
            }
            92..98 => {
                self.kinds.insert("IS TRUE");
                let is = self.form.pick(&[
                    "TRUE",
                    "NOT TRUE",
                    "FALSE",
                    "NOT FALSE",
                    "UNKNOWN",
                    "NOT UNKNOWN",
                ]);
                format!("({}) IS {is}", self.leaf(text))
            }
            _ => {
                let op = *self.form.pick(&["=", "<>", "IS DISTINCT FROM"]);
                format!("({}) {op} ({})", self.leaf(text), self.leaf(text))
            }
        }
    }

    /// A test of the numbers beside text.
    pub fn of_numbers(&mut self) -> String {
        let number = self.random.below(NUMBERS + 100);
        match self.form.below(8) {
            0..3 => format!("t.n < {number}"),
            3..5 => format!("t.n BETWEEN {} AND {number}", number / 2),
            5..7 => format!("t.k = {}", self.random.below(GROUPS + 1)),
            _ => "t.n IS NOT NULL".into(),
        }
    }

    /// A comparison of two columns.
    pub fn of_columns(&mut self, one: &Text, other: &Text) -> String {
        self.kinds.insert("two columns");
        let op = *self.form.pick(OPERATORS);
        let (a, b) = (&one.name, &other.name);
        if one.is_binary() || other.is_binary() {
            return format!("{a} {op} {b}");
        }
        match self.form.below(8) {
            0..3 => format!("{a} {op} {b}"),
            3 => format!("{a} IS DISTINCT FROM {b}"),
            4 => format!("starts_with({a}, {b})"),
            5 => format!("coalesce({a}, {b}) {op} {}", self.constant(one)),
            6 => format!("length({a}) {op} length({b})"),
            _ => format!("concat({a}, {b}) {op} {}", self.constant(one)),
        }
    }

    fn part(&mut self, text: &Text) -> String {
        match self.form.chance(25) {
            true => format!("({})", self.of_column(text)),
            false => format!("({})", self.leaf(text)),
        }
    }

    /// One test of one column.
    pub fn leaf(&mut self, text: &Text) -> String {
        let kinds = if text.is_binary() {
            BINARY_KINDS
        } else {
            KINDS
        };
        let kind = self.random.weighted(kinds);
        self.kinds.insert(kind);
        let (name, op) = (&text.name, *self.random.pick(OPERATORS));
        let not = if self.random.chance(30) { "NOT " } else { "" };
        match kind {
            "comparison" => match self.random.chance(20) {
                true => format!("{} {op} {name}", self.constant(text)),
                false => format!("{name} {op} {}", self.constant(text)),
            },
            "BETWEEN" => {
                let mut bounds = [self.bytes(text), self.bytes(text)];
                if self.random.chance(85) {
                    bounds.sort();
                }
                let [low, high] = bounds.map(|bound| literal(&bound, text));
                format!("{name} {not}BETWEEN {low} AND {high}")
            }
            "IN" => format!("{name} {not}IN ({})", self.list(text)),
            "LIKE" | "ILIKE" => {
                let pattern = literal(self.pattern(text).as_bytes(), text);
                let escape = if self.random.chance(5) {
                    " ESCAPE '\\'"
                } else {
                    ""
                };
                format!("{name} {not}{kind} {pattern}{escape}")
            }
            "starts_with" | "ends_with" | "contains" => {
                let sample = self.sample(text);
                let part = self.piece(&sample);
                format!("{not}{kind}({name}, {})", quoted(&part))
            }
            "strpos" => {
                let sample = self.sample(text);
                let part = quoted(&self.piece(&sample));
                let index = *self.random.pick(&[0, 0, 0, 1, 1, 2, 5]);
                match self.random.below(4) {
                    0 => format!("position({part} IN {name}) {op} {index}"),
                    1 => format!("{index} {op} strpos({name}, {part})"),
                    _ => format!("strpos({name}, {part}) {op} {index}"),
                }
            }
            "substr" | "left" | "right" => self.part_of_text(text, kind, op, not),
            "length" => {
                let sample = self.bytes(text);
                let functions = [
                    "length",
                    "char_length",
                    "character_length",
                    "octet_length",
                    "bit_length",
                ];
                let function = *self.random.pick(&functions);
                let length = match self.random.chance(60) {
                    true => sample.len(),
                    false => self.random.below(150),
                };
                match self.random.chance(15) {
                    true => format!("{function}({name}) {not}IN (0, 3, {length}, NULL)"),
                    false => format!("{function}({name}) {op} {length}"),
                }
            }
            "upper" => {
                let function = *self.random.pick(&["upper", "lower"]);
                let sample = self.sample(text);
                let changed = match function {
                    "upper" => sample.to_uppercase(),
                    _ => sample.to_lowercase(),
                };
                match self.random.below(3) {
                    0 => format!(
                        "{function}({name}) LIKE {}",
                        quoted(&format!("%{}%", self.piece(&changed)))
                    ),
                    _ => format!("{function}({name}) {op} {}", quoted(&changed)),
                }
            }
            "IS NULL" => format!("{name} IS {not}NULL"),
            "IS DISTINCT FROM" => {
                let constant = match self.random.chance(15) {
                    true => "NULL".into(),
                    false => self.constant(text),
                };
                format!("{name} IS {not}DISTINCT FROM {constant}")
            }
            "regular expression" => self.regular_expression(text),
            "cast" => match self.random.below(3) {
                0 => format!("CAST({name} AS VARCHAR) {op} {}", self.constant(text)),
                1 => format!(
                    "arrow_cast({name}, 'LargeUtf8') {op} {}",
                    self.constant(text)
                ),
                _ => format!(
                    "{name} {op} arrow_cast({}, 'Utf8View')",
                    self.constant(text)
                ),
            },
            _ => self.function(text, op),
        }
    }

    /// Compares a part of each string with that of a sample.
    fn part_of_text(&mut self, text: &Text, kind: &str, op: &str, not: &str) -> String {
        let name = &text.name;
        let characters: Vec<char> = self.sample(text).chars().collect();
        let first = self.random.below(characters.len().clamp(1, 12));
        let most = self.random.below(6);
        let odd = *self
            .random
            .pick(&[-3i64, -1, 0, 1, 1000, i64::from(i32::MAX)]);
        let (first_place, count) = match self.random.chance(80) {
            true => (first as i64 + 1, most as i64),
            false => (odd, self.random.below(5) as i64),
        };
        let (from, to) = match kind {
            "substr" => (first, first + most),
            "left" => (0, most),
            _ => (characters.len().saturating_sub(most), characters.len()),
        };
        let (from, to) = (from.min(characters.len()), to.min(characters.len()));
        let part: String = characters[from..to].iter().collect();
        let of = match (kind, self.random.below(5)) {
            ("substr", 0) => format!("substring({name} FROM {first_place} FOR {count})"),
            ("substr", 1) => format!("substring({name} FROM {first_place})"),
            ("substr", 2) => format!("substr({name}, {first_place})"),
            ("substr", 3) => format!("left(substr({name}, {first_place}), {count})"),
            ("substr", _) => format!("substr({name}, {first_place}, {count})"),
            (kind, 0) => format!("{kind}({name}, {odd})"),
            (kind, _) => format!("{kind}({name}, {most})"),
        };
        match self.random.below(6) {
            0 => {
                let others = (0..self.random.below(4)).map(|_| {
                    let other = self.sample(text);
                    quoted(&self.piece(&other))
                });
                let list: Vec<String> = others.chain([quoted(&part)]).collect();
                format!("{of} {not}IN ({})", list.join(", "))
            }
            1 => format!(
                "{of} {not}LIKE {}",
                quoted(&format!("{}%", self.piece(&part)))
            ),
            2 => format!("length({of}) {op} {most}"),
            _ => format!("{of} {op} {}", quoted(&part)),
        }
    }

    fn list(&mut self, text: &Text) -> String {
        let most = self.random.weighted(&[(60, 6), (40, 40)]);
        let mut values: Vec<String> = (0..1 + self.random.below(most))
            .map(|_| self.constant(text))
            .collect();
        if self.random.chance(10) {
            values.push("NULL".into());
        }
        values.join(", ")
    }

    fn regular_expression(&mut self, text: &Text) -> String {
        let sample = self.sample(text);
        let (one, other) = (self.escaped_piece(&sample), self.escaped_piece(&sample));
        let pattern = match self.random.below(10) {
            0 => one,
            1 => format!("^{one}"),
            2 => format!("{one}$"),
            3 => format!("^{one}$"),
            4 => format!("{one}.*{other}"),
            5 => format!("{one}|{other}"),
            6 => format!("^({one}|{other})"),
            7 => format!("[a-c]{one}?"),
            8 => r"^\w+\s\S*".into(),
            _ => r"[[:digit:]]{3,}".into(),
        };
        let (name, pattern) = (&text.name, quoted(&pattern));
        match self.random.below(6) {
            0 => format!("{name} ~* {pattern}"),
            1 => format!("{name} !~ {pattern}"),
            2 => format!("{name} !~* {pattern}"),
            3 => format!("regexp_like({name}, {pattern})"),
            _ => format!("{name} ~ {pattern}"),
        }
    }

    /// A test by functions that need values, not codes.
    fn function(&mut self, text: &Text, op: &str) -> String {
        let (name, constant) = (&text.name, self.constant(text));
        match self.random.below(9) {
            0 => format!("trim({name}) {op} {constant}"),
            1 => format!("reverse({name}) {op} {constant}"),
            2 => format!("replace({name}, 'a', 'bb') {op} {constant}"),
            3 => format!("{name} || 'x' {op} {constant}"),
            4 => format!("concat({name}, 'x') {op} {constant}"),
            5 => format!("nullif({name}, {constant}) IS NULL"),
            6 => format!("coalesce({name}, 'none') {op} {constant}"),
            7 => format!("split_part({name}, ' ', 2) {op} {constant}"),
            _ => format!("ascii({name}) {op} {}", self.random.below(200)),
        }
    }

    /// A pattern that some strings may match.
    fn pattern(&mut self, text: &Text) -> String {
        let sample = self.sample(text);
        let piece = |this: &mut Self| this.like_piece(&sample);
        match self.random.below(18) {
            0 => piece(self),
            1..4 => format!("{}%", piece(self)),
            4..6 => format!("%{}", piece(self)),
            6..9 => format!("%{}%", piece(self)),
            9 => format!("{}%{}", piece(self), piece(self)),
            10 => format!("%{}%{}%", piece(self), piece(self)),
            11 => format!("_{}%", piece(self)),
            12 => format!("%{}_", piece(self)),
            13 => format!("%{}_%{}", piece(self), piece(self)),
            14 => {
                let parts = 1 + self.random.below(6);
                (0..parts)
                    .map(|_| {
                        *self
                            .random
                            .pick(&["%", "_", "\\%", "\\_", "\\\\", "a", "é", "b"])
                    })
                    .collect()
            }
            _ => {
                let shown: Vec<char> = sample.chars().take(20).collect();
                let hidden = shown
                    .iter()
                    .map(|c| if self.random.chance(30) { '_' } else { *c });
                let hidden: String = hidden.collect();
                let rest = if shown.len() == 20 { "%" } else { "" };
                hidden + rest
            }
        }
    }

    /// A piece of a string as a pattern that matches it; occasionally as one that may not.
    fn like_piece(&mut self, sample: &str) -> String {
        let piece = self.piece(sample);
        match self.random.chance(80) {
            true => piece.chars().flat_map(escaped_for_like).collect(),
            false => piece,
        }
    }

    fn escaped_piece(&mut self, sample: &str) -> String {
        let piece = self.piece(sample);
        let escaped = piece.chars().flat_map(|c| {
            let is_special = r"\.+*?()|[]{}^$#&-~".contains(c);
            is_special.then_some('\\').into_iter().chain([c])
        });
        escaped
            .take(30)
            .collect::<String>()
            .trim_end_matches('\\')
            .into()
    }

    /// Some characters of a string, mostly few.
    fn piece(&mut self, sample: &str) -> String {
        let characters: Vec<char> = sample.chars().collect();
        let from = self.random.below(characters.len());
        let most = self.random.weighted(&[(70, 5), (25, 20), (5, 200)]);
        let piece: String = characters
            .into_iter()
            .skip(from)
            .take(self.random.below(most + 1))
            .collect();
        match self.random.chance(10) {
            true => piece.to_uppercase(),
            false => piece,
        }
    }

    fn sample(&mut self, text: &Text) -> String {
        let sample: &Vec<u8> = self.random.pick(&text.samples);
        String::from_utf8_lossy(sample).into_owned()
    }

    fn constant(&mut self, text: &Text) -> String {
        literal(&self.bytes(text), text)
    }

    /// A value of the column, or one near it.
    fn bytes(&mut self, text: &Text) -> Vec<u8> {
        let mut bytes = self.random.pick(&text.samples).clone();
        let index = self.random.below(bytes.len());
        match self.random.below(20) {
            0..9 => {}
            9..11 => bytes.truncate(index),
            11 => drop(bytes.drain(..index)),
            12 => bytes.push(b'a'),
            13 => bytes.push(0),
            14..16 if !bytes.is_empty() => {
                let byte = *self
                    .random
                    .pick(&[bytes[index] ^ 1, bytes[index] ^ 0x20, b'z', 0x7f]);
                bytes[index] = byte;
            }
            16 => bytes.clear(),
            17 => bytes = bytes.repeat(1 + self.random.below(200 / bytes.len().max(1))),
            18 => bytes.extend("\u{10ffff}".bytes()),
            _ => bytes = b"b".to_vec(),
        }
        match text.is_binary() {
            true => bytes,
            // Bytes that were cut within a character.
            false => String::from_utf8_lossy(&bytes).into_owned().into_bytes(),
        }
    }
}

fn escaped_for_like(c: char) -> impl Iterator<Item = char> {
    let is_special = matches!(c, '%' | '_' | '\\');
    is_special.then_some('\\').into_iter().chain([c])
}

fn literal(bytes: &[u8], text: &Text) -> String {
    match text.is_binary() {
        true => format!(
            "X'{}'",
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        ),
        false => quoted(&String::from_utf8_lossy(bytes)),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
