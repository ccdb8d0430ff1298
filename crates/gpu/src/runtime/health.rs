//! Health of a device: whether this process can still use it.

use std::process;
use std::sync::OnceLock;

use super::exit::CallGuard;
use crate::error::{Error, Result};

/// The process that opened a device. CUDA does not work in its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process.
    pub fn this() -> Self {
        Self(process::id())
    }

    /// Checks that the calling process opened the device.
    ///
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

/// State of a device. After [`Error::Lost`] it never works again, so nothing is tried any more.
#[derive(Debug)]
pub(crate) struct Health {
    process: Process,
    /// The reason, once the device is lost.
    lost: OnceLock<String>,
}

impl Health {
    /// For a device that this process has opened.
    pub fn new() -> Self {
        Self {
            process: Process::this(),
            lost: OnceLock::new(),
        }
    }

    /// Checks that the device is not lost. Takes no lock: after a fork, one may be held by a thread that does not
    /// exist.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the device does not work any more.
    pub fn check(&self) -> Result<()> {
        self.process.check()?;
        match self.lost.get() {
            Some(reason) => Err(Error::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Runs work on the device, unless it is lost; and records if the work loses it.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check()?;
        let _guard = CallGuard::begin()?;
        let result = work();
        if let Err(Error::Lost(reason)) = &result {
            // the first reason is the most informative
            let _ = self.lost.set(reason.clone());
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_is_not_retried() {
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
