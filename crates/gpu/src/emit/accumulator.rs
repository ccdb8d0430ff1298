//! Code for accumulators in any location: initial values, updates by a row, and merging.

use super::value::Value;
use crate::kernel::Accumulator;
use vectile_pipeline::Type;

/// A table of groups: a column per accumulator, with as many words per group as it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// Code for its address.
    pub base: &'a str,
    /// Code for the number of groups.
    pub groups: &'a str,
}

impl Table<'_> {
    /// Code for the address of a group's accumulator. `before` is the number of words per group of all columns before.
    pub fn address(self, group: &str, accumulator: Accumulator, before: usize) -> String {
        let Self { base, groups, .. } = self;
        let own = match accumulator.words() {
            1 => group.to_string(),
            words => format!("{words} * (u64){group}"),
        };
        match before {
            0 => format!("{base} + {own}"),
            _ => format!("{base} + ({own} + {before} * {groups})"),
        }
    }
}

impl Accumulator {
    /// Code for its initial value.
    pub(super) fn first(self) -> String {
        match self {
            Self::Min(_) => format!("greatest<{}>()", self.name()),
            Self::Max(_) => format!("least<{}>()", self.name()),
            _ => "0".into(),
        }
    }

    /// Code for a row's value, in the accumulator's type.
    pub(super) fn row_value(self, value: Option<&Value>) -> String {
        let code = match (self, value) {
            (Self::Count { .. }, _) | (_, None) => return "1".into(),
            (_, Some(value)) => &value.code,
        };
        match self {
            Self::Min(Type::F32 | Type::F64) | Self::Max(Type::F32 | Type::F64) => {
                format!("(i64)key_of({code})")
            }
            Self::Sum { wide: true } => format!("(u128)(i128){code}"),
            _ => format!("({}){code}", self.name()),
        }
    }

    /// Code that adds `other`, of the same type, to `name`.
    pub(super) fn merge(self, name: &str, other: &str) -> String {
        match self {
            Self::Min(_) => format!("{name} = {other} < {name} ? {other} : {name};"),
            Self::Max(_) => format!("{name} = {other} > {name} ? {other} : {name};"),
            _ => format!("{name} += {other};"),
        }
    }

    /// Code that merges only if `condition` is true: minimum and maximum have one branch for both conditions.
    pub(super) fn merge_if(self, condition: &str, name: &str, other: &str) -> String {
        match self {
            Self::Min(_) => format!("if ({condition} && {other} < {name}) {name} = {other};"),
            Self::Max(_) => format!("if ({condition} && {other} > {name}) {name} = {other};"),
            _ => format!("if ({condition}) {}", self.merge(name, other)),
        }
    }

    /// The function that stores the merged accumulators of a warp's threads.
    pub(super) fn store(self) -> &'static str {
        match self {
            Self::Min(_) => "store_min",
            Self::Max(_) => "store_max",
            _ => "store_sum",
        }
    }

    /// Code that loads it from a thread's words, from index `word` on.
    pub(super) fn load(self, word: usize) -> String {
        let (low, high) = (32 * word, 32 * (word + 1));
        match self.name() {
            "double" => format!("__longlong_as_double((i64)kept[{low}])"),
            name if self.words() == 2 => {
                format!("({name})((u128)kept[{high}] << 64 | kept[{low}])")
            }
            name => format!("({name})kept[{low}]"),
        }
    }

    /// Code that stores it in a thread's words, from index `word` on.
    pub(super) fn save(self, word: usize, value: &str) -> String {
        let (low, high) = (32 * word, 32 * (word + 1));
        match self.name() {
            "double" => format!("kept[{low}] = (u64)__double_as_longlong({value});"),
            _ if self.words() == 2 => {
                format!("kept[{low}] = (u64){value}; kept[{high}] = (u64)((u128){value} >> 64);")
            }
            _ => format!("kept[{low}] = (u64){value};"),
        }
    }

    /// Code that adds a row to the words of a table at `to`, which are zero initially.
    pub(super) fn add_to(self, to: &str, is_shared: bool, value: Option<&Value>) -> String {
        let suffix = if is_shared { "_shared" } else { "" };
        let value = self.row_value(value);
        match self {
            Self::Count { wide: false } if is_shared => format!("count_shared({to});"),
            Self::Count { wide: false } => format!("add({to}, (u64){value});"),
            Self::Count { wide: true } | Self::Sum { wide: false } => {
                format!("add{suffix}({to}, (u64){value});")
            }
            Self::DistinctCount => format!("if ({value}) add{suffix}({to}, 1ull);"),
            Self::Sum { wide: true } => format!("add_wide{suffix}({to}, {value});"),
            Self::FloatSum => format!("add({to}, {value});"),
            Self::Min(_) => format!("raise({to}, ~ordered({value}));"),
            Self::Max(_) => format!("raise({to}, ordered({value}));"),
            Self::KeyPart => format!("keep_part({to}, {value} + 1, (u64*)a.word[5]);"),
        }
    }

    /// Code that merges the accumulator at `from` in a table into the one at `to` in global memory.
    pub(super) fn merge_tables(self, to: &str, from: &str) -> String {
        match self {
            Self::Count { .. } | Self::DistinctCount | Self::Sum { wide: false } => {
                format!("add({to}, *({from}));")
            }
            Self::Sum { wide: true } => format!("add_wide({to}, wide_at({from}));"),
            Self::FloatSum => format!("add({to}, __longlong_as_double((i64)*({from})));"),
            Self::Min(_) | Self::Max(_) => format!("raise({to}, *({from}));"),
            Self::KeyPart => format!("keep_part({to}, *({from}), (u64*)a.word[5]);"),
        }
    }
}
