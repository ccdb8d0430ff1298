//! Streams that copy chunks to the device while kernels run on others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::chunks::{COPIERS, Copies, Resident};
use super::driver::{Driver, Event, Stream};
use super::memory::{DeviceBuffer, lock};
use super::transfer_batch::{CopySource, TransferBatch};
use crate::error::Result;

/// Bytes that a copier takes before the next one's turn.
const COPIER_BYTES: usize = 64 << 20;

/// The copiers of a device.
pub(super) struct Copiers {
    driver: Arc<dyn Driver>,
    each: [CopierSlot; COPIERS],
    /// Index of the copier whose turn it is.
    turn: AtomicUsize,
    /// Copies begun by all copiers. A copier that replaces a broken one continues with larger numbers.
    begun: AtomicU64,
}

/// A copier, created on first use.
type CopierSlot = Mutex<Option<Copier>>;

struct Copier {
    stream: Box<dyn Stream>,
    /// The last copy begun, and the last that is known to be done. Copies count from 1.
    begun: u64,
    done: u64,
    /// Events after copies that were requested together, by the last copy before them.
    events: Vec<(u64, Event)>,
    /// Data that must not be freed before its copies are done.
    held: Vec<Shipped>,
    held_bytes: usize,
}

/// Data of a copy under way.
struct Shipped {
    copy: u64,
    bytes: usize,
    _from: Vec<CopySource>,
    _to: Vec<Arc<Resident>>,
}

impl Copiers {
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            driver,
            each: Default::default(),
            turn: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        }
    }

    /// Begins to copy chunks into `memory` of the device; they count as used at `now`.
    pub fn ship(
        &self,
        transfer: TransferBatch,
        memory: DeviceBuffer,
        now: u64,
    ) -> Result<Vec<Arc<Resident>>> {
        let memory = Arc::new(memory);
        let (index, mut slot) = self.choose();
        let mut copier = match slot.take() {
            Some(copier) => copier,
            None => Copier::new(self.driver.stream()?),
        };
        if !copier.has_room() {
            // it has had its share; by its next turn the copies are done, or nearly
            copier.finish()?;
        }
        copier.begun = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let residents = transfer.chunks.into_iter().map(|(offset, chunk)| {
            Arc::new(Resident {
                memory: Arc::clone(&memory),
                offset,
                chunk,
                used: AtomicU64::new(now),
                copier: index,
                copy: copier.begun,
            })
        });
        let residents: Vec<Arc<Resident>> = residents.collect();
        copier.held_bytes += transfer.bytes;
        copier.held.push(Shipped {
            copy: copier.begun,
            bytes: transfer.bytes,
            _from: transfer.from,
            _to: residents.clone(),
        });
        let mut copies = transfer.copies;
        copies
            .iter_mut()
            .for_each(|copy| copy.to += memory.address());
        // SAFETY: the batch's memory has these bytes, and so has the device's, each once. The copier holds both until
        // the copy is done; if that fails, it is dropped here, which waits for its stream, before they are.
        unsafe { copier.stream.copy_in_all(&copies)? };
        if !copier.has_room() {
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        *slot = Some(copier);
        Ok(residents)
    }

    /// The copier whose turn it is; if another thread uses it, one that can begin at once.
    fn choose(&self) -> (usize, MutexGuard<'_, Option<Copier>>) {
        let turn = self.turn.load(Ordering::Relaxed);
        for index in (turn..turn + COPIERS).map(|turn| turn % COPIERS) {
            if let Ok(slot) = self.each[index].try_lock()
                && slot.as_ref().is_none_or(Copier::has_room)
            {
                return (index, slot);
            }
        }
        let index = turn % COPIERS;
        (index, lock(&self.each[index]))
    }

    /// Records an event after the copies so far, so that kernels need not wait for later ones. Without an event, they
    /// wait for all copies.
    pub fn mark(&self) {
        for slot in &self.each {
            let mut slot = lock(slot);
            let Some(copier) = slot.as_mut() else {
                continue;
            };
            let marked = copier.events.last().map_or(copier.done, |(copy, _)| *copy);
            if marked < copier.begun
                && let Ok(mark) = copier.stream.mark()
            {
                copier.events.push((copier.begun, mark));
            }
        }
    }

    /// Makes a stream wait until these copies are done.
    pub fn wait_for(&self, stream: &mut dyn Stream, copies: &Copies) -> Result<()> {
        for (needed, copier) in copies.0.into_iter().zip(&self.each) {
            if let Some(copier) = lock(copier).as_mut()
                && copier.done < needed
            {
                match copier.events.iter().find(|(copy, _)| *copy >= needed) {
                    Some((_, mark)) => stream.wait(mark)?,
                    // for all copies so far: an event for each takes as long as a small copy
                    None => stream.wait(&copier.stream.mark()?)?,
                }
            }
        }
        Ok(())
    }

    /// Notes that these copies are done, and releases their data.
    pub fn arrived(&self, copies: &Copies) {
        for (needed, copier) in copies.0.into_iter().zip(&self.each) {
            if let Some(copier) = lock(copier).as_mut()
                && copier.done < needed
            {
                copier.done = needed;
                copier.events.retain(|(copy, _)| *copy > needed);
                let arrived = copier.held.partition_point(|held| held.copy <= needed);
                let bytes = copier.held.drain(..arrived).map(|held| held.bytes);
                copier.held_bytes = copier.held_bytes.saturating_sub(bytes.sum());
            }
        }
    }

    /// Returns true if these copies are known to be done: none of their data is held.
    pub fn have_brought(&self, copies: &Copies) -> bool {
        let mut each = copies.0.into_iter().zip(&self.each);
        each.all(|(needed, copier)| {
            let copier = copier.try_lock();
            needed == 0 || copier.is_ok_and(|of| of.as_ref().is_none_or(|of| of.done >= needed))
        })
    }

    /// Waits until all copies under way are done.
    pub fn finish(&self) -> Result<()> {
        for slot in &self.each {
            let mut slot = lock(slot);
            if let Some(mut copier) = slot.take() {
                copier.finish()?;
                *slot = Some(copier);
            }
        }
        Ok(())
    }
}

impl Copier {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            begun: 0,
            done: 0,
            events: vec![],
            held: vec![],
            held_bytes: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.held_bytes <= COPIER_BYTES
    }

    /// Waits until its copies are done.
    fn finish(&mut self) -> Result<()> {
        self.stream.synchronize()?;
        self.done = self.begun;
        self.events.clear();
        self.held.clear();
        self.held_bytes = 0;
        Ok(())
    }
}
