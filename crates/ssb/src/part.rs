//! `part`.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType::{self, Int32, Utf8View};
use tpchgen::distribution::Distributions;

use crate::columns::{Rows, ints, text};
use crate::stream::Stream;

/// The columns of `part`.
pub(crate) const PART: &[(&str, DataType)] = &[
    ("p_partkey", Int32),
    ("p_name", Utf8View),
    ("p_mfgr", Utf8View),
    ("p_category", Utf8View),
    ("p_brand1", Utf8View),
    ("p_color", Utf8View),
    ("p_type", Utf8View),
    ("p_size", Int32),
    ("p_container", Utf8View),
];

/// Number of colors; a shuffle of them takes as many draws.
const COLORS: usize = 92;

/// Generates parts.
pub(crate) struct Parts {
    row: u64,
    name: Stream,
    mfgr: Stream,
    category: Stream,
    brand: Stream,
    kind: Stream,
    size: Stream,
    container: Stream,
}

impl Parts {
    /// Starts at `row`.
    pub(crate) fn new(row: u64) -> Self {
        Self {
            row,
            name: Stream::new(709_314_158, COLORS as i32, row),
            mfgr: Stream::new(1, 1, row),
            category: Stream::new(637_858_759, 1, row),
            brand: Stream::new(46_831_694, 1, row),
            kind: Stream::new(1_841_581_359, 1, row),
            size: Stream::new(1_193_163_244, 1, row),
            container: Stream::new(727_633_698, 1, row),
        }
    }
}

impl Rows for Parts {
    fn next(&mut self, rows: usize) -> Vec<ArrayRef> {
        let lists = Distributions::static_default();
        let (types, containers) = (lists.part_types(), lists.part_containers());
        let colors = lists.part_colors().get_values();
        let keys = self.row + 1..=self.row + rows as u64;
        self.row += rows as u64;

        let names = self
            .name
            .rows(keys.clone(), |name, _| first_of_shuffled(name));
        let mfgr = |m: &i64| format!("MFGR#{m}");
        let mfgrs = self.mfgr.rows(keys.clone(), |mfgr, _| mfgr.uniform(1, 5));
        let mfgrs: Vec<String> = mfgrs.iter().map(mfgr).collect();
        // Numbers are concatenated without padding: MFGR#111 is brand 1 and MFGR#1111 brand 11 of
        // category MFGR#11.
        let categories = self.category.rows(&mfgrs, |category, mfgr| {
            format!("{mfgr}{}", category.uniform(1, 5))
        });
        let brands = self.brand.rows(&categories, |brand, category| {
            format!("{category}{}", brand.uniform(1, 40))
        });
        vec![
            ints(keys.clone().map(|key| key as i64)),
            text(
                names
                    .iter()
                    .map(|[_, a, b]| format!("{} {}", colors[*a], colors[*b])),
            ),
            text(&mfgrs),
            text(&categories),
            text(&brands),
            text(names.iter().map(|[color, ..]| colors[*color])),
            text(self.kind.rows(keys.clone(), |kind, _| kind.pick(types))),
            ints(self.size.rows(keys.clone(), |size, _| size.uniform(1, 50))),
            text(
                self.container
                    .rows(keys, |container, _| container.pick(containers)),
            ),
        ]
    }
}

/// The first three of all colors, shuffled. Any step may swap any of them, so the shuffle cannot
/// end early.
fn first_of_shuffled(stream: &mut Stream) -> [usize; 3] {
    let mut order: [usize; COLORS] = std::array::from_fn(|color| color);
    for position in 0..COLORS {
        let other = stream.uniform(0, COLORS as i64 - 1) as usize;
        order.swap(position, other);
    }
    [order[0], order[1], order[2]]
}
