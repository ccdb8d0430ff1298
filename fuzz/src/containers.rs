//! Files of other formats: damage, and reading all that is left.

use std::sync::Arc;

use futures::executor::block_on;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use vectile_scan::{Fetch, FileContainer};

/// Row groups with more rows are not decoded here: few bytes can encode many rows.
const MAX_ROWS: usize = 1 << 20;

/// A file with other bytes here and there. Each five bytes of `damages` are an offset and a replacement; a last one
/// truncates the file.
pub(crate) fn damaged(whole: &[u8], damages: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let (damages, cut) = damages.as_chunks();
    for &[a, b, c, d, value] in damages {
        let offset = u32::from_le_bytes([a, b, c, d]) as usize;
        // from the end, where most of the parsed bytes are
        let offset = bytes.len() - 1 - offset % bytes.len();
        bytes[offset] = value;
    }
    if let Some(&cut) = cut.first() {
        bytes.truncate(bytes.len().saturating_sub(usize::from(cut)));
    }
    bytes
}

/// A store with one object of these bytes.
pub(crate) fn object(bytes: Vec<u8>) -> (Arc<dyn ObjectStore>, ObjectMeta) {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let location = Path::from("t");
    block_on(store.put(&location, bytes.into())).expect("memory");
    let meta = block_on(store.head(&location)).expect("it was put there");
    (store, meta)
}

/// Reads everything in a file: columns, zone maps, Bloom filters, and what a device would decode.
pub(crate) fn read_all(file: &dyn FileContainer) {
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    for row_group in (0..file.num_row_groups()).filter(|&row_group| file.rows(row_group) <= MAX_ROWS) {
        let rows = file.rows(row_group);
        let _ = block_on(file.stream_columns(row_group, &columns, None));
        for &column in &columns {
            let fetch = Fetch { row_group, data: vec![column], zones: vec![column] };
            let Ok(read) = block_on(file.fetch(&fetch)) else { continue };
            let column = read.columns[column].as_ref().expect("it was asked for");
            assert_eq!(column.len(), rows);
            if let Ok(values) = column.decode(0..rows) {
                assert_eq!(values.len(), rows);
            }
        }
        let blooms = columns.iter().copied().filter(|&column| file.has_bloom_filter(row_group, column));
        let _ = block_on(file.bloom_filters(row_group, &blooms.collect::<Vec<_>>()));
    }
}
