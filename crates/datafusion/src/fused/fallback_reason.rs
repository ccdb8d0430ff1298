//! Why something is left to the CPU.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;

use super::cost_model::Estimate;
use crate::error;

/// Why a scan, or what is above it, is left to the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FallbackReason {
    /// There is no device.
    NoDevice(Arc<str>),
    /// The query groups in more than one way.
    GroupingSets,
    /// There is no kernel that groups by this.
    GroupKey(String),
    /// Some groups are asked for, whichever: the CPU stops when it has found them.
    AnyGroups,
    /// The scan is joined in a way that is no lookup.
    Join(String),
    /// There is no kernel for this aggregate.
    Aggregate(String),
    /// There is no kernel for this expression.
    Expr(String),
    /// An expression has more levels than kernels do.
    TooDeep,
    /// An expression has more parts than the compiler takes in reasonable time.
    ManyParts,
    /// There is no kernel for columns of this type.
    Type {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// The values of this column are not in the files.
    PartitionColumn(String),
    /// The rows of the aggregate are limited.
    Limit,
    /// It reads the rows of a recursive query's last iteration, which can be read once.
    WorkTable,
    /// The scan has no filter, so there is nothing to compute on the device.
    NoFilter,
    /// The CPU is expected to be faster, or was.
    CpuIsFaster(Estimate),
    /// The GPU could not do the query when it was tried.
    Refused,
    /// The device is being opened.
    NotOpen(Estimate),
    /// Columns are not on the device yet.
    NotLoaded(Estimate),
    /// The kernel is not compiled yet.
    NotCompiled(Estimate),
    /// The GPU is being made ready for the query.
    BeingPrepared,
    /// More bytes than fit, most of which would be loaded for this query alone.
    TooLarge {
        /// Bytes of the columns.
        bytes: u64,
        /// Bytes that fit.
        limit: u64,
    },
    /// A key has so many values that results would take longer than the aggregate does on all cores.
    ManyGroups {
        /// Values of the key.
        values: u128,
        /// Groups of which results are read.
        most: u64,
    },
    /// DataFusion could not tell what we asked it.
    Failed(String),
    /// An invariant of ours does not hold.
    Defect(String),
}

impl FallbackReason {
    /// Whether the CPU is expected to be faster.
    pub(crate) fn is_of_cost(&self) -> bool {
        matches!(
            self,
            Self::CpuIsFaster(_)
                | Self::NotOpen(_)
                | Self::NotLoaded(_)
                | Self::NotCompiled(_)
                | Self::BeingPrepared
        )
    }

    /// Whether there is a kernel, and the CPU is to do it nonetheless.
    pub(crate) fn is_for_cpu(&self) -> bool {
        self.is_of_cost() || *self == Self::Refused
    }

    /// Whether it would be another answer if the device had what the query needs.
    pub(crate) fn can_be_prepared(&self) -> bool {
        matches!(
            self,
            Self::NotOpen(_) | Self::NotLoaded(_) | Self::NotCompiled(_)
        )
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice(reason) => f.write_str(reason),
            Self::GroupingSets => f.write_str("grouping sets are not fused"),
            Self::GroupKey(key) => write!(f, "no kernel for grouping by {key}"),
            Self::AnyGroups => f.write_str("some groups are enough"),
            Self::Join(reason) => write!(f, "join: {reason}"),
            Self::Aggregate(name) => write!(f, "no kernel for {name}"),
            Self::Expr(expr) => write!(f, "no kernel for {expr}"),
            Self::TooDeep => f.write_str("an expression is nested too deep for a kernel"),
            Self::ManyParts => f.write_str("an expression has too many parts for a kernel"),
            Self::Type { column, data_type } => {
                write!(f, "no kernel for {column}, which is {data_type}")
            }
            Self::PartitionColumn(column) => write!(f, "{column} is not in the files"),
            Self::Limit => f.write_str("a limit below an aggregate is not fused"),
            Self::WorkTable => f.write_str("it is a part of a recursive query"),
            Self::NoFilter => f.write_str("there is no filter"),
            Self::CpuIsFaster(estimate) => write!(f, "the CPU is faster: {estimate}"),
            Self::Refused => f.write_str("the GPU could not do this when it was tried"),
            Self::NotOpen(estimate) => write!(f, "the GPU is not open yet: {estimate}"),
            Self::NotLoaded(estimate) => write!(f, "columns are not loaded yet: {estimate}"),
            Self::NotCompiled(estimate) => write!(f, "the kernel is not compiled yet: {estimate}"),
            Self::BeingPrepared => f.write_str("the GPU is being made ready, and is not yet"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "{bytes} bytes do not fit {limit} of device memory")
            }
            Self::ManyGroups { values, most } => {
                write!(f, "{values} values of a key are more groups than {most}")
            }
            Self::Failed(error) | Self::Defect(error) => f.write_str(error),
        }
    }
}

impl From<DataFusionError> for FallbackReason {
    fn from(error: DataFusionError) -> Self {
        match error::is_internal(&error) {
            true => Self::Defect(error.strip_backtrace()),
            false => Self::Failed(error.strip_backtrace()),
        }
    }
}
