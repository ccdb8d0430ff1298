//! Lowers a physical filter expression to a [`Node`] of a scan.
//!
//! Negations are pushed down to the leaves, which is exact under three-valued logic: `NOT (a AND b)`
//! is true iff `NOT a` or `NOT b` is, and a negated leaf does not select nulls either.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::sort;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction, split_conjunction};
use vectile_encodings::Predicate;
use vectile_scan::{Node, Stage};

use crate::error;
use crate::expression::test;
use crate::stack;

/// Lowers `expr`, whose columns are those of `schema`, exactly.
pub(crate) fn lower(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Node> {
    let lowering = Lowering {
        schema,
        weaken: false,
    };
    lowering.lower(expr, false)
}

/// Lowers `expr` to a node that selects at least the rows for which it is true, and is cheaper or prunes better. For
/// filters that may let other rows pass, such as dynamic ones.
pub(crate) fn lower_weakened(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Node> {
    let lowering = Lowering {
        schema,
        weaken: true,
    };
    lowering.lower(expr, false)
}

/// A branch of a `CASE`: true if both parts are.
struct Branch {
    /// The part that is evaluated on encoded data.
    node: Node,
    /// The remaining part.
    test: Option<Arc<dyn PhysicalExpr>>,
}

/// Operand of a predicate: a column, or a field of a struct.
struct Operand<'a> {
    column: usize,
    path: Vec<usize>,
    data_type: &'a DataType,
}

impl Operand<'_> {
    fn test(&self, predicate: Predicate) -> Node {
        Node::field(self.column, self.path.clone(), predicate)
    }

    fn null_test(&self, is_null: bool) -> Node {
        self.test(match is_null {
            true => Predicate::IsNull,
            false => Predicate::IsNotNull,
        })
    }

    /// Type of the values. Dictionaries are stored as their values.
    fn values(&self) -> &DataType {
        match self.data_type {
            // Floats in dictionaries are compared by their bits.
            DataType::Dictionary(_, values) if !values.is_floating() => values,
            other => other,
        }
    }

    /// Converts `value` for predicates; `None` if they do not support it.
    fn constant(&self, value: ScalarValue) -> Option<ScalarValue> {
        let value = match value {
            ScalarValue::Dictionary(_, value) => *value,
            other => other,
        };
        let fits = &value.data_type() == self.values() && is_ordered(self.values());
        fits.then_some(value)
    }
}

/// Maximum levels of `AND` and `OR` that become nodes, which scans traverse. Deeper levels are one test.
const MOST_LEVELS: usize = 64;

/// The lowering for one schema.
struct Lowering<'a> {
    schema: &'a Schema,
    weaken: bool,
}

impl Lowering<'_> {
    /// Lowers `expr`, or its negation.
    fn lower(&self, expr: &Arc<dyn PhysicalExpr>, negated: bool) -> Result<Node> {
        self.lower_at(0, expr, negated)
    }

    /// Lowers below `level` levels of `AND` and `OR`.
    fn lower_at(&self, level: usize, expr: &Arc<dyn PhysicalExpr>, negated: bool) -> Result<Node> {
        match level < MOST_LEVELS {
            true => stack::grown(|| self.lower_level(level, expr, negated)),
            false => self.lower_test(expr, negated),
        }
    }

    fn lower_level(
        &self,
        level: usize,
        expr: &Arc<dyn PhysicalExpr>,
        negated: bool,
    ) -> Result<Node> {
        if let Some(literal) = expr.downcast_ref::<Literal>()
            && let ScalarValue::Boolean(value) = literal.value()
        {
            return Ok(Node::Constant(value.is_some_and(|value| value != negated)));
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return self.lower_at(level, not.arg(), !negated);
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>()
            && let Some(node) = self.lower_binary(level, expr, binary, negated)?
        {
            return Ok(node);
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>()
            && let Some(operand) = self.operand(is_null.arg())
        {
            return Ok(operand.null_test(!negated));
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>()
            && let Some(operand) = self.operand(is_not_null.arg())
        {
            return Ok(operand.null_test(negated));
        }
        if let Some(in_list) = expr.downcast_ref::<InListExpr>()
            && let Some(node) = self.lower_in_list(in_list, negated)?
        {
            return Ok(node);
        }
        if let Some(operand) = self.operand(expr)
            && operand.data_type == &DataType::Boolean
        {
            let value = ScalarValue::Boolean(Some(!negated)).to_array()?;
            return Ok(operand.test(between(Arc::clone(&value), value, false)));
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>()
            && self.weaken
            && !negated
        {
            return self.lower_case(case);
        }
        self.lower_test(expr, negated)
    }

    /// The column or struct field that `expr` refers to, if it does.
    fn operand(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Operand<'_>> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            let field = self.schema.fields().get(column.index())?;
            return Some(Operand {
                column: column.index(),
                path: Vec::new(),
                data_type: field.data_type(),
            });
        }
        let call = ScalarFunctionExpr::try_downcast_func::<GetFieldFunc>(expr.as_ref())?;
        let (within, names) = call.args().split_first()?;
        let within = stack::grown(|| self.operand(within))?;
        names.iter().try_fold(within, |mut operand, name| {
            let name = name.downcast_ref::<Literal>()?.value().try_as_str()??;
            let DataType::Struct(fields) = operand.data_type else {
                return None;
            };
            let (index, field) = fields.find(name)?;
            operand.path.push(index);
            operand.data_type = field.data_type();
            Some(operand)
        })
    }

    fn lower_binary(
        &self,
        level: usize,
        expr: &Arc<dyn PhysicalExpr>,
        binary: &BinaryExpr,
        negated: bool,
    ) -> Result<Option<Node>> {
        let children = || -> Result<Vec<Node>> {
            let operands = stack::operands(expr, *binary.op()).into_iter();
            operands
                .map(|operand| self.lower_at(level + 1, operand, negated))
                .collect()
        };
        match (binary.op(), negated) {
            (Operator::And, false) | (Operator::Or, true) => Ok(Some(Node::all(children()?)?)),
            (Operator::Or, false) | (Operator::And, true) => Ok(Some(Node::any(children()?)?)),
            _ => self.lower_comparison(binary, negated),
        }
    }

    /// `column op literal` or `literal op column`, of the same type.
    fn lower_comparison(&self, binary: &BinaryExpr, negated: bool) -> Result<Option<Node>> {
        let literal = |expr: &Arc<dyn PhysicalExpr>| {
            expr.downcast_ref::<Literal>()
                .map(|literal| literal.value().clone())
        };
        let (operand, value, op) = if let (Some(operand), Some(value)) =
            (self.operand(binary.left()), literal(binary.right()))
        {
            (operand, value, *binary.op())
        } else if let (Some(value), Some(operand)) =
            (literal(binary.left()), self.operand(binary.right()))
        {
            let Some(op) = mirrored(*binary.op()) else {
                return Ok(None);
            };
            (operand, value, op)
        } else {
            return Ok(None);
        };
        match operand.constant(value) {
            Some(value) => comparison(&operand, op, &value, negated),
            None => Ok(None),
        }
    }

    /// `column IN (literals)`.
    fn lower_in_list(&self, in_list: &InListExpr, negated: bool) -> Result<Option<Node>> {
        let Some(operand) = self.operand(in_list.expr()) else {
            return Ok(None);
        };
        let negated = negated != in_list.negated();
        let mut values = Vec::with_capacity(in_list.len());
        let mut has_null = false;
        for item in in_list.list() {
            let Some(literal) = item.downcast_ref::<Literal>() else {
                return Ok(None);
            };
            if literal.value().is_null() {
                has_null = true;
                continue;
            }
            let Some(value) = operand.constant(literal.value().clone()) else {
                return Ok(None);
            };
            // A hash join passes its keys as a list, and a join's 0.0 matches -0.0.
            if self.weaken
                && !negated
                && let Some(zeros) = zeros(&value)?
            {
                values.extend(zeros);
            }
            values.push(value);
        }
        if !is_ordered(operand.values()) {
            return Ok(None);
        }
        // `x NOT IN (.., NULL)` is never true.
        if negated && has_null || !negated && values.is_empty() {
            return Ok(Some(Node::Constant(false)));
        }
        if values.is_empty() {
            return Ok(Some(operand.null_test(false)));
        }
        let values = sort(&ScalarValue::iter_to_array(values)?, None)?;
        Ok(Some(operand.test(Predicate::In { values, negated })))
    }

    /// A partitioned hash join's dynamic filter routes each row to the branch of its partition. Testing if any branch
    /// is true is weaker but equivalent here: a key is in the table of only one partition. The branches' lookups become
    /// one test, so that keys are decoded once.
    fn lower_case(&self, case: &CaseExpr) -> Result<Node> {
        let branches = case.when_then_expr().iter().map(|(_, then)| then);
        let mut encoded = Vec::new();
        let mut tests = Some(Vec::new());
        for branch in branches.chain(case.else_expr()) {
            let Branch { node, test } = self.lower_branch(branch)?;
            if let Node::Constant(false) = node {
                continue;
            }
            encoded.push(node);
            tests = tests.zip(test).map(|(mut tests, test)| {
                tests.push(test);
                tests
            });
        }
        let either = |a, b| Arc::new(BinaryExpr::new(a, Operator::Or, b)) as Arc<dyn PhysicalExpr>;
        let test = match tests.and_then(|tests| tests.into_iter().reduce(either)) {
            Some(test) => self.lower_test(&test, false)?,
            None => Node::Constant(true),
        };
        Ok(Node::all([Node::any(encoded)?, test])?)
    }

    fn lower_branch(&self, branch: &Arc<dyn PhysicalExpr>) -> Result<Branch> {
        let mut encoded = Vec::new();
        let mut tests = Vec::new();
        for part in split_conjunction(branch) {
            let node = self.lower(part, false)?;
            match node.stage() {
                Stage::Encoded => encoded.push(node),
                Stage::PerValue | Stage::Decoded => tests.push(Arc::clone(part)),
            }
        }
        Ok(Branch {
            node: Node::all(encoded)?,
            test: (!tests.is_empty()).then(|| conjunction(tests)),
        })
    }

    /// Lowers any other expression to a test of decoded values.
    fn lower_test(&self, expr: &Arc<dyn PhysicalExpr>, negated: bool) -> Result<Node> {
        let expr = match negated {
            true => Arc::new(NotExpr::new(Arc::clone(expr))) as Arc<dyn PhysicalExpr>,
            false => Arc::clone(expr),
        };
        let test = test(&expr, self.schema)?;
        let fields = self.schema.fields();
        let mut types = test
            .columns()
            .iter()
            .filter_map(|&column| fields.get(column));
        // A hash table looks keys up by their bits, but a join treats zeros of either sign as equal.
        if self.weaken && types.any(|field| field.data_type().is_floating()) {
            return Ok(Node::Constant(true));
        }
        if test.columns().is_empty() {
            let passed = test.evaluate(Vec::new(), 1).map_err(error::scan)?;
            return Ok(Node::Constant(passed.true_count() == 1));
        }
        Ok(Node::test(test))
    }
}

/// `literal op column` as `column op literal`.
fn mirrored(op: Operator) -> Option<Operator> {
    match op {
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => Some(op),
        other => other.swap(),
    }
}

fn comparison(
    operand: &Operand<'_>,
    op: Operator,
    value: &ScalarValue,
    negated: bool,
) -> Result<Option<Node>> {
    let distinct = match op {
        Operator::IsDistinctFrom => Some(!negated),
        Operator::IsNotDistinctFrom => Some(negated),
        _ => None,
    };
    if value.is_null() {
        return Ok(Some(match distinct {
            Some(distinct) => operand.null_test(!distinct),
            None => Node::Constant(false),
        }));
    }
    let (least, greatest) = equals_of(value)?;
    if let Some(distinct) = distinct {
        let equals = operand.test(between(least, greatest, distinct));
        return Ok(Some(match distinct {
            true => Node::any([equals, operand.null_test(true)])?,
            false => equals,
        }));
    }
    let (low, high) = match op {
        Operator::Eq | Operator::NotEq => {
            let negated = negated != (op == Operator::NotEq);
            return Ok(Some(operand.test(between(least, greatest, negated))));
        }
        Operator::Lt => (Bound::Unbounded, Bound::Excluded(least)),
        Operator::LtEq => (Bound::Unbounded, Bound::Included(greatest)),
        Operator::Gt => (Bound::Excluded(greatest), Bound::Unbounded),
        Operator::GtEq => (Bound::Included(least), Bound::Unbounded),
        _ => return Ok(None),
    };
    // Mirror the bounds instead of negating, so that `NOT a < 1 AND a < 5` still merges.
    let (low, high) = match negated {
        true => (complement(high), complement(low)),
        false => (low, high),
    };
    Ok(Some(operand.test(Predicate::Range {
        low,
        high,
        negated: false,
    })))
}

fn complement(bound: Bound<ArrayRef>) -> Bound<ArrayRef> {
    match bound {
        Bound::Included(value) => Bound::Excluded(value),
        Bound::Excluded(value) => Bound::Included(value),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// The least and greatest value that DataFusion's comparison operators treat as equal to `value`. They differ only for
/// floats: -0.0 is less than 0.0 in the order of arrow-rs and of Vectile's zone maps, and equal to it in SQL. (`IN`
/// with a long list compares bits, also in DataFusion.)
fn equals_of(value: &ScalarValue) -> Result<(ArrayRef, ArrayRef)> {
    if let Some([negative, positive]) = zeros(value)? {
        return Ok((negative.to_array()?, positive.to_array()?));
    }
    let value = value.to_array()?;
    Ok((Arc::clone(&value), value))
}

/// Both zeros, the negative one first, if `value` is a floating-point zero.
fn zeros(value: &ScalarValue) -> Result<Option<[ScalarValue; 2]>> {
    let is_zero = match value {
        ScalarValue::Float64(Some(value)) => *value == 0.0,
        ScalarValue::Float32(Some(value)) => *value == 0.0,
        ScalarValue::Float16(Some(value)) => value.to_f32() == 0.0,
        _ => false,
    };
    if !is_zero {
        return Ok(None);
    }
    let positive = ScalarValue::new_zero(&value.data_type())?;
    Ok(Some([positive.arithmetic_negate()?, positive]))
}

fn between(least: ArrayRef, greatest: ArrayRef, negated: bool) -> Predicate {
    Predicate::Range {
        low: Bound::Included(least),
        high: Bound::Included(greatest),
        negated,
    }
}

/// True if zone maps and the encoded comparisons order the type as DataFusion does.
fn is_ordered(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Boolean
            | Int8
            | Int16
            | Int32
            | Int64
            | UInt8
            | UInt16
            | UInt32
            | UInt64
            | Float16
            | Float32
            | Float64
            | Date32
            | Date64
            | Time32(_)
            | Time64(_)
            | Timestamp(_, _)
            | Duration(_)
            | Decimal32(_, _)
            | Decimal64(_, _)
            | Decimal128(_, _)
            | Decimal256(_, _)
            | Utf8
            | LargeUtf8
            | Utf8View
            | Binary
            | LargeBinary
            | BinaryView
            | FixedSizeBinary(_)
    )
}
