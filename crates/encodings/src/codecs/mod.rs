//! The encodings, a module each.
//!
//! ```text
//! sequences   constant, ffor, delta, rle, sparse, gpu_for, gpu_dfor, gpu_rfor
//!             integers of 64 bits: most other encodings have some inside
//! columns     constant, plain, integers (a sequence), dict, alp, alp_rd, strings (plain, fsst, onpair), nested
//! ```
//!
//! The first set is closed by the list in `encoding`: an encoding of sequences is added by a module here, which
//! implements `SequenceCodec`, and a row of that list. The second set is closed by `registry`: an encoding of columns
//! has a row without a type, and the compiler lists the matches there that lack it.

pub(crate) mod alp;
pub(crate) mod alp_rd;
pub(crate) mod blocks;
pub(crate) mod codec;
pub(crate) mod constant;
pub(crate) mod delta;
pub(crate) mod dict;
pub(crate) mod ffor;
pub(crate) mod fsst;
pub(crate) mod gpu_dfor;
pub(crate) mod gpu_for;
pub(crate) mod gpu_rfor;
pub(crate) mod integers;
pub(crate) mod layout;
pub(crate) mod nested;
pub(crate) mod onpair;
pub(crate) mod plain;
pub(crate) mod registry;
pub(crate) mod rle;
pub(crate) mod sequence;
pub(crate) mod sequence_codec;
pub(crate) mod source;
pub(crate) mod sparse;
pub(crate) mod strings;
