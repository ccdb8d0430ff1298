//! Generated kernels, executed on the CPU, against the decoders of `vectile-encodings`.

mod aggregates;
mod build;
mod catalog;
mod compile;
mod compress;
mod differential;
mod malformed;
mod matches;
mod memory;
mod mismatch;
mod post_aggregation;
mod properties;
mod reference;
mod samples;
mod sanitize;
mod strings;
mod support;
mod tiers;
mod watched;
