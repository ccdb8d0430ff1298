//! Reads row groups: zone maps of the filters' columns first, and values only of row groups in
//! which a vector is left.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::buffer::BooleanBuffer;
use futures::future::try_join_all;
use vectile_encodings::{Selection, VECTOR_LEN, ZoneMap};

use crate::blooms::{self, Blooms};
use crate::conjunct::{Conjunct, Role, RowGroupFilters};
use crate::container::{Container, Fetch, RowGroupData};
use crate::error::Result;
use crate::evaluate::Columns;
use crate::memory::Memory;
use crate::metrics::{Counter, Metrics};
use crate::selector::{SelectedRows, Selector};
use crate::zones::Zones;

/// The container that row groups are read from, and the metrics.
#[derive(Clone)]
pub(crate) struct Fetcher {
    pub(crate) container: Arc<dyn Container>,
    pub(crate) metrics: Arc<dyn Metrics>,
    /// Results of Bloom filters so far.
    verdicts: Arc<Mutex<HashMap<VerdictKey, bool>>>,
}

/// Key of a Bloom filter result: a row group, and the generation of the filters.
type VerdictKey = (usize, u64);

impl Fetcher {
    pub(crate) fn new(container: Arc<dyn Container>, metrics: Arc<dyn Metrics>) -> Self {
        Self {
            container,
            metrics,
            verdicts: Arc::default(),
        }
    }

    /// Returns true if Bloom filters say that no row passes all conjuncts.
    pub(crate) async fn rules_out(&self, group_filters: &RowGroupFilters) -> Result<bool> {
        let row_group = group_filters.row_group;
        let container = self.container.as_ref();
        let nodes = || {
            group_filters
                .conjuncts
                .iter()
                .map(|conjunct| &conjunct.node)
        };
        let columns = blooms::columns_of(nodes(), container, row_group);
        if columns.is_empty() {
            return Ok(false);
        }
        let key = (row_group, group_filters.generation);
        let verdicts = || self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&verdict) = verdicts().get(&key) {
            return Ok(verdict);
        }
        let filters = container.bloom_filters(row_group, &columns).await?;
        let bytes = |is_cached| {
            let filters = filters.iter();
            let filters = filters.filter(|filter| filter.is_cached() == is_cached);
            filters.map(|filter| filter.bytes()).sum()
        };
        self.metrics.add(Counter::BytesRead, bytes(false));
        self.metrics.add(Counter::BytesCached, bytes(true));
        let filters = columns.into_iter().zip(filters).collect();
        let verdict = Blooms { row_group, filters }.rule_out(nodes(), container)?;
        verdicts().insert(key, verdict);
        Ok(verdict)
    }

    /// Reads the values of `data` and the zone maps of `zones`.
    async fn read(
        &self,
        row_group: usize,
        data: Vec<usize>,
        zones: Vec<usize>,
    ) -> Result<RowGroupData> {
        let fetch = Fetch {
            row_group,
            data,
            zones,
        };
        let read = self.container.fetch(&fetch).await?;
        let counted = [
            (Counter::BytesRead, read.bytes_read),
            (Counter::BytesCached, read.bytes_cached),
        ];
        for (counter, bytes) in counted {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.metrics.add(counter, bytes);
        }
        Ok(read)
    }
}

/// A row group in memory.
pub(crate) struct Group {
    pub(crate) row_group: usize,
    pub(crate) rows: usize,
    pub(crate) columns: Columns,
    /// The filters to evaluate, in order.
    pub(crate) conjuncts: Vec<Arc<Conjunct>>,
    /// Generation of the filters that the conjuncts come from.
    pub(crate) generation: u64,
    /// The vectors that zone maps have left; `None`: all.
    vectors: Option<BooleanBuffer>,
    /// The rows that the selector selected, if it did; then no conjunct is exact.
    selected: Option<BooleanBuffer>,
    /// The batch that the selector made of them, if it did: then nothing is left to do.
    pub(crate) batch: Option<RecordBatch>,
    /// Upper bound on the rows that it can yield.
    pub(crate) candidates: usize,
    next_vector: usize,
    /// The vectors that are scanned.
    scanned: Range<usize>,
    /// Rows that have passed the filters and are still to be decoded.
    pub(crate) survivors: Option<Selection>,
    /// True if a row has survived the filters so far.
    pub(crate) has_survivors: bool,
    /// Covers the encoded bytes in `columns`.
    reservation: Box<dyn Memory>,
    /// Covers `selected` and `batch`.
    pub(crate) selected_memory: Option<Arc<dyn Any + Send + Sync>>,
}

/// A request for a row group.
pub(crate) struct Request {
    pub(crate) group_filters: RowGroupFilters,
    /// The vectors to scan; `None`: all.
    pub(crate) vectors: Option<Range<usize>>,
    /// Columns to read besides those of the conjuncts.
    pub(crate) payload: Vec<usize>,
    /// Covers all of them.
    pub(crate) reservation: Box<dyn Memory>,
    /// The selector that evaluates the exact filters, and the row groups to request from it: this
    /// one, and those that come next.
    pub(crate) selector: Option<(Arc<dyn Selector>, Vec<RowGroupFilters>)>,
}

impl Group {
    /// Reads a row group; `None` if a Bloom filter rules it out, or zone maps rule out all its
    /// vectors.
    pub(crate) async fn load(fetcher: Fetcher, request: Request) -> Result<Option<Self>> {
        let Request {
            group_filters,
            vectors: part,
            payload,
            reservation,
            selector,
        } = request;
        if fetcher.rules_out(&group_filters).await? {
            fetcher
                .metrics
                .add(Counter::RowGroupsPrunedByBloomFilter, 1);
            return Ok(None);
        }
        let RowGroupFilters {
            row_group,
            mut conjuncts,
            generation,
        } = group_filters;
        let rows = fetcher.container.rows(row_group);
        let all = 0..rows.div_ceil(VECTOR_LEN);
        let part = part.map_or(all.clone(), |part| part.start..part.end.min(all.end));
        let of_part = (part.end * VECTOR_LEN).min(rows);
        let mut group = Self {
            row_group,
            rows,
            columns: Columns::new(Arc::clone(&fetcher.container), row_group),
            conjuncts: Vec::new(),
            generation,
            vectors: None,
            selected: None,
            batch: None,
            candidates: of_part.saturating_sub(part.start * VECTOR_LEN),
            next_vector: part.start,
            scanned: part.clone(),
            survivors: None,
            has_survivors: false,
            reservation,
            selected_memory: None,
        };
        if let Some((selector, window)) = selector {
            let ruled_out = try_join_all(
                window
                    .iter()
                    .map(|group_filters| fetcher.rules_out(group_filters)),
            );
            let window = window.iter().zip(ruled_out.await?);
            let window = window.filter(|(_, is_ruled_out)| !is_ruled_out);
            let window = window
                .map(|(group_filters, _)| group_filters.row_group)
                .collect();
            if let Some(selected) = selector.select(window).await? {
                group.selected_memory = Some(selected.memory);
                match selected.rows {
                    SelectedRows::Which(selection) => {
                        conjuncts.retain(|conjunct| conjunct.role != Role::Exact);
                        group.candidates = selection.count();
                        group.selected = Some(selection.to_boolean_buffer());
                    }
                    SelectedRows::Batch(batch) => {
                        group.candidates = batch.num_rows();
                        group.batch = Some(batch);
                    }
                }
            }
            let dropped = rows - group.candidates;
            fetcher.metrics.add(Counter::RowsFiltered, dropped);
            if group.candidates == 0 {
                return Ok(None);
            }
            if group.batch.is_some() {
                return Ok(Some(group));
            }
        }
        let vectors = prune_vectors(&fetcher, row_group, (rows, &part), &mut conjuncts).await?;
        let is_left = |left: &BooleanBuffer| part.clone().any(|vector| left.value(vector));
        if part.is_empty() || vectors.as_ref().is_some_and(|left| !is_left(left)) {
            return Ok(None);
        }
        let data = columns_of(&conjuncts, payload);
        if !data.is_empty() {
            let read = fetcher.read(row_group, data, Vec::new()).await?;
            group.reservation.try_grow(read.excess_bytes)?;
            group.columns.add(read.columns);
        }
        group.vectors = vectors;
        group.conjuncts = conjuncts;
        Ok(Some(group))
    }

    /// Lower bound on the rows that it yields, known before filters are evaluated.
    pub(crate) fn sure_rows(&self) -> usize {
        match self.conjuncts.is_empty() {
            true => self.candidates,
            false => 0,
        }
    }

    /// Returns true if exact filters remain to be evaluated.
    pub(crate) fn is_open(&self) -> bool {
        self.selected.is_none() && self.batch.is_none()
    }

    /// Reads the columns of `payload` that are missing.
    pub(crate) async fn load_payload(
        &mut self,
        fetcher: &Fetcher,
        payload: &[usize],
    ) -> Result<()> {
        let missing: Vec<usize> = payload
            .iter()
            .copied()
            .filter(|&column| !self.columns.has(column))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let bytes = fetcher.container.data_bytes(self.row_group, &missing);
        let own = share_of(bytes, &self.scanned, self.rows);
        self.reservation.try_grow(own)?;
        let read = fetcher.read(self.row_group, missing, Vec::new()).await?;
        self.reservation.try_grow(read.excess_bytes)?;
        self.columns.add(read.columns);
        Ok(())
    }

    /// Takes the next run of up to `vectors` vectors from the first that is left; `None` at the
    /// end. Rows of vectors that zone maps rule out are not selected.
    pub(crate) fn next_window(&mut self, vectors: usize) -> Option<Selection> {
        let count = self.scanned.end;
        if let Some(left) = &self.vectors {
            while self.next_vector < count && !left.value(self.next_vector) {
                self.next_vector += 1;
            }
        }
        if self.next_vector >= count {
            return None;
        }
        let first = self.next_vector;
        let end = (first + vectors).min(count);
        self.next_vector = end;
        let rows = (end * VECTOR_LEN).min(self.rows) - first * VECTOR_LEN;
        let mut selection = match &self.selected {
            Some(selected) => {
                let selected = selected.slice(first * VECTOR_LEN, rows);
                Selection::from_boolean_buffer(first, &selected)
            }
            None => Selection::all(first, rows),
        };
        if let Some(left) = &self.vectors {
            for vector in (first..end).filter(|&vector| !left.value(vector)) {
                selection.clear_vector(vector - first);
            }
        }
        Some(selection)
    }

    /// Returns true if rows of the group have been handed out in full.
    pub(crate) fn is_last_window(&self) -> bool {
        self.next_vector >= self.scanned.end && self.survivors.is_none()
    }
}

/// The part of a row group's bytes that a scan of some of its vectors reserves: other scans have the same columns in
/// memory.
pub(crate) fn share_of(bytes: usize, vectors: &Range<usize>, rows: usize) -> usize {
    let all = rows.div_ceil(VECTOR_LEN).max(1);
    (bytes as u128 * vectors.len() as u128 / all as u128) as usize
}

/// The columns of `conjuncts` and `payload`, ascending.
pub(crate) fn columns_of(conjuncts: &[Arc<Conjunct>], payload: Vec<usize>) -> Vec<usize> {
    let mut columns = payload;
    columns.extend(conjuncts.iter().flat_map(|conjunct| &conjunct.columns));
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Evaluates the per-vector zone maps, and drops the conjuncts that every remaining vector
/// satisfies in full. Those of a part are counted.
async fn prune_vectors(
    fetcher: &Fetcher,
    row_group: usize,
    (rows, part): (usize, &Range<usize>),
    conjuncts: &mut Vec<Arc<Conjunct>>,
) -> Result<Option<BooleanBuffer>> {
    let count = rows.div_ceil(VECTOR_LEN);
    let mut zoned = Vec::new();
    for conjunct in conjuncts.iter() {
        conjunct
            .node
            .visit_leaf_columns(&mut |column| zoned.push(column));
    }
    zoned.sort_unstable();
    zoned.dedup();
    if count < 2 || zoned.is_empty() {
        fetcher.metrics.add(Counter::VectorsLeft, part.len());
        return Ok(None);
    }
    let maps = fetcher.read(row_group, Vec::new(), zoned).await?.zones;
    let lengths = (0..count).map(|vector| VECTOR_LEN.min(rows - vector * VECTOR_LEN) as u64);
    let zones = Zones {
        rows: &UInt64Array::from_iter_values(lengths),
        maps: |column| maps.get(column).and_then(Option::<ZoneMap>::as_ref),
    };
    let mut left = BooleanBuffer::new_set(count);
    let mut undecided = Vec::with_capacity(conjuncts.len());
    for conjunct in conjuncts.drain(..) {
        let verdict = zones.test(&conjunct.node)?;
        left = &left & &verdict.may;
        undecided.push((conjunct, verdict.all));
    }
    conjuncts.extend(undecided.into_iter().filter_map(|(conjunct, all)| {
        let decided = (&all & &left).count_set_bits() == left.count_set_bits();
        (!decided).then_some(conjunct)
    }));
    let matched = part.clone().filter(|vector| left.value(*vector)).count();
    fetcher.metrics.add(Counter::VectorsLeft, matched);
    fetcher
        .metrics
        .add(Counter::VectorsPruned, part.len() - matched);
    Ok((matched < part.len()).then_some(left))
}
