//! Columns in pages of Parquet: where their bytes lie, and the kernels' descriptors of them.

use vectile_encodings::streams::{Page, PageCompression, Pages, StreamColumn};
use vectile_kernels::{DataPage, InflateChunk, Inflated, PageCode};

use super::layout::{COPY_BYTES, JobAddresses, SLACK_BYTES, wrong};
use crate::error::Result;
use crate::exec::offsets::OffsetAllocator;
use crate::exec::streams;
use crate::runtime::Engine;

/// A column in pages to decode.
pub(super) struct PagedColumn<'a> {
    pub(super) pages: &'a Pages,
    /// Bytes of a decoded value.
    pub(super) width: usize,
    /// Offset of its bytes in the inputs; true if the device copies them from where they were read.
    pub(super) input_offset: usize,
    pub(super) is_as_read: bool,
    /// Offset of the dictionary's values in the inputs.
    pub(super) dictionary_offset: usize,
    /// Offset of its values in scratch memory.
    pub(super) values: usize,
    /// Offsets of inflated pages in scratch memory.
    inflated: Vec<Option<usize>>,
}

impl<'a> PagedColumn<'a> {
    pub(super) fn new(engine: &Engine, column: &StreamColumn, pages: &'a Pages) -> Self {
        let bytes = pages.bytes.as_slice();
        Self {
            pages,
            width: streams::page_value_bytes(column),
            input_offset: 0,
            is_as_read: bytes.len() >= COPY_BYTES && engine.is_staged(bytes),
            dictionary_offset: 0,
            values: 0,
            inflated: vec![],
        }
    }

    /// The pages of a compression.
    pub(super) fn compressed(&self, by: PageCompression) -> impl Iterator<Item = &'a Page> {
        let pages = self.pages.pages.iter();
        pages.filter(move |page| page.compression == by)
    }

    /// Assigns offsets in scratch memory.
    pub(super) fn arrange(&mut self, scratch: &mut OffsetAllocator) {
        let pages = self.pages.pages.iter();
        let inflated = pages.map(|page| match page.compression {
            PageCompression::None => None,
            _ => Some(scratch.next(page.inflated + 2 * SLACK_BYTES) + SLACK_BYTES),
        });
        self.inflated = inflated.collect();
        self.values = scratch.next(self.pages.values() * self.width + SLACK_BYTES);
    }

    /// Appends descriptors of the pages of a compression, for the kernel that inflates them.
    pub(super) fn write_chunks(&self, by: PageCompression, at: &JobAddresses, bytes: &mut Vec<u8>) {
        for (page, inflated) in self.pages.pages.iter().zip(&self.inflated) {
            let Some(to) = inflated.filter(|_| page.compression == by) else {
                continue;
            };
            let chunk = InflateChunk {
                from: at.inputs + (self.input_offset + page.bytes.start) as u64,
                to: at.scratch + to as u64,
                bytes: page.bytes.len() as u32,
                room: page.inflated as u32,
                is_original: 0,
                unused: 0,
            };
            bytes.extend(chunk.to_bytes());
        }
    }

    /// Appends descriptors of all pages, for the kernel that decodes them.
    pub(super) fn write_pages(&self, at: &JobAddresses, bytes: &mut Vec<u8>) {
        for (page, inflated) in self.pages.pages.iter().zip(&self.inflated) {
            let from = match inflated {
                Some(offset) => at.scratch + *offset as u64,
                None => at.inputs + (self.input_offset + page.bytes.start) as u64,
            };
            let stored = self.pages.stored;
            let page = DataPage {
                from,
                to: at.scratch + (self.values + page.start * self.width) as u64,
                dictionary: at.inputs + self.dictionary_offset as u64,
                bytes: page.inflated as u32,
                count: page.count as u32,
                levels: page.levels as u32,
                encoding: PageCode::of(page.encoding, stored) as u32,
                width: stored.width().unwrap_or(1),
                entries: self.pages.dictionary.len() as u32,
                flags: DataPage::flags_of(stored, self.width),
                unused: 0,
            };
            bytes.extend(page.to_bytes());
        }
    }

    /// The dictionary's values as the kernel reads them.
    pub(super) fn dictionary(&self) -> &'a [u8] {
        self.pages.dictionary.inner().as_slice()
    }

    /// Checks that pages of a compression were inflated to all of their bytes. Takes their results.
    pub(super) fn check_inflated<'r>(
        &self,
        by: PageCompression,
        results: &mut impl Iterator<Item = &'r [u8; Inflated::BYTES]>,
    ) -> Result<()> {
        for page in self.compressed(by) {
            let result = results.next().map(|result| Inflated::of_bytes(*result));
            let is_whole =
                |result: Inflated| result.error == 0 && result.written as usize == page.inflated;
            if !result.is_some_and(is_whole) {
                return wrong("a damaged page");
            }
        }
        Ok(())
    }
}
