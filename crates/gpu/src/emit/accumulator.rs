//! Code of accumulators, wherever they are kept: what they start with, how a row updates one, how two are merged.

use super::value::Value;
use crate::kernel::Accumulator;
use crate::plan::Type;

/// Groups in a table: a column for each accumulator, of as many words a group as it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    /// Code for its address.
    pub at: &'a str,
    /// Code for the number of groups.
    pub groups: &'a str,
}

impl Table<'_> {
    /// Code for the address of a group's accumulator, whose column begins behind so many words a group.
    pub fn place(self, group: &str, accumulator: Accumulator, before: usize) -> String {
        let Self { at, groups, .. } = self;
        let own = match accumulator.words() {
            1 => group.to_string(),
            words => format!("{words} * (u64){group}"),
        };
        match before {
            0 => format!("{at} + {own}"),
            _ => format!("{at} + ({own} + {before} * {groups})"),
        }
    }
}

impl Accumulator {
    /// Code for what it starts with.
    pub(super) fn first(self) -> String {
        match self {
            Self::Count { .. } | Self::Sum { .. } | Self::FloatSum => "0".into(),
            Self::Min(_) => format!("greatest<{}>()", self.name()),
            Self::Max(_) => format!("least<{}>()", self.name()),
        }
    }

    /// Code for what a row adds.
    pub(super) fn taken(self, value: Option<&Value>) -> String {
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
            Self::Count { .. } | Self::Sum { .. } | Self::FloatSum => format!("{name} += {other};"),
            Self::Min(_) => format!("{name} = {other} < {name} ? {other} : {name};"),
            Self::Max(_) => format!("{name} = {other} > {name} ? {other} : {name};"),
        }
    }

    /// The same if `condition` is true: extremes have one branch for both.
    pub(super) fn merge_if(self, condition: &str, name: &str, other: &str) -> String {
        match self {
            Self::Min(_) => format!("if ({condition} && {other} < {name}) {name} = {other};"),
            Self::Max(_) => format!("if ({condition} && {other} > {name}) {name} = {other};"),
            _ => format!("if ({condition}) {}", self.merge(name, other)),
        }
    }

    /// The function that leaves behind what the threads of a warp have.
    pub(super) fn store(self) -> &'static str {
        match self {
            Self::Count { .. } | Self::Sum { .. } | Self::FloatSum => "store_sum",
            Self::Min(_) => "store_min",
            Self::Max(_) => "store_max",
        }
    }

    /// Code that reads it from words of a thread, of which this is the first.
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

    /// Code that writes it there.
    pub(super) fn keep(self, word: usize, value: &str) -> String {
        let (low, high) = (32 * word, 32 * (word + 1));
        match self.name() {
            "double" => format!("kept[{low}] = (u64)__double_as_longlong({value});"),
            _ if self.words() == 2 => {
                format!("kept[{low}] = (u64){value}; kept[{high}] = (u64)((u128){value} >> 64);")
            }
            _ => format!("kept[{low}] = (u64){value};"),
        }
    }

    /// Code that adds a row to the words of a table at `to`, which start with zero.
    pub(super) fn add_to(self, to: &str, is_shared: bool, value: Option<&Value>) -> String {
        let suffix = if is_shared { "_shared" } else { "" };
        let value = self.taken(value);
        match self {
            Self::Count { wide: false } if is_shared => format!("count_shared({to});"),
            Self::Count { wide: false } => format!("add({to}, (u64){value});"),
            Self::Count { wide: true } | Self::Sum { wide: false } => {
                format!("add{suffix}({to}, (u64){value});")
            }
            Self::Sum { wide: true } => format!("add_wide{suffix}({to}, {value});"),
            Self::FloatSum => format!("add({to}, {value});"),
            Self::Min(_) => format!("raise({to}, ~ordered({value}));"),
            Self::Max(_) => format!("raise({to}, ordered({value}));"),
        }
    }

    /// Code that adds what is at `from` in a table to what is at `to` in one in global memory.
    pub(super) fn merge_tables(self, to: &str, from: &str) -> String {
        match self {
            Self::Count { .. } | Self::Sum { wide: false } => {
                format!("add({to}, *({from}));")
            }
            Self::Sum { wide: true } => format!("add_wide({to}, wide_at({from}));"),
            Self::FloatSum => format!("add({to}, __longlong_as_double((i64)*({from})));"),
            Self::Min(_) | Self::Max(_) => format!("raise({to}, *({from}));"),
        }
    }
}
