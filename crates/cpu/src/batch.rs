//! Batches: the rows that a program runs over at once.

use vectile_encodings::layout::SequenceReader;
use vectile_encodings::row_list::push_rows;
use vectile_encodings::{Selection, VECTOR_LEN};
use vectile_pipeline::Result;

use crate::vector::{Mask, first_rows};

/// If at most one row of this many is selected, of vectors with a selected row, rows are picked before they are computed
/// on.
const PICKED: usize = 6;

/// At most [`VECTOR_LEN`] rows of a row group. They are the first rows of the vectors that a program computes.
#[derive(Clone, Copy)]
pub(crate) enum Batch<'a> {
    /// All rows of a vector.
    Vector(usize),
    /// These rows, which ascend and may repeat, and their matches in some lists.
    Rows(&'a [u32], &'a [Matched]),
}

/// The codes of the matches that the rows of a batch have in a list.
pub(crate) struct Matched {
    pub codes: Box<[i64; VECTOR_LEN]>,
    /// `None` if all rows have a match.
    pub valid: Option<Mask>,
}

impl<'a> Batch<'a> {
    /// The row at an index of the batch.
    pub fn row(self, index: usize) -> u32 {
        match self {
            Self::Vector(vector) => (vector * VECTOR_LEN + index) as u32,
            Self::Rows(rows, _) => rows[index],
        }
    }

    /// The matches of the rows.
    pub fn matches(self) -> &'a [Matched] {
        match self {
            Self::Vector(_) => &[],
            Self::Rows(_, matches) => matches,
        }
    }

    /// Decodes the rows of a sequence. Entries behind the batch are arbitrary.
    pub fn integers(self, of: &SequenceReader<'_>, out: &mut [i64; VECTOR_LEN]) -> Result<()> {
        match self {
            Self::Vector(vector) => of.decode(vector, out)?,
            Self::Rows(rows, _) => of.pick(rows, &mut out[..rows.len()])?,
        }
        Ok(())
    }

    /// The bits of the rows, of which `of_vector` returns those of a vector.
    pub fn mask(self, of_vector: impl Fn(usize) -> Mask) -> Mask {
        let rows = match self {
            Self::Vector(vector) => return of_vector(vector),
            Self::Rows(rows, _) => rows,
        };
        let mut mask = [0; VECTOR_LEN / 64];
        let mut at = 0;
        for rows in by_vector(rows) {
            let bits = of_vector(rows[0] as usize / VECTOR_LEN);
            for row in rows {
                let row = *row as usize % VECTOR_LEN;
                mask[at / 64] |= (bits[row / 64] >> (row % 64) & 1) << (at % 64);
                at += 1;
            }
        }
        mask
    }
}

/// The rows of each vector.
pub(crate) fn by_vector(rows: &[u32]) -> impl Iterator<Item = &[u32]> {
    rows.chunk_by(|a, b| *a as usize / VECTOR_LEN == *b as usize / VECTOR_LEN)
}

/// Calls `run` with batches of all selected rows, in their order: whole vectors, of which the mask has the selected rows,
/// or just these rows, if they are few. `selection` covers the row group.
pub(crate) fn for_each_batch(
    selection: &Selection,
    mut run: impl FnMut(Batch<'_>, &Mask) -> Result<()>,
) -> Result<()> {
    let vectors = (0..selection.num_vectors()).filter(|vector| !selection.is_vector_empty(*vector));
    if selection.count() * PICKED > vectors.clone().count() * VECTOR_LEN {
        for vector in vectors {
            run(Batch::Vector(vector), &selection.mask(vector))?;
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for vector in vectors {
        push_rows(
            &selection.mask(vector),
            (vector * VECTOR_LEN) as u32,
            &mut rows,
        );
        if let Some((full, rest)) = rows.split_at_checked(VECTOR_LEN) {
            run(Batch::Rows(full, &[]), &first_rows(VECTOR_LEN))?;
            let rest = rest.len();
            rows.copy_within(VECTOR_LEN.., 0);
            rows.truncate(rest);
        }
    }
    match rows.is_empty() {
        true => Ok(()),
        false => run(Batch::Rows(&rows, &[]), &first_rows(rows.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::for_each_row;

    /// Batches have each selected row once, whether few or many are selected.
    #[test]
    fn batches_are_all_selected_rows() {
        let rows = 7 * VECTOR_LEN + 100;
        for every in [1, 2, 3, 4, 9, 500, 8000] {
            let bits = |word: usize| {
                let bit = |bit: &usize| (word * 64 + bit).is_multiple_of(every);
                (0..64).filter(bit).fold(0, |all, bit| all | 1 << bit)
            };
            let mut selection = Selection::all(0, rows);
            for vector in 0..selection.num_vectors() {
                let mask: Mask = std::array::from_fn(|word| bits(vector * 16 + word));
                selection.and_mask(vector, &mask);
            }
            let mut found = Vec::new();
            for_each_batch(&selection, |batch, mask| {
                match batch {
                    Batch::Vector(vector) => {
                        for_each_row(mask, |row| found.push(vector * VECTOR_LEN + row));
                    }
                    Batch::Rows(rows, _) => {
                        for_each_row(mask, |row| found.push(rows[row] as usize));
                        let of_rows = batch.mask(|vector| selection.mask(vector));
                        assert_eq!(of_rows, *mask);
                    }
                }
                Ok(())
            })
            .unwrap();
            let expected: Vec<usize> = (0..rows).filter(|row| row.is_multiple_of(every)).collect();
            assert_eq!(found, expected, "one of {every}");
        }
    }
}
