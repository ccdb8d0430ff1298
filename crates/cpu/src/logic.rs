//! Vectors of booleans, with SQL's rules for nulls.

use vectile_encodings::VECTOR_LEN;
use vectile_pipeline::{Error, Result};

use crate::primitives;
use crate::vector::{ALL, Mask, Values, Vector};

pub(crate) fn complement(mask: Mask) -> Mask {
    mask.map(|word| !word)
}

pub(crate) fn set_bools(out: &mut Vector, mask: Mask, valid: Option<Mask>) {
    out.values = Values::Bool(mask);
    out.valid = valid;
}

/// The values of booleans.
pub(crate) fn bools(vector: &Vector) -> Result<Mask> {
    match &vector.values {
        Values::Bool(mask) => Ok(*mask),
        _ => Err(Error::Internal("a condition that is no boolean".into())),
    }
}

/// The rows for which a boolean is true, and not null.
pub(crate) fn is_true(vector: &Vector) -> Result<Mask> {
    let (values, valid) = (bools(vector)?, vector.valid.unwrap_or(ALL));
    Ok(std::array::from_fn(|word| values[word] & valid[word]))
}

/// Three-valued AND, or OR, of vectors in `before`, by their indices.
pub(crate) fn logic(
    parts: &[usize],
    before: &[Vector],
    out: &mut Vector,
    is_and: bool,
) -> Result<()> {
    let (mut some_true, mut all_true) = ([0; VECTOR_LEN / 64], ALL);
    let (mut some_false, mut all_false) = ([0; VECTOR_LEN / 64], ALL);
    for part in parts {
        let part = &before[*part];
        let values = bools(part)?;
        let valid = part.valid.unwrap_or(ALL);
        for word in 0..VECTOR_LEN / 64 {
            let (yes, no) = (values[word] & valid[word], !values[word] & valid[word]);
            some_true[word] |= yes;
            all_true[word] &= yes;
            some_false[word] |= no;
            all_false[word] &= no;
        }
    }
    let (yes, no) = match is_and {
        true => (all_true, some_false),
        false => (some_true, all_false),
    };
    let is_nullable = parts.iter().any(|part| before[*part].valid.is_some());
    let known = || std::array::from_fn(|word| yes[word] | no[word]);
    set_bools(out, yes, is_nullable.then(known));
    Ok(())
}

/// The value of the first condition that is true. `parts` are the indices of conditions and values in turn, then of the default.
pub(crate) fn case(parts: &[usize], before: &[Vector], out: &mut Vector) -> Result<()> {
    let Some((last, branches)) = parts.split_last() else {
        return Err(Error::Internal("a CASE without WHEN".into()));
    };
    let default = &before[*last];
    primitives::copy(&default.values, &mut out.values)?;
    let is_nullable = parts.iter().skip(1).step_by(2).chain([last]);
    let is_nullable = is_nullable
        .clone()
        .any(|part| before[*part].valid.is_some());
    let mut valid = default.valid.unwrap_or(ALL);
    // the first condition is the last to be written
    for branch in branches.as_chunks::<2>().0.iter().rev() {
        let [when, then] = branch.map(|part| &before[part]);
        let mut met = bools(when)?;
        if let Some(known) = when.valid {
            met.iter_mut()
                .zip(known)
                .for_each(|(met, known)| *met &= known);
        }
        primitives::merge(&met, &then.values, &mut out.values)?;
        let then_valid = then.valid.unwrap_or(ALL);
        for word in 0..VECTOR_LEN / 64 {
            valid[word] = (valid[word] & !met[word]) | (then_valid[word] & met[word]);
        }
    }
    out.valid = is_nullable.then_some(valid);
    Ok(())
}
