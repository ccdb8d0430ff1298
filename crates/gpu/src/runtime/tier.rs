//! Tiers: the two kinds of kernels that can run a plan.

/// How the kernel of a plan is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// A generated kernel that is there, else the interpreter. A kernel is compiled for what that cannot run, and in the
    /// background for what it runs often.
    #[default]
    Auto,
    /// Always the interpreter.
    Interpreted,
    /// Always a generated kernel.
    Generated,
}

impl Tier {
    /// The tier of a number.
    pub(super) fn of(number: u8) -> Self {
        [Self::Auto, Self::Interpreted, Self::Generated]
            .into_iter()
            .find(|tier| *tier as u8 == number)
            .unwrap_or_default()
    }
}
