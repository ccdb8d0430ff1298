//! Whether this process can still use a device.

use std::process;
use std::sync::OnceLock;

use super::exit::AtWork;
use crate::error::{Error, Result};

/// The process that opened a device. CUDA does not work in its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that asks.
    pub fn this() -> Self {
        Self(process::id())
    }

    /// # Errors
    ///
    /// [`Error::Lost`] in another process.
    pub fn check(self) -> Result<()> {
        match self == Self::this() {
            true => Ok(()),
            false => Err(Error::Lost("it was opened before a fork".into())),
        }
    }
}

/// Whether a device works. After [`Error::Lost`] it never does again, so that nothing is tried.
#[derive(Debug)]
pub(crate) struct Health {
    process: Process,
    /// What happened, once it is lost.
    lost: OnceLock<String>,
}

impl Health {
    /// That of a device which this process has opened.
    pub fn new() -> Self {
        Self {
            process: Process::this(),
            lost: OnceLock::new(),
        }
    }

    /// # Errors
    ///
    /// [`Error::Lost`] if the device does not work any more. Takes no lock: after a fork, one may be
    /// held by a thread that is not there.
    pub fn check(&self) -> Result<()> {
        self.process.check()?;
        match self.lost.get() {
            Some(reason) => Err(Error::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Does work on the device, unless it is lost; and notes if it is lost then.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check()?;
        let _at_work = AtWork::begin()?;
        let result = work();
        if let Err(Error::Lost(reason)) = &result {
            // the first reason is the one that tells most
            let _ = self.lost.set(reason.clone());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_is_not_tried_again() {
        let health = Health::new();
        let failed = |call| {
            let reason = "busy".to_string();
            Err::<(), _>(Error::Driver { call, reason })
        };
        health.watch(|| failed("launch")).unwrap_err();
        health.check().unwrap();
        let lost = |reason: &str| Err::<(), _>(Error::Lost(reason.into()));
        health.watch(|| lost("illegal address")).unwrap_err();
        let tried = health.watch(|| -> Result<()> { panic!("tried") });
        let message = tried.unwrap_err().to_string();
        assert!(message.contains("illegal address"), "{message}");
    }

    #[test]
    fn other_processes_are_refused() {
        Process::this().check().unwrap();
        let other = Process(process::id() + 1);
        assert!(matches!(other.check(), Err(Error::Lost(_))));
    }
}
