//! An engine's device copies of host values.

use std::sync::Arc;

use super::copied::Copied;
use super::engine::Engine;
use super::memory::{DeviceBuffer, lock};
use crate::error::Result;
use vectile_pipeline::join::DeviceCopies;

impl Engine {
    /// The copy of a value on this engine's device; `copy` makes it unless it is there. Concurrent callers wait. It
    /// stays there at least as long as the returned reference.
    pub(crate) fn copied(
        &self,
        copies: &DeviceCopies,
        copy: impl FnOnce() -> Result<DeviceBuffer>,
    ) -> Result<Arc<DeviceBuffer>> {
        self.copied_of(copies).get_or_copy(self.now(), copy)
    }

    /// Copies that include this engine's.
    pub(crate) fn copies_with(&self, buffer: Arc<DeviceBuffer>) -> DeviceCopies {
        let copies = DeviceCopies::default();
        self.copied_of(&copies).set(buffer);
        copies
    }

    fn copied_of(&self, copies: &DeviceCopies) -> Arc<Copied> {
        let mut copies = lock(copies);
        let mut known = copies.iter().cloned().filter_map(|of| of.downcast().ok());
        if let Some(known) = known.find(|of: &Arc<Copied>| of.is_of(self.pool())) {
            return known;
        }
        let copied = Arc::new(Copied::new(self.pool(), self.now()));
        copies.push(Arc::clone(&copied) as _);
        self.register(&copied);
        copied
    }
}
