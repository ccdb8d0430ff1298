//! Numbers that stand for strings, so that strings of different columns and tables are compared as integers.
//!
//! A string has the same number wherever it occurs, as long as the process runs: tables of build sides, which have
//! numbers as keys and payload, are kept between queries. So numbers are never given to other strings, and there are at
//! most [`MOST_STRINGS`].

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::hash_utils::RandomState;
use datafusion::common::{HashMap, Result, exec_err, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

/// Most strings that have numbers.
const MOST_STRINGS: u32 = 1 << 22;

/// Most bytes of these strings.
const MOST_BYTES: usize = 1 << 28;

/// Number of tables, each with a lock of its own.
const PARTS: usize = 64;

/// The number of a string: equal for equal strings, null for null.
///
/// Evaluating it fails if there are more strings than [`MOST_STRINGS`], or of more bytes than [`MOST_BYTES`].
#[derive(Debug, Eq)]
pub(crate) struct StringId {
    of: Arc<dyn PhysicalExpr>,
}

impl StringId {
    /// The number of `of`, which is text.
    pub(crate) fn of(of: &Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { of: Arc::clone(of) })
    }
}

impl PartialEq for StringId {
    fn eq(&self, other: &Self) -> bool {
        self.of.eq(&other.of)
    }
}

impl Hash for StringId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
    }
}

impl fmt::Display for StringId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "string_id({})", self.of)
    }
}

impl PhysicalExpr for StringId {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::UInt32)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.of.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let strings = self.of.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(ColumnarValue::Array(Arc::new(numbers(&strings)?)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.of]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match &children[..] {
            [of] => Ok(Self::of(of)),
            _ => internal_err!("string_id has one argument"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "string_id(")?;
        self.of.fmt_sql(f)?;
        write!(f, ")")
    }
}

/// The numbers of strings or bytes.
fn numbers(strings: &ArrayRef) -> Result<UInt32Array> {
    use DataType::*;
    let views = match strings.data_type() {
        Utf8 | LargeUtf8 | Utf8View => cast(strings, &Utf8View)?,
        Binary | LargeBinary | BinaryView => cast(strings, &BinaryView)?,
        other => return internal_err!("string_id of {other}"),
    };
    let mut last: Option<(&[u8], u32)> = None;
    let mut number = |string| {
        let number = match last {
            Some((known, number)) if known == string => number,
            _ => NUMBERS.of(string)?,
        };
        last = Some((string, number));
        Some(number)
    };
    let mut has_numbers = true;
    let mut known = |string: Option<_>| {
        let number = string.map(&mut number);
        has_numbers &= number != Some(None);
        number.flatten()
    };
    let numbers: UInt32Array = match views.as_string_view_opt() {
        Some(strings) => {
            let bytes = strings.iter().map(|string| string.map(str::as_bytes));
            bytes.map(&mut known).collect()
        }
        None => views.as_binary_view().iter().map(&mut known).collect(),
    };
    match has_numbers {
        true => Ok(numbers),
        false => exec_err!(
            "more than {MOST_STRINGS} strings, or {MOST_BYTES} bytes of them, are compared"
        ),
    }
}

static NUMBERS: LazyLock<Numbers> = LazyLock::new(Numbers::default);

/// The numbers of all strings so far.
struct Numbers {
    hasher: RandomState,
    parts: [Mutex<HashMap<Box<[u8]>, u32>>; PARTS],
    /// How many numbers were given, or asked for.
    next: AtomicU32,
    bytes: AtomicUsize,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            hasher: RandomState::with_seed(0),
            parts: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl Numbers {
    /// The number of `string`; `None` if there are too many.
    fn of(&self, string: &[u8]) -> Option<u32> {
        let part = self.hasher.hash_one(string) as usize % PARTS;
        let mut part = self
            .parts
            .get(part)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = part.get(string) {
            return Some(*number);
        }
        let is_full = self.next.load(Ordering::Relaxed) >= MOST_STRINGS
            || self.bytes.load(Ordering::Relaxed) >= MOST_BYTES;
        if is_full {
            return None;
        }
        // threads that add strings to several parts at once may exceed the limits by one each
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(string.len(), Ordering::Relaxed);
        part.insert(string.into(), number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use arrow::array::{BinaryArray, LargeStringArray, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn equal_strings_have_equal_numbers_in_all_columns() {
        let strings = [
            "a",
            "b",
            "",
            "a long string, which is no part of a view",
            "b",
        ];
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter(
                strings.map(Some).into_iter().chain([None]),
            )),
            Arc::new(LargeStringArray::from_iter(
                strings.map(Some).into_iter().chain([None]),
            )),
            Arc::new(StringViewArray::from_iter(
                strings.map(Some).into_iter().chain([None]),
            )),
        ];
        let [first, others @ ..] = columns.map(|column| numbers(&column).unwrap());
        assert!(others.iter().all(|other| *other == first));
        assert!(first.is_null(5) && first.null_count() == 1);
        assert_eq!(first.value(1), first.value(4));
        let mut different: Vec<u32> = first.iter().take(4).flatten().collect();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 4);
        let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"b", &[0xff]]));
        let bytes = numbers(&bytes).unwrap();
        assert_eq!(bytes.value(0), first.value(1));
        assert!(!different.contains(&bytes.value(1)));
    }

    #[test]
    fn threads_agree() {
        let strings = || {
            let strings = (0..1000).map(|number| format!("thread's string {}", number % 300));
            numbers(&(Arc::new(StringArray::from_iter_values(strings)) as ArrayRef)).unwrap()
        };
        let all: Vec<UInt32Array> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(strings)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.iter().all(|numbers| *numbers == all[0]));
    }

    #[test]
    fn too_many_strings_have_no_numbers() {
        let numbers = Numbers {
            next: AtomicU32::new(MOST_STRINGS - 1),
            ..Numbers::default()
        };
        assert_eq!(numbers.of(b"last"), Some(MOST_STRINGS - 1));
        assert_eq!(numbers.of(b"one more"), None);
        assert_eq!(numbers.of(b"last"), Some(MOST_STRINGS - 1));
        let numbers = Numbers {
            bytes: AtomicUsize::new(MOST_BYTES),
            ..Numbers::default()
        };
        assert_eq!(numbers.of(b"a"), None);
    }
}
