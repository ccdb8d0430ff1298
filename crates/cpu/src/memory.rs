//! Memory for groups, for which the caller is asked.

use std::cell::{Cell, RefCell};

use vectile_pipeline::{Error, Result};

/// Batches of matches from one call to the next.
const BATCHES: u32 = 1 << 10;

/// The caller's function that reserves memory. It is called during long work, too, so that it can end the run.
pub(crate) struct Memory<'a> {
    reserve: RefCell<&'a mut dyn FnMut(usize) -> Result<()>>,
    reserved: Cell<usize>,
    batches: Cell<u32>,
}

impl<'a> Memory<'a> {
    /// No memory yet.
    pub fn new(reserve: &'a mut dyn FnMut(usize) -> Result<()>) -> Self {
        Self {
            reserve: RefCell::new(reserve),
            reserved: Cell::new(0),
            batches: Cell::new(0),
        }
    }

    /// Bytes that were reserved.
    pub fn reserved(&self) -> usize {
        self.reserved.get()
    }

    /// Reserves `bytes` in total.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        self.reserved.set(bytes);
        let reserve = self.reserve.try_borrow_mut();
        let mut reserve =
            reserve.map_err(|_| Error::Internal("memory within a reservation".into()))?;
        reserve(bytes)
    }

    /// Counts a batch of matches. Reserves the same memory once more after some batches.
    pub fn check(&self) -> Result<()> {
        let batches = self.batches.get() + 1;
        self.batches.set(batches % BATCHES);
        match batches {
            BATCHES => self.reserve(self.reserved.get()),
            _ => Ok(()),
        }
    }
}
