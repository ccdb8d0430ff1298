//! Reasons for leaving work to the CPU.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion::error::DataFusionError;

use super::cost_model::Estimate;
use crate::error;

/// Why a scan, or operators above it, run on the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FallbackReason {
    /// There is no device.
    NoDevice(Arc<str>),
    /// The query groups in more than one way.
    GroupingSets,
    /// There is no kernel that groups by this.
    GroupKey(String),
    /// The query needs any groups up to a limit: the CPU stops after that many.
    AnyGroups,
    /// The join cannot be a lookup.
    Join(String),
    /// There is no kernel for this aggregate.
    Aggregate(String),
    /// There is no kernel for this expression.
    Expr(String),
    /// An expression is nested deeper than kernels allow.
    TooDeep,
    /// An expression has more parts than compile in reasonable time.
    ManyParts,
    /// There is no kernel for columns of this type.
    Type {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// The column is a partition column, so its values are not in the files.
    PartitionColumn(String),
    /// There is a limit on the aggregate's input rows.
    Limit,
    /// The input is the last iteration of a recursive query, which can be read only once.
    WorkTable,
    /// Only the rows are needed that come first in an order: the CPU stops to read where none of them can be.
    FirstRows,
    /// The scan has no filter, so there is nothing to compute on the device.
    NoFilter,
    /// The CPU is estimated to be faster, or was measured to be.
    CpuIsFaster(Estimate),
    /// The GPU failed at the query before.
    Refused,
    /// The device is being opened.
    NotOpen(Estimate),
    /// Columns are not on the device yet.
    NotLoaded(Estimate),
    /// The kernel is not compiled yet.
    NotCompiled(Estimate),
    /// The background is preparing the GPU for the query.
    BeingPrepared,
    /// The columns exceed the device's memory, so that most would be loaded for this query alone.
    TooLarge {
        /// Bytes of the columns.
        bytes: u64,
        /// Bytes that fit.
        limit: u64,
    },
    /// The query reads few rows, for which a program costs more than it saves.
    FewRows(usize),
    /// A key has so many values that reading results would take longer than aggregating on all cores.
    ManyGroups {
        /// Values of the key.
        values: u128,
        /// Maximum number of groups whose results are read.
        most: u64,
    },
    /// DataFusion returned an error at planning.
    Failed(String),
    /// An invariant of Vectile does not hold.
    Defect(String),
}

impl FallbackReason {
    /// True if the reason is cost: the CPU is expected to be faster now.
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

    /// True if there is a kernel, but the CPU should run the query.
    pub(crate) fn is_for_cpu(&self) -> bool {
        self.is_of_cost() || *self == Self::Refused
    }

    /// The time that the GPU is expected to take with what is missing, if something is.
    pub(crate) fn until_ready(&self) -> Option<Duration> {
        match self {
            Self::NotOpen(estimate) | Self::NotLoaded(estimate) | Self::NotCompiled(estimate) => {
                Some(estimate.gpu)
            }
            _ => None,
        }
    }

    /// True if the decision stays until costs change: nothing is prepared.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::CpuIsFaster(_) | Self::Refused)
    }

    /// True if preparing the device could change the decision.
    pub(crate) fn can_be_prepared(&self) -> bool {
        matches!(
            self,
            Self::NotOpen(_) | Self::NotLoaded(_) | Self::NotCompiled(_) | Self::BeingPrepared
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
            Self::FirstRows => {
                f.write_str("a few rows that come first are found sooner by the CPU")
            }
            Self::NoFilter => f.write_str("there is no filter"),
            Self::CpuIsFaster(estimate) => write!(f, "the CPU is faster: {estimate}"),
            Self::Refused => f.write_str("the GPU could not do this when it was tried"),
            Self::NotOpen(estimate) => write!(f, "the GPU is not open yet: {estimate}"),
            Self::NotLoaded(estimate) => write!(f, "columns are not loaded yet: {estimate}"),
            Self::NotCompiled(estimate) => write!(f, "the kernel is not compiled yet: {estimate}"),
            Self::BeingPrepared => f.write_str("the GPU is still being prepared"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "{bytes} bytes do not fit {limit} of device memory")
            }
            Self::FewRows(rows) => write!(f, "a program pays for more than {rows} rows"),
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
