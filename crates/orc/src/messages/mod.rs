//! Metadata messages of a file, in protocol buffers. Only their form is checked here.

mod index;
mod protobuf;
mod statistics;
mod stripe;
mod tail;

pub(crate) use index::{BloomFilterMessage, RowIndexEntry, bloom_filters, row_index};
pub(crate) use statistics::{Bounds, ColumnStatistics};
pub(crate) use stripe::{MAX_STRIPE_ENTRIES, StripeFooter};
pub(crate) use tail::{Footer, PostScript, StripeInformation, TypeMessage, stripe_statistics};
