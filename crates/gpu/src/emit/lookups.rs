//! Code for lookups: masks of rows whose key is in a table, and codes of selected rows.

use std::fmt::Write as _;

use super::generator::{Generator, stored_name};
use super::value::Value;
use crate::kernel::{Argument, GROUP_WORDS, TABLE_WORDS, TableSource, Typed};
use vectile_pipeline::Type;

impl<'a> Generator<'a> {
    /// Code that initializes a table. It is emitted where the table is used: kept across vectors, the table would take
    /// registers that loads need more.
    pub fn table(&mut self, table: usize) -> String {
        let (column, is_hashed) = (self.plan.tables[table].column, self.is_hashed(table));
        self.chunk(column);
        let slot = GROUP_WORDS + self.plan.columns.len() + TABLE_WORDS * table;
        let constructor = match is_hashed {
            true => "hash_table_of",
            false => "table_of",
        };
        format!("{constructor}<C{column}>(h{column}, group + {slot})")
    }

    /// The type of a table.
    pub fn table_type(&self, table: usize) -> &'static str {
        match self.is_hashed(table) {
            true => "HashTable",
            false => "Table",
        }
    }

    pub fn is_hashed(&self, table: usize) -> bool {
        self.plan.tables[table].is_hashed
    }

    /// Declares the row's code in a table, ALL if there is none; its name is `q` and the table's index.
    pub fn code(&mut self, table: usize) {
        let plan = &self.plan.tables[table];
        let column = plan.column;
        let is_nullable = self.plan.columns[column].traits.nullable();
        if plan.is_coded && !is_nullable {
            return self.line(4, format!("const u32 q{table} = y{table}[k];"));
        }
        let row = format!("(b{table}, y{table}[k])");
        let code = match (plan.code_bytes, self.is_known(table)) {
            _ if plan.is_coded => format!("y{table}[k]"),
            (0, true) => "0u".into(),
            (0, false) => format!("is_there{row} ? 0u : ALL"),
            (bytes, true) => format!("found_code<u{}>{row}", bytes * 8),
            (bytes, false) => format!("code_at<u{}>{row}", bytes * 8),
        };
        let is_valid = match is_nullable {
            true => format!("in && (n{column} >> k & 1)"),
            false => "in".into(),
        };
        self.line(
            4,
            format!("const u32 q{table} = {is_valid} ? {code} : ALL;"),
        );
    }

    /// Returns true if all rows that pass the filters are known to have their key in a table, so it is not checked
    /// again.
    pub fn is_known(&self, table: usize) -> bool {
        let table = &self.plan.tables[table];
        !table.is_hashed
            && match table.source {
                TableSource::Lookup(_) => self.is_decided && table.is_matched,
                TableSource::Entries(_) => true,
            }
    }

    /// Code for the mask of the selected rows whose key is in a table.
    pub fn probe_mask(&mut self, lookup: usize, copy: Option<usize>, every: bool) -> String {
        let column = self.plan.tables[lookup].column;
        self.open(column, 2);
        let table = self.table(lookup);
        let tile = self.tile(column);
        self.is_overwritten(column);
        if self.is_hashed(lookup) {
            let rows = match self.valid_rows(column) {
                Some(valid) => format!("m & {valid}"),
                None => "m".into(),
            };
            return format!("found_in<C{column}>(c{column}, {rows}, {table}, {tile})");
        }
        let fits = copy.is_some();
        let bits = match copy {
            None => "(const u32*)0".into(),
            Some(copy) => self.bits_in_shared(lookup, copy),
        };
        let mask =
            format!("found_in<C{column}, {fits}, {every}>(c{column}, m, {table}, {bits}, {tile})");
        self.and_valid(column, mask, false)
    }

    /// The name of a lookup's bits in shared memory, which each block copies there once.
    fn bits_in_shared(&mut self, lookup: usize, copy: usize) -> String {
        let name = format!("f{lookup}");
        if std::mem::replace(&mut self.copied[lookup], true) {
            return name;
        }
        let at = self.argument(Argument::CopyAt(copy));
        let words = self.argument(Argument::CopyWords(copy));
        let from = self.argument(Argument::CopyOf(copy));
        let _ = writeln!(
            self.block,
            "    u32* const {name} = (u32*)(shared + a.word[{at}]);\n    \
             for (u32 i = threadIdx.x; i < a.word[{words}]; i += blockDim.x) \
             {name}[i] = __ldg((const u32*)a.word[{from}] + i);"
        );
        name
    }

    /// Code for the code of a computed key.
    pub fn probe(
        &mut self,
        typed: &Typed,
        key: &'a Typed,
        table: usize,
        is_hashed: bool,
        bytes: usize,
    ) -> Value {
        let key = self.expr(key);
        let is_there = match &key.valid {
            Some(valid) => format!("in && {valid}"),
            None => "in".into(),
        };
        // the arguments must be consecutive
        let words = [0, 1, 2, 3].map(|word| self.argument(Argument::TableWord(table, word)));
        let (of, constructor, slot_lookup) = match is_hashed {
            true => ("HashTable", "hash_table_of", "place_of"),
            false => ("Table", "table_of", "place_in"),
        };
        self.has_codes = true;
        self.has_hashed_codes |= is_hashed;
        let [table, at, code] = [(); 3].map(|()| self.temporary());
        let constructor = format!("{constructor}(a.word + {})", words[0]);
        self.line(4, format!("const {of} {table} = {constructor};"));
        let slot_lookup = format!("{slot_lookup}({table}, (i64)({}))", key.code);
        self.line(
            4,
            format!("const u32 {at} = {is_there} ? {slot_lookup} : ALL;"),
        );
        let value = match bytes {
            0 => format!("is_there({table}, {at}) ? 0u : ALL"),
            bytes => format!("code_at<u{}>({table}, {at})", bytes * 8),
        };
        self.line(4, format!("const u32 {code} = {value};"));
        let valid = format!("({code} != ALL)");
        Value::of(typed, code, Some(valid))
    }

    /// Code for the payload of a row's key.
    pub fn payload(
        &mut self,
        typed: &Typed,
        lookup: usize,
        payload: usize,
        nullable: bool,
    ) -> Value {
        let is_matched = format!("(q{lookup} != ALL)");
        self.payload_of(typed, &format!("q{lookup}"), is_matched, payload, nullable)
    }

    /// Code for the payload of a code; null unless the condition `is_matched` holds.
    pub fn payload_of(
        &mut self,
        typed: &Typed,
        code: &str,
        is_matched: String,
        payload: usize,
        nullable: bool,
    ) -> Value {
        let stored = stored_name(typed.of);
        let at = self.argument(Argument::Values(payload));
        let from = format!("a.word[{at}]");
        let valid = match nullable {
            false => is_matched.clone(),
            true => {
                let at = self.argument(Argument::Validity(payload));
                format!("({is_matched} && ((const u8*)a.word[{at}])[{code}])")
            }
        };
        let name = match typed.of {
            Type::Bool => "bool",
            _ => typed.name(),
        };
        let value =
            format!("({is_matched} ? ({name})((const {stored}*){from})[{code}] : ({name})0)");
        self.named(Value::of(typed, value, Some(valid)))
    }
}
