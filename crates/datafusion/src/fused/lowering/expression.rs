//! Lowers physical expressions to the kernels' IR.
//!
//! The semantics of Arrow's types beyond those of machine types become explicit here: scales of decimals, zeros of
//! either sign that compare equal, decimals that do not wrap around. Expressions that could fail on a row are not
//! lowered: the CPU evaluates what DataFusion may answer with an error.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr,
    Literal as PhysicalLiteral, NegativeExpr, NotExpr,
};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use vectile_pipeline::{Arithmetic, Code, Comparison, Expr, GroupKey, Literal, Type, ValueTest};

use super::average::Average;
use super::probe::{LookupSpec, Lookups, Purpose, missing_value};
use super::value_test::value_test;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::relation::Relation;
use crate::fused::scalar::literal;
use crate::fused::string_id::StringId;
use crate::fused::types::{MAX_LEVELS, MAX_NODES};
use crate::stack;
use crate::text::{self, is_text};

type Result<T> = std::result::Result<T, FallbackReason>;

/// Maximum length of an `IN` list that becomes comparisons; longer lists suit a hash table.
const MAX_LIST: usize = 32;

/// Lowers expressions over the columns of one table and the tables joined with it, and numbers the columns and lookups
/// that they use.
#[derive(Clone)]
pub(crate) struct Lowering<'a> {
    pub(super) table: &'a TableSchema,
    /// The columns of the table, followed by those of the joined tables.
    pub(super) schema: &'a Schema,
    /// The columns of the pipeline, as indices into the table's schema.
    columns: Vec<usize>,
    pub(super) lookups: Lookups<'a>,
    /// Constants that are known when the query runs.
    parameters: Vec<Arc<dyn PhysicalExpr>>,
    /// True if expressions may test text.
    tests_text: bool,
    /// True if functions of text may be looked up: the columns that they read are kept together between queries.
    pub(super) maps_text: bool,
    /// The tests of text so far, which equal expressions share.
    tests: Vec<(Arc<dyn PhysicalExpr>, ValueTest)>,
    /// Columns of groups that are averages, which kernels have as sums and counts.
    averages: &'a [Average],
    /// True if doubles may be rounded, which kernels can do for small values only.
    pub(super) may_round: bool,
    /// True if a program runs the pipeline, and no kernel.
    is_for_program: bool,
    /// True if the pipeline evaluates expressions over the columns of a build side: for the rows that match, and not for
    /// all rows of the build side.
    computes_payload: bool,
}

/// The columns, lookups and parameters that lowered expressions use.
pub(crate) struct Needs {
    /// The columns of the pipeline, as indices into the table's schema.
    pub(crate) columns: Vec<usize>,
    /// The lookups of the pipeline.
    pub(crate) lookups: Vec<LookupSpec>,
    /// Constants that are known when the query runs, in the order of their indices.
    pub(crate) parameters: Vec<Arc<dyn PhysicalExpr>>,
}

/// Group keys of more bits have no program.
const MOST_KEY_BITS: u32 = 128;

/// Bits of a code, of a lookup or in a dictionary, and of a null.
const CODE_BITS: u32 = 33;

/// Bits of integers of at most 64 bits, and of a null; `None` for other types.
fn bits_of_integer(data_type: &DataType) -> Option<u32> {
    match Type::of(data_type)? {
        Type::I8 | Type::U8 => Some(9),
        Type::I16 | Type::U16 => Some(17),
        Type::I32 | Type::U32 => Some(33),
        Type::I64 => Some(65),
        _ => None,
    }
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(table: &'a TableSchema) -> Self {
        Self {
            table,
            schema: table.table_schema(),
            columns: Vec::new(),
            lookups: Lookups::new(&[]),
            parameters: Vec::new(),
            tests_text: true,
            maps_text: false,
            averages: &[],
            may_round: false,
            is_for_program: false,
            computes_payload: false,
            tests: Vec::new(),
        }
    }

    /// True if a program on the CPU computes the expressions.
    pub(crate) fn is_for_program(&self) -> bool {
        self.is_for_program
    }

    /// For a pipeline that a program runs, if so.
    pub(crate) fn for_program(self, is_for_program: bool) -> Self {
        Self {
            is_for_program,
            ..self
        }
    }

    /// Permits functions of text.
    pub(crate) fn with_text_functions(self) -> Self {
        Self {
            maps_text: true,
            ..self
        }
    }

    /// For expressions over groups, which have text as codes only.
    pub(super) fn over_groups(table: &'a TableSchema, averages: &'a [Average]) -> Self {
        Self {
            tests_text: false,
            averages,
            ..Self::new(table)
        }
    }

    /// Permits rounded doubles. The caller has a second kernel in case they are too large to round.
    pub(super) fn with_rounding(self) -> Self {
        Self {
            may_round: true,
            ..self
        }
    }

    /// For expressions over the schema of a relation.
    pub(crate) fn over(relation: &'a Relation) -> Self {
        Self {
            schema: &relation.schema,
            lookups: Lookups::new(&relation.joins),
            ..Self::new(relation.source.table_schema())
        }
    }

    /// The columns and lookups used.
    pub(crate) fn finish(self) -> Needs {
        Needs {
            columns: self.columns,
            lookups: self.lookups.finish(),
            parameters: self.parameters,
        }
    }

    /// The result of `lower`; if that fails, `self` is unchanged.
    pub(super) fn try_lower<T>(&mut self, lower: impl FnOnce(&mut Self) -> Result<T>) -> Option<T> {
        let mut trial = self.clone();
        let lowered = lower(&mut trial).ok()?;
        *self = trial;
        Some(lowered)
    }

    /// Lowers a GROUP BY key.
    pub(crate) fn group_key(&mut self, key: &Arc<dyn PhysicalExpr>) -> Result<Grouping> {
        if let Some(join) = self.lookups.join_of(key) {
            let (lookup, column) = self.lookups.payload_column(join, Purpose::Groups, key)?;
            return Ok(Grouping::PayloadColumn { lookup, column });
        }
        if is_volatile(key) {
            return Err(FallbackReason::GroupKey(key.to_string()));
        }
        let data_type = self.type_of(key)?;
        if let Some(column) = key.downcast_ref::<Column>()
            && is_text(&data_type)
        {
            return Ok(Grouping::Key(GroupKey::DictionaryValue(
                self.number(column.index())?,
            )));
        }
        if let Some(key) = self.key_of_text(key)? {
            return Ok(Grouping::Key(key));
        }
        match Type::of(&data_type) {
            Some(of) if !of.is_float() => Ok(Grouping::Key(GroupKey::Value(self.value(key)?))),
            _ => Err(FallbackReason::GroupKey(key.to_string())),
        }
    }

    /// Lowers GROUP BY keys over the columns of build sides to values: a code for equal payload would have to be found for
    /// all rows of the build side. The result has `None` for keys that need a code, or are others. Kernels group by codes.
    /// `bits_of_column` are the bits of a column of the table.
    pub(crate) fn payload_values(
        &mut self,
        keys: &[Arc<dyn PhysicalExpr>],
        bits_of_column: impl Fn(usize) -> Option<u32>,
    ) -> Result<Vec<Option<GroupKey>>> {
        let mut values = vec![None; keys.len()];
        if !self.is_for_program {
            return Ok(values);
        }
        let mut left = MOST_KEY_BITS;
        for key in keys {
            let column = key.downcast_ref::<Column>().map(Column::index);
            left = left.saturating_sub(match self.lookups.join_of(key) {
                Some(_) => CODE_BITS,
                None => match column.and_then(&bits_of_column) {
                    Some(bits) => bits,
                    None => bits_of_integer(&self.type_of(key)?).unwrap_or(CODE_BITS),
                },
            });
        }
        for join in 0..self.lookups.num_joins() {
            let is_of = |key: &&Arc<dyn PhysicalExpr>| self.lookups.join_of(key) == Some(join);
            let mut bits = Some(0);
            for key in keys.iter().filter(is_of) {
                let own = bits_of_integer(&self.type_of(key)?).filter(|_| !is_volatile(key));
                bits = bits.zip(own).map(|(bits, own)| bits + own);
            }
            // if one of them needs a code, it may as well stand for all
            let of_codes = CODE_BITS * keys.iter().filter(is_of).count() as u32;
            let Some(bits) = bits.filter(|bits| *bits <= left.saturating_add(of_codes)) else {
                continue;
            };
            left = left.saturating_add(of_codes) - bits;
            for (value, key) in values.iter_mut().zip(keys) {
                if self.lookups.join_of(key) == Some(join) {
                    *value = Some(GroupKey::Value(self.computed(key)?));
                }
            }
        }
        Ok(values)
    }

    /// Lowers an expression over a build side. The pipeline evaluates functions if it can. It might refuse others at run
    /// time, by the bounds of columns.
    fn computed(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        if !expr.is::<ScalarFunctionExpr>() {
            return self.value(expr);
        }
        let computed = self.try_lower(|trial| trial.value_of_columns(expr));
        computed.map_or_else(|| self.value(expr), Ok)
    }

    /// Lowers an expression of which build sides evaluate columns alone.
    pub(super) fn value_of_columns(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        let before = std::mem::replace(&mut self.computes_payload, true);
        let lowered = self.value(expr);
        self.computes_payload = before;
        lowered
    }

    /// The join whose build side evaluates `expr`.
    fn join_evaluating(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let join = self.lookups.join_of(expr)?;
        (!self.computes_payload || expr.is::<Column>()).then_some(join)
    }

    /// The table's text column that `expr` is; `None` for other expressions, and over groups.
    pub(super) fn text_of_table(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<&Field> {
        let column = expr.downcast_ref::<Column>()?;
        let of_table = self.tests_text && self.lookups.join_of(expr).is_none();
        let field = of_table
            .then(|| self.field(column.index()).ok())
            .flatten()?;
        is_text(field.data_type()).then_some(field)
    }

    /// The text column of the table that is the only column of `expr`; `None` for other expressions, and over groups.
    pub(super) fn only_text(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let columns = collect_columns(expr);
        let mut columns = columns.iter().map(Column::index);
        let (Some(column), None) = (columns.next(), columns.next()) else {
            return None;
        };
        let is_of_table = self.tests_text && column < self.table.file_schema().fields().len();
        (is_of_table && is_text(self.data_type(column).ok()?)).then_some(column)
    }

    /// The pipeline column of a join key.
    pub(crate) fn key_column(&mut self, index: usize) -> Result<usize> {
        self.number(index)
    }

    /// The text column that is a part of a packed join key.
    pub(crate) fn key_text(&mut self, index: usize) -> Result<Expr> {
        self.number(index).map(Expr::Column)
    }

    /// Lowers a projection; `None` if it is empty, or a column has no kernel.
    pub(crate) fn projection(&mut self, projection: Option<&ProjectionExprs>) -> Option<Vec<Expr>> {
        let exprs = projection?.iter();
        let values = exprs.map(|projected| self.output(&projected.expr).ok());
        let values: Vec<Expr> = values.collect::<Option<_>>()?;
        (!values.is_empty()).then_some(values)
    }

    /// Lowers a column of joined rows to an output. If that is a code, also returns the indices of its lookup and
    /// payload column.
    pub(crate) fn row_column(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<(Expr, Option<(usize, usize)>)> {
        match self.lookups.join_of(expr) {
            Some(join) => {
                let (lookup, column) = self.lookups.payload_column(join, Purpose::Rows, expr)?;
                Ok((Expr::Id(Code::Lookup(lookup)), Some((lookup, column))))
            }
            None => Ok((self.output(expr)?, None)),
        }
    }

    /// An output of a scan: a value, or a column of text.
    fn output(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        match expr.downcast_ref::<Column>() {
            Some(column) if is_text(self.data_type(column.index())?) => {
                Ok(Expr::Column(self.number(column.index())?))
            }
            _ => self.value(expr),
        }
    }

    /// Lowers an expression, including its nulls.
    pub(crate) fn value(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        // The CPU evaluates the payload columns of a build side.
        if self.join_evaluating(expr).is_none() {
            if stack::levels([expr]) > MAX_LEVELS {
                return Err(FallbackReason::TooDeep);
            }
            if stack::parts([expr]) > MAX_NODES {
                return Err(FallbackReason::ManyParts);
            }
        }
        let lowered = match self.text_argument(expr) {
            None => stack::grown(|| self.value_of(expr))?,
            Some(_) => {
                let mut trial = self.clone();
                let lowered = stack::grown(|| trial.value_of(expr));
                // a branch may fail for values that do not take it
                let is_lazy =
                    expr.is::<CaseExpr>() && lowered.as_ref().is_ok_and(|of| of.any(&is_mapped));
                let whole = match &lowered {
                    Ok(_) if !is_lazy => None,
                    _ => self.try_lower(|trial| trial.value_of_text(expr)).flatten(),
                };
                match (whole, lowered) {
                    (Some(whole), _) => whole,
                    (None, Ok(lowered)) => {
                        *self = trial;
                        lowered
                    }
                    (None, Err(reason)) => return Err(reason),
                }
            }
        };
        // operators that read an operand more than once have copies of it, and copies of its copies
        match count_parts(&lowered, MAX_LOWERED) > MAX_LOWERED {
            true => Err(FallbackReason::ManyParts),
            false => Ok(lowered),
        }
    }

    fn value_of(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        if let Some(join) = self.join_evaluating(expr) {
            let data_type = self.type_of(expr)?;
            return self.lookups.value(join, expr, &data_type);
        }
        if let Some(column) = expr.downcast_ref::<Column>() {
            return self.column(column.index());
        }
        if let Some(constant) = expr.downcast_ref::<PhysicalLiteral>() {
            let constant = literal(constant.value()).ok_or_else(|| unsupported(expr))?;
            return Ok(Expr::Literal(constant));
        }
        if expr.is::<ScalarSubqueryExpr>() {
            let of = Type::of(&self.type_of(expr)?).ok_or_else(|| unsupported(expr))?;
            let known = self.parameters.iter().position(|known| known == expr);
            let number = known.unwrap_or_else(|| {
                self.parameters.push(Arc::clone(expr));
                self.parameters.len() - 1
            });
            return Ok(Expr::Parameter(number, of));
        }
        if let Some(tested) = self.text_test(expr)? {
            return Ok(tested);
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(expr, binary);
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return Ok(!self.value(not.arg())?);
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return self.is_null(is_null.arg());
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            return Ok(!self.is_null(is_not_null.arg())?);
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return self.negative(expr, negative);
        }
        if let Some(in_list) = expr.downcast_ref::<InListExpr>() {
            return self.in_list(expr, in_list);
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return self.case(expr, case);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            return self.cast(expr, cast);
        }
        if let Some(part) = ScalarFunctionExpr::try_downcast_func::<
            datafusion::functions::datetime::date_part::DatePartFunc,
        >(expr.as_ref())
        {
            return self.date_part(expr, part);
        }
        if let Some(truncated) = ScalarFunctionExpr::try_downcast_func::<
            datafusion::functions::datetime::date_trunc::DateTruncFunc,
        >(expr.as_ref())
        {
            return self.date_trunc(expr, truncated);
        }
        Err(unsupported(expr))
    }

    /// Lowers a predicate over one text column to an automaton; `None` if it has none. Automata test strings that are
    /// not null, so a `CASE` adds the result for null unless that is null.
    fn text_test(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Expr>> {
        let Some(column) = self.only_text(expr) else {
            return Ok(None);
        };
        if self.type_of(expr)? != DataType::Boolean || is_volatile(expr) {
            return Ok(None);
        }
        let known = self.tests.iter().find(|(known, _)| known == expr);
        let test = match known.map(|(_, test)| test.clone()) {
            Some(test) => test,
            None => {
                let Some(automaton) = text::automaton(expr, self.schema) else {
                    return Ok(None);
                };
                let test = value_test(expr, self.schema.field(column))?;
                let test = test.with_automaton(Some(Arc::new(automaton)));
                self.tests.push((Arc::clone(expr), test.clone()));
                test
            }
        };
        let number = self.number(column)?;
        let tested = Expr::Values(number, test);
        let of_null = missing_value(expr, self.schema)?;
        let of_null = ScalarValue::try_from_array(&of_null, 0)?;
        if of_null.is_null() {
            return Ok(Some(tested));
        }
        let of_null = literal(&of_null).ok_or_else(|| unsupported(expr))?;
        let is_null = Expr::is_null(Expr::Column(number));
        let branches = vec![(is_null, Expr::Literal(of_null))];
        Ok(Some(Expr::case(branches, Some(tested))))
    }

    fn column(&mut self, index: usize) -> Result<Expr> {
        match Type::of(self.data_type(index)?) {
            Some(_) => match self.averages.iter().find(|of| of.column == index) {
                Some(average) => {
                    let (sum, count) = (self.number(average.sum)?, self.number(average.count)?);
                    Ok(average.value(sum, count))
                }
                None => Ok(Expr::Column(self.number(index)?)),
            },
            None => Err(self.unsupported_column(index)),
        }
    }

    /// The pipeline column for a column of the table.
    pub(super) fn number(&mut self, index: usize) -> Result<usize> {
        if index >= self.table.file_schema().fields().len() {
            let column = self.schema.field(index).name().clone();
            return Err(FallbackReason::PartitionColumn(column));
        }
        let known = self.columns.iter().position(|&column| column == index);
        Ok(known.unwrap_or_else(|| {
            self.columns.push(index);
            self.columns.len() - 1
        }))
    }

    pub(super) fn data_type(&self, index: usize) -> Result<&'a DataType> {
        self.field(index).map(|field| field.data_type())
    }

    /// A column of the schema.
    pub(super) fn field(&self, index: usize) -> Result<&'a Field> {
        let field = self.schema.fields().get(index);
        let field =
            field.ok_or_else(|| FallbackReason::Defect(format!("there is no column {index}")))?;
        Ok(field)
    }

    pub(super) fn unsupported_column(&self, index: usize) -> FallbackReason {
        let field = self.schema.field(index);
        if !self.tests_text {
            // The schema of groups has placeholder types.
            return FallbackReason::Expr(field.name().clone());
        }
        FallbackReason::Type {
            column: field.name().clone(),
            data_type: field.data_type().clone(),
        }
    }

    /// The Arrow type of an expression.
    pub(crate) fn type_of(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<DataType> {
        let levels = stack::levels([expr]);
        Ok(stack::with_room(levels, || expr.data_type(self.schema))?)
    }

    fn is_null(&mut self, of: &Arc<dyn PhysicalExpr>) -> Result<Expr> {
        let value = match self.lookups.join_of(of) {
            None => self.output(of)?,
            Some(_) => self.value(of)?,
        };
        Ok(Expr::is_null(value))
    }

    fn binary(&mut self, expr: &Arc<dyn PhysicalExpr>, binary: &BinaryExpr) -> Result<Expr> {
        let (left, right) = (binary.left(), binary.right());
        let comparison = match binary.op() {
            Operator::And => return Ok(Expr::and(vec![self.value(left)?, self.value(right)?])),
            Operator::Or => return Ok(Expr::or(vec![self.value(left)?, self.value(right)?])),
            Operator::Eq => Comparison::Equal,
            Operator::NotEq => Comparison::NotEqual,
            Operator::Lt => Comparison::Less,
            Operator::LtEq => Comparison::LessOrEqual,
            Operator::Gt => Comparison::Greater,
            Operator::GtEq => Comparison::GreaterOrEqual,
            Operator::IsDistinctFrom => return self.distinct(expr, left, right),
            Operator::IsNotDistinctFrom => {
                return Ok(!self.distinct(expr, left, right)?);
            }
            Operator::Plus => return self.arithmetic(expr, binary, Arithmetic::Add),
            Operator::Minus => return self.arithmetic(expr, binary, Arithmetic::Subtract),
            Operator::Multiply => return self.arithmetic(expr, binary, Arithmetic::Multiply),
            Operator::Divide => return self.arithmetic(expr, binary, Arithmetic::Divide),
            Operator::Modulo => return self.arithmetic(expr, binary, Arithmetic::Remainder),
            Operator::BitwiseAnd | Operator::BitwiseShiftRight | Operator::BitwiseShiftLeft => {
                return self.bits(expr, binary);
            }
            _ => return Err(unsupported(expr)),
        };
        self.compare(expr, comparison, left, right)
    }

    /// Lowers operands of a comparison, which must have the same type.
    fn operands(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<(Expr, Expr)> {
        match self.type_of(left)? == self.type_of(right)? {
            true => Ok((self.value(left)?, self.value(right)?)),
            false => Err(unsupported(expr)),
        }
    }

    fn compare(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        comparison: Comparison,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<Expr> {
        let data_type = self.type_of(left)?;
        let (left, right) = match is_text(&data_type) && data_type == self.type_of(right)? {
            true if matches!(comparison, Comparison::Equal | Comparison::NotEqual) => {
                let numbers = self.string_ids([left, right]);
                numbers.map_err(|_| unsupported(expr))?
            }
            true => return Err(unsupported(expr)),
            false => self.operands(expr, left, right)?,
        };
        // Compared with a number other than zero, the sign of zero makes no difference.
        let zeros = !is_nonzero(&left) && !is_nonzero(&right);
        let (left, right) = match (Type::of(&data_type), zeros) {
            (Some(Type::F32), true) => {
                let zeros = (Literal::F32(-0.0), Literal::F32(0.0));
                (one_zero(left, zeros), one_zero(right, zeros))
            }
            (Some(Type::F64), true) => {
                let zeros = (Literal::F64(-0.0), Literal::F64(0.0));
                (one_zero(left, zeros), one_zero(right, zeros))
            }
            _ => (left, right),
        };
        Ok(Expr::compare(comparison, left, right))
    }

    /// Lowers strings to numbers that are equal where they are.
    fn string_ids(&mut self, of: [&Arc<dyn PhysicalExpr>; 2]) -> Result<(Expr, Expr)> {
        let [left, right] = of.map(StringId::of);
        Ok((self.value(&left)?, self.value(&right)?))
    }

    /// `left IS DISTINCT FROM right`: if either is null, true unless both are; else `left <> right`.
    fn distinct(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<Expr> {
        let differ = self.compare(expr, Comparison::NotEqual, left, right)?;
        let nulls = vec![self.is_null(left)?, self.is_null(right)?];
        let some_value = !Expr::and(nulls.clone());
        Ok(Expr::case(
            vec![(Expr::or(nulls), some_value)],
            Some(differ),
        ))
    }

    fn in_list(&mut self, expr: &Arc<dyn PhysicalExpr>, in_list: &InListExpr) -> Result<Expr> {
        // DataFusion compares a long list of floats by bits, a short one by value.
        let data_type = self.type_of(in_list.expr())?;
        if in_list.len() > MAX_LIST || data_type.is_floating() {
            return Err(unsupported(expr));
        }
        let items = in_list.list().iter();
        let equal = items.map(|item| self.compare(expr, Comparison::Equal, in_list.expr(), item));
        let any = Expr::or(equal.collect::<Result<_>>()?);
        Ok(match in_list.negated() {
            true => !any,
            false => any,
        })
    }

    fn case(&mut self, expr: &Arc<dyn PhysicalExpr>, case: &CaseExpr) -> Result<Expr> {
        let data_type = self.type_of(expr)?;
        let mut branches = Vec::with_capacity(case.when_then_expr().len());
        for (when, then) in case.when_then_expr() {
            let condition = match case.expr() {
                // By the order of floats: unlike for `=`, zeros of either sign are not equal.
                Some(base) => {
                    let (base, when) = self.operands(expr, base, when)?;
                    Expr::compare(Comparison::Equal, base, when)
                }
                None => self.value(when)?,
            };
            branches.push((condition, self.branch(then, &data_type)?));
        }
        let otherwise = case
            .else_expr()
            .map(|otherwise| self.branch(otherwise, &data_type));
        Ok(Expr::case(branches, otherwise.transpose()?))
    }

    /// Lowers a branch of a `CASE` of type `data_type`. A null of any type becomes one of that type.
    fn branch(&mut self, expr: &Arc<dyn PhysicalExpr>, data_type: &DataType) -> Result<Expr> {
        let machine = Type::of(data_type).ok_or_else(|| unsupported(expr))?;
        if let Some(constant) = expr.downcast_ref::<PhysicalLiteral>()
            && constant.value().is_null()
        {
            return Ok(Expr::Literal(Literal::Null(machine)));
        }
        match &self.type_of(expr)? == data_type {
            true => self.value(expr),
            false => Err(unsupported(expr)),
        }
    }
}

/// How a kernel groups by an expression.
pub(crate) enum Grouping {
    /// A key of the kernel.
    Key(GroupKey),
    /// A payload column of a build side, which the code of a lookup represents.
    PayloadColumn {
        /// Index of the lookup.
        lookup: usize,
        /// Index of the payload column in the lookup.
        column: usize,
    },
}

fn is_mapped(expr: &Expr) -> bool {
    matches!(expr, Expr::Mapped(..))
}

/// Maximum parts of a lowered expression.
const MAX_LOWERED: usize = 1 << 12;

/// The number of parts of an expression, or a larger number than `most`.
fn count_parts(expr: &Expr, most: usize) -> usize {
    let mut parts = 1;
    expr.for_parts(|part| {
        if parts <= most {
            parts += count_parts(part, most - parts.min(most));
        }
    });
    parts
}

pub(super) fn unsupported(expr: &Arc<dyn PhysicalExpr>) -> FallbackReason {
    FallbackReason::Expr(stack::with_room(stack::levels([expr]), || expr.to_string()))
}

/// Returns true for constants other than zero.
fn is_nonzero(value: &Expr) -> bool {
    match value {
        Expr::Literal(Literal::F32(value)) => *value != 0.0,
        Expr::Literal(Literal::F64(value)) => *value != 0.0,
        _ => false,
    }
}

/// `value` with zeros of one sign: in SQL they are equal, in the order of floats they are not.
fn one_zero(value: Expr, (negative, positive): (Literal, Literal)) -> Expr {
    let positive = Expr::Literal(positive);
    match value {
        Expr::Literal(Literal::F32(_) | Literal::F64(_)) if !is_nonzero(&value) => positive,
        Expr::Literal(_) => value,
        value => {
            let negative = Expr::Literal(negative);
            let is_negative = Expr::compare(Comparison::Equal, value.clone(), negative);
            Expr::case(vec![(is_negative, positive)], Some(value))
        }
    }
}

/// Returns true for constants that are not null: a count of them is one of rows.
pub(crate) fn is_never_null(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let constant = expr.downcast_ref::<PhysicalLiteral>();
    constant.is_some_and(|constant| !constant.value().is_null())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::common::DFSchema;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn table() -> TableSchema {
        let file = Schema::new(vec![
            Field::new("i", DataType::Int32, true),
            Field::new("l", DataType::Int64, true),
            Field::new("f", DataType::Float64, true),
            Field::new("d", DataType::Date32, true),
            Field::new("p", DataType::Decimal128(10, 2), true),
            Field::new("q", DataType::Decimal128(10, 4), true),
            Field::new("w", DataType::Decimal128(19, 2), true),
            Field::new("s", DataType::Utf8, true),
            Field::new("list", DataType::new_list(DataType::Int32, true), true),
        ]);
        let part = Arc::new(Field::new("part", DataType::Int32, true));
        TableSchema::builder(Arc::new(file))
            .with_table_partition_cols(vec![part])
            .build()
    }

    fn physical(sql: &str) -> Arc<dyn PhysicalExpr> {
        let ctx = SessionContext::new();
        let schema = DFSchema::try_from(Arc::clone(table().table_schema())).unwrap();
        let expr = ctx.parse_sql_expr(sql, &schema).unwrap();
        ctx.create_physical_expr(expr, &schema).unwrap()
    }

    fn lowered(sql: &str) -> String {
        match Lowering::new(&table()).value(&physical(sql)) {
            Ok(expr) => format!("{expr:?}"),
            Err(reason) => reason.to_string(),
        }
    }

    fn filter(sql: &str) -> String {
        match Lowering::new(&table()).filters(&[physical(sql)]) {
            Ok(filter) => format!("{filter:?}"),
            Err(reason) => reason.to_string(),
        }
    }

    #[test]
    fn scales_of_decimals_are_aligned() {
        assert_eq!(
            lowered("p + q"),
            "Op(Arithmetic(Add), [Op(Arithmetic(Multiply), [Column(0), Literal(Int(100, I128))]), Column(1)])"
        );
        assert_eq!(
            lowered("p * q"),
            "Op(Arithmetic(Multiply), [Column(0), Column(1)])"
        );
        assert_eq!(
            lowered("CAST(i AS DECIMAL(12, 2))"),
            "Op(Arithmetic(Multiply), [Op(Cast(I128), [Column(0)]), Literal(Int(100, I128))])"
        );
        assert_eq!(
            lowered("CAST(p AS DOUBLE)"),
            "Op(Arithmetic(Divide), [Op(Cast(F64), [Column(0)]), Literal(F64(100.0))])"
        );
        // These may fail, or round, or need 128 bits as a float.
        for sql in [
            "CAST(l AS DECIMAL(12, 2))",
            "CAST(q AS DECIMAL(10, 2))",
            "p / q",
            "p % q",
            "CAST(w AS DOUBLE)",
        ] {
            assert!(lowered(sql).starts_with("no kernel for"), "{sql}");
        }
    }

    #[test]
    fn zeros_of_either_sign_are_equal() {
        let positive = "Op(Case, [Op(Compare(Equal), [Column(0), Literal(F64(-0.0))]), Literal(F64(0.0)), Column(0)])";
        assert_eq!(
            lowered("f < 0.0"),
            format!("Op(Compare(Less), [{positive}, Literal(F64(0.0))])")
        );
        assert_eq!(
            lowered("f < 1.0"),
            "Op(Compare(Less), [Column(0), Literal(F64(1.0))])"
        );
    }

    #[test]
    fn a_case_with_a_base_distinguishes_zeros() {
        assert_eq!(
            lowered("CASE f WHEN 0.0 THEN i END"),
            "Op(Case, [Op(Compare(Equal), [Column(0), Literal(F64(0.0))]), Column(1)])"
        );
    }

    #[test]
    fn division_that_may_fail_is_not_lowered() {
        assert_eq!(
            lowered("l / 3"),
            "Op(Arithmetic(Divide), [Column(0), Literal(Int(3, I64))])"
        );
        assert_eq!(
            lowered("f / f"),
            "Op(Arithmetic(Divide), [Column(0), Column(0)])"
        );
        for sql in ["l / l", "l / 0", "l % -1", "f % f"] {
            assert!(lowered(sql).starts_with("no kernel for"), "{sql}");
        }
    }

    #[test]
    fn filters_take_the_form_that_the_scan_has() {
        assert!(filter("l > 3 AND l < 9").starts_with("Column(0, Range"));
        assert_eq!(filter("s LIKE 'a%'"), "Values(0, ValueTest)");
        let with_nulls = "Or([Values(0, ValueTest), Column(0, IsNull)])";
        assert_eq!(
            filter("CASE WHEN s IS NULL THEN true ELSE s LIKE 'x%' END"),
            with_nulls
        );
        assert_eq!(
            filter("extract(year FROM d) > i"),
            "Expr(Op(Compare(Greater), [Op(DatePart(Year), [Column(0)]), Column(1)]))"
        );
    }

    #[test]
    fn text_is_tested_within_expressions() {
        assert_eq!(
            lowered("CASE WHEN s LIKE 'x%' THEN l ELSE 1 END"),
            "Op(Case, [Values(0, ValueTest), Column(1), Literal(Int(1, I64))])"
        );
        // The result for null is known.
        assert_eq!(
            lowered("s IS NOT NULL AND s = 'x'"),
            "Op(Case, [Op(IsNull, [Column(0)]), Literal(Int(0, Bool)), Values(0, ValueTest)])"
        );
    }

    #[test]
    fn expressions_without_kernels_have_a_reason() {
        assert_eq!(lowered("s"), "no kernel for s, which is Utf8");
        assert_eq!(lowered("part + 1"), "part is not in the files");
        assert!(filter("CAST(l AS DOUBLE) > random()").starts_with("no kernel for"));
        assert_eq!(
            filter("CASE WHEN s = concat(s, 'x') THEN l ELSE 1 END > 2"),
            "no kernel for s@7 = concat(s@7, x)"
        );
        assert!(filter("array_length(list) > 2").starts_with("no kernel for"));
    }
}
