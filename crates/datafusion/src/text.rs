//! Predicates over one text column as automata.
//!
//! An automaton tests strings that are not null, and constants are not null either. So no part of a predicate is null,
//! and `NOT` is the complement.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions::string::contains::ContainsFunc;
use datafusion::functions::string::ends_with::EndsWithFunc;
use datafusion::functions::string::octet_length::OctetLengthFunc;
use datafusion::functions::string::starts_with::StartsWithFunc;
use datafusion::functions::unicode::character_length::CharacterLengthFunc;
use datafusion::functions::unicode::left::LeftFunc;
use datafusion::functions::unicode::strpos::StrposFunc;
use datafusion::functions::unicode::substr::SubstrFunc;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use vectile_encodings::Automaton;

use crate::stack;

/// Maximum nesting depth of a predicate.
const MAX_LEVELS: usize = 128;

/// The automaton for the strings of its one column that pass `expr`, whose columns are those of `schema`. `None` if no
/// automaton decides it.
pub(crate) fn automaton(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Automaton> {
    if stack::levels([expr]) > MAX_LEVELS {
        return None;
    }
    Text { schema }.test(expr)
}

/// Returns true for strings and binary.
pub(crate) fn is_text(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

/// Returns true if a cast maps distinct values to distinct values and casting back restores them.
pub(crate) fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let is_string = |of: &DataType| matches!(of, Utf8 | LargeUtf8 | Utf8View);
    if from.is_integer() && to.is_integer() {
        let (narrow, wide) = (from.primitive_width(), to.primitive_width());
        return match (from.is_signed_integer(), to.is_signed_integer()) {
            (true, false) => false,
            (false, true) => narrow < wide,
            _ => narrow <= wide,
        };
    }
    from == to || is_string(from) && is_string(to)
}

struct Text<'a> {
    schema: &'a Schema,
}

impl Text<'_> {
    /// Accepts the strings for which `expr`, a boolean, is true.
    fn test(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Automaton> {
        if let Some(constant) = expr.downcast_ref::<Literal>() {
            return match constant.value() {
                ScalarValue::Boolean(passes) => passes.map(Automaton::constant),
                _ => None,
            };
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return Some(self.test(not.arg())?.not());
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return self.passing_any(is_null.arg(), false);
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            return self.passing_any(is_not_null.arg(), true);
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(binary);
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            let (pattern, ignores_case) = (like.pattern(), like.case_insensitive());
            return self.matched(
                Automaton::like,
                like.expr(),
                pattern,
                ignores_case,
                like.negated(),
            );
        }
        if let Some(in_list) = expr.downcast_ref::<InListExpr>() {
            let values: Option<Vec<_>> = in_list.list().iter().map(bytes).collect();
            let passed = Automaton::one_of(values?)?;
            return self.passing(in_list.expr(), negated(passed, in_list.negated()));
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return self.case(case);
        }
        let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let [of, part] = function.args() else {
            return None;
        };
        let inner = function.fun().inner();
        self.passing_text(
            of,
            if inner.is::<StartsWithFunc>() {
                Automaton::starts_with(string(part)?)?
            } else if inner.is::<EndsWithFunc>() {
                Automaton::ends_with(string(part)?)?
            } else if inner.is::<ContainsFunc>() {
                Automaton::contains(string(part)?)?
            } else {
                return None;
            },
        )
    }

    fn binary(&self, binary: &BinaryExpr) -> Option<Automaton> {
        let (left, right) = (binary.left(), binary.right());
        let are_tests = left.data_type(self.schema).ok()? == DataType::Boolean;
        match binary.op() {
            Operator::And => self.test(left)?.and(&self.test(right)?),
            Operator::Or => self.test(left)?.or(&self.test(right)?),
            Operator::LikeMatch => self.matched(Automaton::like, left, right, false, false),
            Operator::ILikeMatch => self.matched(Automaton::like, left, right, true, false),
            Operator::NotLikeMatch => self.matched(Automaton::like, left, right, false, true),
            Operator::NotILikeMatch => self.matched(Automaton::like, left, right, true, true),
            Operator::RegexMatch => self.matched(Automaton::regex, left, right, false, false),
            Operator::RegexIMatch => self.matched(Automaton::regex, left, right, true, false),
            Operator::RegexNotMatch => self.matched(Automaton::regex, left, right, false, true),
            Operator::RegexNotIMatch => self.matched(Automaton::regex, left, right, true, true),
            Operator::Eq | Operator::IsNotDistinctFrom if are_tests => self.equal(left, right),
            Operator::NotEq | Operator::IsDistinctFrom if are_tests => {
                Some(self.equal(left, right)?.not())
            }
            op if right.downcast_ref::<Literal>().is_some() => self.compared(left, *op, right),
            op => self.compared(right, op.swap()?, left),
        }
    }

    /// Accepts the strings for which both predicates have the same value.
    fn equal(
        &self,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<Automaton> {
        let (left, right) = (self.test(left)?, self.test(right)?);
        left.and(&right)?.or(&left.not().and(&right.not())?)
    }

    /// Accepts the strings that a pattern matches, or does not match.
    fn matched(
        &self,
        by: fn(&str, bool) -> Option<Automaton>,
        of: &Arc<dyn PhysicalExpr>,
        pattern: &Arc<dyn PhysicalExpr>,
        ignores_case: bool,
        is_negated: bool,
    ) -> Option<Automaton> {
        let passed = by(string(pattern)?, ignores_case)?;
        self.passing_text(of, negated(passed, is_negated))
    }

    /// The first condition that is true decides. Without an `ELSE`, the result may be null.
    fn case(&self, case: &CaseExpr) -> Option<Automaton> {
        let (None, Some(otherwise)) = (case.expr(), case.else_expr()) else {
            return None;
        };
        let branches = case.when_then_expr().iter().rev();
        branches
            .map(|(when, then)| Some((self.test(when)?, self.test(then)?)))
            .try_fold(self.test(otherwise)?, |otherwise, branch| {
                let (when, then) = branch?;
                when.and(&then)?.or(&when.not().and(&otherwise)?)
            })
    }

    /// Accepts the strings for which `of` compares to a constant as `op` says. `of` is text, or a number computed from
    /// text.
    fn compared(
        &self,
        of: &Arc<dyn PhysicalExpr>,
        op: Operator,
        constant: &Arc<dyn PhysicalExpr>,
    ) -> Option<Automaton> {
        let passes = match op {
            Operator::Eq | Operator::IsNotDistinctFrom => Ordering::is_eq,
            Operator::NotEq | Operator::IsDistinctFrom => Ordering::is_ne,
            Operator::Lt => Ordering::is_lt,
            Operator::LtEq => Ordering::is_le,
            Operator::Gt => Ordering::is_gt,
            Operator::GtEq => Ordering::is_ge,
            _ => return None,
        };
        match bytes(constant) {
            Some(constant) => self.passing(of, Automaton::compared(constant, passes)?),
            None => {
                let constant = number(constant)?;
                self.number(of, constant, |number| passes(number.cmp(&constant)))
            }
        }
    }

    /// Accepts the strings for which the number `of` satisfies `passes`. All numbers above `constant` do, or none.
    fn number(
        &self,
        of: &Arc<dyn PhysicalExpr>,
        constant: i64,
        passes: impl Fn(i64) -> bool,
    ) -> Option<Automaton> {
        if let Some(cast) = of.downcast_ref::<CastExpr>() {
            let from = cast.expr().data_type(self.schema).ok()?;
            let is_lossless = from.is_integer() && is_lossless(&from, cast.cast_type());
            return is_lossless.then(|| self.number(cast.expr(), constant, passes))?;
        }
        let function = of.downcast_ref::<ScalarFunctionExpr>()?;
        let inner = function.fun().inner();
        let most = usize::try_from(constant).map_or(0, |constant| constant.saturating_add(1));
        let length_passes = |length| i64::try_from(length).is_ok_and(&passes);
        match function.args() {
            [of] if inner.is::<CharacterLengthFunc>() => {
                self.passing_text(of, Automaton::of_characters(most, length_passes)?)
            }
            [of] if inner.is::<OctetLengthFunc>() => {
                self.passing_text(of, Automaton::of_bytes(most, length_passes)?)
            }
            // The automaton shows whether the part occurs, not where.
            [of, part] if inner.is::<StrposFunc>() && constant <= 1 && passes(1) == passes(2) => {
                let contains = Automaton::contains(string(part)?)?;
                let passed = match (passes(0), passes(1)) {
                    (absent, present) if absent == present => Automaton::constant(present),
                    (absent, _) => negated(contains, absent),
                };
                self.passing_text(of, passed)
            }
            _ => None,
        }
    }

    /// Accepts all strings or none, if `of` is a predicate or text.
    fn passing_any(&self, of: &Arc<dyn PhysicalExpr>, passes: bool) -> Option<Automaton> {
        let any = Automaton::constant(passes);
        match of.data_type(self.schema).ok()? {
            DataType::Boolean => self.test(of).map(|_| any),
            _ => self.passing(of, any),
        }
    }

    /// As [`Text::passing`], but only if `of` is UTF-8.
    fn passing_text(&self, of: &Arc<dyn PhysicalExpr>, test: Automaton) -> Option<Automaton> {
        match of.data_type(self.schema).ok()? {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => self.passing(of, test),
            _ => None,
        }
    }

    /// Accepts the strings for which the text `of` passes `test`.
    fn passing(&self, of: &Arc<dyn PhysicalExpr>, test: Automaton) -> Option<Automaton> {
        if of.downcast_ref::<Column>().is_some() {
            return is_text(&of.data_type(self.schema).ok()?).then_some(test);
        }
        if let Some(cast) = of.downcast_ref::<CastExpr>() {
            let from = cast.expr().data_type(self.schema).ok()?;
            return is_lossless(&from, cast.cast_type())
                .then(|| self.passing(cast.expr(), test))?;
        }
        let function = of.downcast_ref::<ScalarFunctionExpr>()?;
        let inner = function.fun().inner();
        match function.args() {
            [of, most] if inner.is::<LeftFunc>() => {
                let most = usize::try_from(number(most)?).ok()?;
                self.passing_text(of, test.of_front(most)?)
            }
            [of, first, most @ ..] if inner.is::<SubstrFunc>() => {
                // The length of `substr` includes positions before the first character.
                let skipped = number(first)?.checked_sub(1)?;
                let before = usize::try_from(skipped).unwrap_or_default();
                let test = match most {
                    [] => test,
                    [most] => {
                        let most = number(most).filter(|most| *most >= 0)?;
                        let end = skipped.saturating_add(most);
                        let end = usize::try_from(end).unwrap_or_default();
                        test.of_front(end.saturating_sub(before))?
                    }
                    _ => return None,
                };
                self.passing_text(of, test.of_rest(before)?)
            }
            _ => None,
        }
    }
}

fn negated(automaton: Automaton, is_negated: bool) -> Automaton {
    match is_negated {
        true => automaton.not(),
        false => automaton,
    }
}

/// A constant text.
fn string(expr: &Arc<dyn PhysicalExpr>) -> Option<&str> {
    let constant = expr.downcast_ref::<Literal>()?.value();
    constant.try_as_str().flatten()
}

/// A constant text or binary.
fn bytes(expr: &Arc<dyn PhysicalExpr>) -> Option<&[u8]> {
    use ScalarValue::{Binary, BinaryView, LargeBinary};
    match expr.downcast_ref::<Literal>()?.value() {
        Binary(bytes) | LargeBinary(bytes) | BinaryView(bytes) => bytes.as_deref(),
        _ => string(expr).map(str::as_bytes),
    }
}

/// A constant integer.
fn number(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    let constant = expr.downcast_ref::<Literal>()?.value();
    let constant = constant.data_type().is_integer().then_some(constant)?;
    match constant.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(constant) => constant,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Array, ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch, StringArray,
    };
    use arrow::compute::cast;
    use arrow::datatypes::Field;
    use datafusion::common::DFSchema;
    use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
    use datafusion::prelude::SessionContext;

    use super::*;

    const STRINGS: &[&str] = &[
        "",
        "a",
        "A",
        "ab",
        "abc",
        "ABC",
        "aXbXc",
        "b",
        "ba",
        "13",
        "13-555",
        "31-1",
        "1",
        "é",
        "éa",
        "aé",
        "josé楽",
        "楽楽楽",
        "𐀀",
        "\u{212a}",
        "k",
        "\u{17f}pecial",
        "special requests",
        "no specialrequest",
        "very Special or\nspecial\nrequests!",
        "requests special",
        "a\nb",
        "\n",
        "%",
        "_",
        "a%",
        "a_b",
        "\\",
        "a\\",
        "forest green tint",
        "forest",
        "a string that is longer than most of the others, so that it is not short",
        "\0",
        "z",
        "\u{10ffff}",
    ];

    fn columns() -> Schema {
        use DataType::*;
        let of_type = |data_type: DataType| Field::new(data_type.to_string(), data_type, true);
        let fields = [Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView].map(of_type);
        let others = [
            Field::new("other", Utf8, true),
            Field::new("number", Int32, true),
        ];
        Schema::new(fields.into_iter().chain(others).collect::<Vec<_>>())
    }

    fn rows() -> RecordBatch {
        let strings: ArrayRef = Arc::new(StringArray::from(STRINGS.to_vec()));
        let schema = columns();
        let columns = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Int32 => Arc::new(Int32Array::from(vec![7; STRINGS.len()])),
            data_type => cast(&strings, data_type).unwrap(),
        });
        let columns = columns.collect();
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }

    fn physical(sql: &str) -> Arc<dyn PhysicalExpr> {
        let ctx = SessionContext::new();
        let schema = DFSchema::try_from(columns()).unwrap();
        let expr = ctx.parse_sql_expr(sql, &schema).unwrap();
        let expr = ctx.create_physical_expr(expr, &schema).unwrap();
        // Casts of constants are constants in plans.
        PhysicalExprSimplifier::new(schema.as_arrow())
            .simplify(expr)
            .unwrap()
    }

    fn passed(expr: &Arc<dyn PhysicalExpr>) -> BooleanArray {
        let passed = expr.evaluate(&rows()).unwrap();
        passed
            .into_array(STRINGS.len())
            .unwrap()
            .as_boolean()
            .clone()
    }

    /// `sql` with `#` replaced by the column of this type.
    fn of(sql: &str, data_type: &str) -> String {
        sql.replace('#', &format!("\"{data_type}\""))
    }

    /// Asserts that the predicate has an automaton that agrees with DataFusion.
    fn check(expr: &Arc<dyn PhysicalExpr>) {
        let automaton = automaton(expr, &columns());
        let automaton = automaton.unwrap_or_else(|| panic!("no automaton for {expr}"));
        let passed = passed(expr);
        assert_eq!(passed.null_count(), 0, "{expr}");
        for (string, passes) in STRINGS.iter().zip(passed.values()) {
            let matches = automaton.matches(string.as_bytes());
            assert_eq!(matches, passes, "{expr} of {string:?}");
        }
    }

    #[test]
    fn automata_agree_with_datafusion() {
        for sql in [
            "# = 'ab'",
            "# <> 'ab'",
            "'b' > #",
            "# < 'é'",
            "# >= 'ab' AND # < 'b'",
            "# BETWEEN 'A' AND 'a'",
            "# NOT BETWEEN 'A' AND 'a'",
            "# IS DISTINCT FROM 'ab'",
            "# IN ('a', 'ab', 'abc', 'é', '')",
            "# NOT IN ('a', 'ab', 'abc', 'é', 'z')",
            "# = '' OR # = 'é' OR NOT (# < 'z' AND # > 'a')",
            "# IS NULL OR # > 'b'",
            "# IS NOT NULL AND # > 'b'",
            "(# LIKE 'a%') IS TRUE",
            "(# LIKE 'a%') IS NOT TRUE",
            "(# LIKE 'a%') IS NOT FALSE",
            "(# LIKE 'a%') IS NULL OR # = 'b'",
            "(# LIKE 'a%') = (# LIKE '%b%')",
            "(# LIKE 'a%') <> (# > 'b')",
            "CASE WHEN (# LIKE 'a%') IS NOT NULL THEN # LIKE 'a%' ELSE true END",
            "CASE WHEN # = 'a' THEN false WHEN # < 'b' THEN # LIKE '_b%' ELSE # > 'c' END",
            "CASE WHEN # IS NULL THEN true ELSE # LIKE 'a%' END",
            "# LIKE 'a%'",
            "# LIKE '%special%requests%'",
            "# NOT LIKE '%special%requests%'",
            "# ILIKE '%SPECIAL%'",
            "# NOT ILIKE 'K'",
            "# LIKE '_'",
            "# LIKE '%_b%'",
            "# LIKE 'a\\%'",
            "# LIKE 'a\\\\'",
            "# LIKE '%\\'",
            "# LIKE '%é_'",
            "# ~ 'a.*b|c'",
            "# ~ '^[0-9]+(-[0-9]{1,3})?$'",
            "# ~ '^$'",
            "# ~ ''",
            "# ~ 'é|^楽+$'",
            r"# !~ 's[a-z]*l\s'",
            "# ~* 'SPECIAL.requests'",
            "# !~* '^K$'",
            "# ~ '(?s)a.b'",
            "# ~ '(?m)^special$'",
            r"# ~ '(?-u:\bgreen\b)'",
            r"# ~ '^(?-u:\B)x|é'",
            "substr(#, 2) ~ '^b'",
            "starts_with(#, 'a')",
            "starts_with(#, 'a_')",
            "NOT ends_with(#, 'é')",
            "contains(#, 'special')",
            "contains(#, '')",
            "strpos(#, 'b') > 0",
            "strpos(#, 'b') >= 1",
            "strpos(#, 'b') = 0",
            "strpos(#, 'b') <> 0",
            "strpos(#, 'b') < 1",
            "0 < position('楽' IN #)",
            "instr(#, '') > 0",
            "substr(#, 1, 2) IN ('13', '31', 'é')",
            "substring(# from 1 for 2) NOT IN ('13', '31', 'é', 'a', 'b')",
            "substr(#, 2) = 'b'",
            "substr(#, 2, 1) = ''",
            "substr(#, -1, 3) = 'a'",
            "substr(#, 0) = 'a'",
            "substr(#, 3, 100) > 'c'",
            "substr(#, 1, 2) LIKE '_楽'",
            "left(#, 2) = 'ab'",
            "left(#, 0) = ''",
            "left(substr(#, 2), 1) <> 'b'",
            "character_length(#) = 3",
            "length(#) <> 3",
            "length(#) > 20",
            "length(#) >= 0",
            "2 >= character_length(#)",
            "length(#) > -1",
            "octet_length(#) <= 4",
            "length(substr(#, 2)) = 1",
            "CAST(character_length(#) AS BIGINT) < 2",
            "CAST(# AS VARCHAR) <> 'a'",
        ] {
            for data_type in ["Utf8", "LargeUtf8", "Utf8View"] {
                check(&physical(&of(sql, data_type)));
            }
        }
        for sql in [
            "# = X'6162'",
            "# <= X'c3'",
            "# NOT IN (X'61', X'c3a9', X'', X'62', X'5f')",
            "# BETWEEN X'61' AND X'62' OR # IS NULL",
        ] {
            for data_type in ["Binary", "LargeBinary", "BinaryView"] {
                check(&physical(&of(sql, data_type)));
            }
        }
    }

    #[test]
    fn other_tests_have_no_automaton() {
        let long = format!("# = '{}'", "long ".repeat(26));
        for sql in [
            long.as_str(),
            "# = other",
            "# LIKE other",
            "# > 'a' AND number = 3",
            "# > 'a' OR length(#) > number",
            "number IS NULL",
            "# ILIKE 'é'",
            "# LIKE '%a_________b%'",
            r"# ~ '\bgreen\b'",
            "# ~ other",
            "# ~ 'a[^x]{20}b'",
            r"# ~ '\w{100}{100}{100}'",
            r"# ~ '(?-u:\B)'",
            "CASE WHEN # = 'a' THEN true END",
            "CASE WHEN # = 'a' THEN true END IS NULL",
            "(# = other) IS NOT TRUE",
            "CASE # WHEN 'a' THEN true ELSE # = 'b' END",
            "nullif(#, 'a') = 'b'",
            "lower(#) = 'a'",
            "# || 'a' = 'aa'",
            "left(#, -1) = 'a'",
            "right(#, 1) = 'a'",
            "strpos(#, 'b') = 1",
            "strpos(#, 'b') > 1",
            "strpos('b', #) > 0",
            "substr(#, number) = 'a'",
            "length(#) = 200",
            "TRY_CAST(# AS INT) = 3",
        ] {
            let expr = physical(&of(sql, "Utf8View"));
            assert_eq!(automaton(&expr, &columns()), None, "{sql}: {expr}");
        }
        for sql in ["# LIKE 'a%'", "CAST(# AS VARCHAR) = 'a'"] {
            let expr = physical(&of(sql, "BinaryView"));
            assert_eq!(automaton(&expr, &columns()), None, "{sql}: {expr}");
        }
    }

    #[test]
    fn pattern_operators_are_like_expressions() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("Utf8", 0));
        let pattern: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::from("%SPECIAL%")));
        for op in [
            Operator::LikeMatch,
            Operator::ILikeMatch,
            Operator::NotLikeMatch,
            Operator::NotILikeMatch,
        ] {
            let (column, pattern) = (Arc::clone(&column), Arc::clone(&pattern));
            check(&(Arc::new(BinaryExpr::new(column, op, pattern)) as _));
        }
    }
}
