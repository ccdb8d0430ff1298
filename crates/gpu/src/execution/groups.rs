//! Grouped aggregates.

use super::Execution;
use crate::engine::Group;
use crate::error::{Error, Result};
use crate::ir::Groups;

impl Execution {
    /// Aggregates row groups by keys, for [`Output::Groups`](crate::ir::Output::Groups). A group may
    /// come back more than once, with parts of its rows: combine them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with a reason, if there is no kernel for this pipeline over these chunks,
    /// or if there are more groups than memory for them; those of the driver.
    pub fn group(&mut self, groups: &[Group]) -> Result<Vec<Groups>> {
        let reason = format!("grouping of {} row groups", groups.len());
        Err(Error::Unsupported(reason))
    }
}
