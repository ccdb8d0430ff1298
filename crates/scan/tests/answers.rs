//! Scans of random rows, compared with Arrow's kernels over plain batches.

mod common;

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    Scalar, StringArray,
};
use arrow::compute::kernels::cmp;
use arrow::compute::{
    and_kleene, cast, concat_batches, filter_record_batch, is_not_null, is_null, not, or_kleene,
};
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use vectile_encodings::Predicate;
use vectile_scan::{Container, Node, Result, Scan, Test};

use common::{NAMES, Random, Statistics, Table, batches};

/// A filter, and its result by Arrow's kernels.
struct Filter {
    node: Node,
    plain: BooleanArray,
}

/// Filters over `rows`.
struct Filters<'a> {
    random: &'a mut Random,
    rows: RecordBatch,
}

impl Filters<'_> {
    fn filter(&mut self, depth: u64) -> Filter {
        match self.random.below(2 + depth) {
            0 | 1 => self.leaf(),
            2 => self.combined(depth - 1, Node::all, and_kleene),
            _ => self.combined(depth - 1, Node::any, or_kleene),
        }
    }

    fn combined(
        &mut self,
        depth: u64,
        node: fn(Vec<Node>) -> Result<Node, arrow::error::ArrowError>,
        plain: fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, arrow::error::ArrowError>,
    ) -> Filter {
        let count = 2 + self.random.below(2);
        let parts: Vec<Filter> = (0..count).map(|_| self.filter(depth)).collect();
        let (nodes, masks): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|part| (part.node, part.plain))
            .unzip();
        let plain = masks.into_iter().reduce(|a, b| plain(&a, &b).unwrap());
        Filter {
            node: node(nodes).unwrap(),
            plain: plain.unwrap(),
        }
    }

    fn leaf(&mut self) -> Filter {
        match self.random.below(6) {
            0 | 1 => self.range(),
            2 => self.membership(),
            3 => {
                let column = self.random.below(5) as usize;
                let array = self.rows.column(column);
                match self.random.below(2) {
                    0 => Filter {
                        node: Node::leaf(column, Predicate::IsNull),
                        plain: is_null(array).unwrap(),
                    },
                    _ => Filter {
                        node: Node::leaf(column, Predicate::IsNotNull),
                        plain: is_not_null(array).unwrap(),
                    },
                }
            }
            4 => {
                let column = 3 + self.random.below(2) as usize;
                self.test(vec![column], |rows| {
                    let texts = rows.column(0).as_string::<i32>().iter();
                    let passes = |text: &str| text.len().is_multiple_of(3);
                    Ok(texts.map(|text| text.map(passes)).collect())
                })
            }
            _ => self.test(vec![1, 2], |rows| {
                let few = cast(rows.column(0), &DataType::Float64)?;
                Ok(cmp::lt(rows.column(1), &few)?)
            }),
        }
    }

    fn constant(&mut self, column: usize) -> ArrayRef {
        match column {
            0 => Arc::new(Int64Array::from(vec![self.random.below(9000) as i64])),
            1 => Arc::new(Int32Array::from(vec![self.random.below(20) as i32])),
            2 => Arc::new(Float64Array::from(vec![
                self.random.below(100_000) as f64 / 100.0,
            ])),
            3 => Arc::new(StringArray::from(vec![
                NAMES[self.random.below(5) as usize],
            ])),
            _ => {
                let text = format!("text {}", self.random.below(5000));
                Arc::new(StringArray::from(vec![text]))
            }
        }
    }

    fn range(&mut self) -> Filter {
        let column = self.random.below(5) as usize;
        let array = Arc::clone(self.rows.column(column));
        let (low, high) = (self.constant(column), self.constant(column));
        let above = cmp::gt_eq(&array, &Scalar::new(Arc::clone(&low))).unwrap();
        let below = cmp::lt(&array, &Scalar::new(Arc::clone(&high))).unwrap();
        let negated = self.random.below(4) == 0;
        let (low, high, plain) = match self.random.below(3) {
            0 => (Bound::Included(low), Bound::Unbounded, above),
            1 => (Bound::Unbounded, Bound::Excluded(high), below),
            _ => {
                let plain = and_kleene(&above, &below).unwrap();
                (Bound::Included(low), Bound::Excluded(high), plain)
            }
        };
        Filter {
            node: Node::leaf(column, Predicate::Range { low, high, negated }),
            plain: match negated {
                true => not(&plain).unwrap(),
                false => plain,
            },
        }
    }

    fn membership(&mut self) -> Filter {
        let column = self.random.below(5) as usize;
        let values: Vec<ArrayRef> = (0..4).map(|_| self.constant(column)).collect();
        let array = self.rows.column(column);
        let masks = values
            .iter()
            .map(|value| cmp::eq(array, &Scalar::new(value)).unwrap());
        let plain = masks.reduce(|a, b| or_kleene(&a, &b).unwrap());
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        let values = arrow::compute::concat(&values).unwrap();
        let values = arrow::compute::sort(&values, None).unwrap();
        let negated = false;
        Filter {
            node: Node::leaf(column, Predicate::In { values, negated }),
            plain: plain.unwrap(),
        }
    }

    fn test(
        &mut self,
        columns: Vec<usize>,
        test: fn(&RecordBatch) -> Result<BooleanArray>,
    ) -> Filter {
        let plain = test(&self.rows.project(&columns).unwrap()).unwrap();
        let test = Test::new(columns, self.rows.schema_ref(), Arc::new(test));
        Filter {
            node: Node::test(test),
            plain,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_answer_as_arrow_does() {
    let mut selective = 0;
    for seed in 0..40 {
        let random = &mut Random(seed);
        let batches = batches(random, &[5000, 1, 2500, 1024]);
        for statistics in [Statistics::None, Statistics::RowGroups, Statistics::Vectors] {
            let table = Arc::new(Table::new(batches.clone(), statistics));
            let rows = table.rows();
            let Filter { node, plain } = Filters {
                random,
                rows: rows.clone(),
            }
            .filter(2);
            let names = ["id", "few", "price", "name", "text"];
            let count = random.below(4);
            let projected = (0..count).map(|_| random.below(5) as usize);
            let projected: Vec<usize> = projected.collect();
            let limit = (random.below(2) == 0).then(|| random.below(3000) as usize);
            let batch_size = 1 + random.below(3000) as usize;

            let kept = filter_record_batch(&rows, &plain).unwrap();
            let kept = kept.project(&projected).unwrap();
            let expected = kept.slice(0, limit.unwrap_or(usize::MAX).min(kept.num_rows()));
            selective += usize::from((1..rows.num_rows()).contains(&kept.num_rows()));

            let scan = || {
                let columns: Vec<&str> = projected.iter().map(|&column| names[column]).collect();
                let scan = Scan::new(Arc::clone(&table) as Arc<dyn Container>);
                let scan = scan.with_filter(node.clone()).unwrap();
                let mut scan = scan.with_columns(&columns).unwrap();
                scan.limit = limit;
                scan.batch_size = batch_size;
                scan
            };
            let streamed: Vec<RecordBatch> = scan().stream().try_collect().await.unwrap();
            let blocked: Vec<RecordBatch> = scan().blocking().collect::<Result<_>>().unwrap();
            for actual in [streamed, blocked] {
                let context = format!("seed {seed}, {statistics:?}, {projected:?}, {limit:?}");
                let rows: usize = actual.iter().map(RecordBatch::num_rows).sum();
                assert_eq!(rows, expected.num_rows(), "{context}");
                assert!(
                    actual
                        .iter()
                        .all(|batch| batch.schema() == expected.schema())
                );
                let sizes = || actual.iter().map(RecordBatch::num_rows);
                assert!(sizes().all(|rows| rows > 0), "{context}");
                if !projected.is_empty() {
                    assert!(sizes().all(|rows| rows <= batch_size), "{context}");
                    let actual = concat_batches(expected.schema_ref(), &actual).unwrap();
                    assert_eq!(actual, expected, "{context}");
                }
            }
        }
    }
    assert!(selective > 60, "{selective} filters keep some rows");
}

#[test]
fn missing_columns_and_rows() {
    let batches = batches(&mut Random(1), &[100, 100]);
    let table = Arc::new(Table::new(batches, Statistics::Vectors));
    let container = Arc::clone(&table) as Arc<dyn Container>;
    let scan = || Scan::new(Arc::clone(&container));
    let error = scan().with_columns(&["id", "size"]).err().unwrap();
    assert_eq!(error.to_string(), "there is no column 'size'");

    let mut beyond = scan();
    beyond.row_groups = vec![1, 7];
    let rows = beyond.blocking().map(|batch| batch.unwrap().num_rows());
    assert_eq!(rows.sum::<usize>(), 100);

    let unknown = scan()
        .with_filter(Node::leaf(9, Predicate::IsNull))
        .unwrap();
    let error = unknown.blocking().next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "there is no column 9");

    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let mistyped = Node::leaf(0, Predicate::equal(text));
    assert!(scan().with_filter(mistyped).is_err());
}
