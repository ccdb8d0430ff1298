//! The encodings, a module each.

pub(crate) mod alp;
pub(crate) mod alp_rd;
pub(crate) mod codec;
pub(crate) mod constant;
pub(crate) mod delta;
pub(crate) mod dict;
pub(crate) mod ffor;
pub(crate) mod integers;
pub(crate) mod layout;
pub(crate) mod nested;
pub(crate) mod plain;
pub(crate) mod registry;
pub(crate) mod rle;
pub(crate) mod sequence;
pub(crate) mod source;
pub(crate) mod strings;
