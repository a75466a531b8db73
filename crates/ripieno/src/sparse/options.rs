//! Options of a sparse reduction. They must be the same on every rank, except the number of threads.

use crate::error::{Error, argument};
use ripieno_plan::sparse::{DENSE_ABOVE, Degrees};
use std::fmt;
use std::num::NonZeroUsize;

/// Options of a sparse reduction.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseOptions {
    /// Exclusive upper bound of the indices. `None` means one more than the largest index of any rank.
    pub size: Option<u64>,
    /// The degrees of the layers. `None` means a design from the sets of all ranks.
    pub degrees: Option<Degrees>,
    /// Whether requested indices that no rank contributes result in zeros instead of an error.
    pub missing_is_zero: bool,
    /// Density, from 0 to 1, above which a union of sets is stored as its whole range. A dense union needs no maps, but
    /// includes rows that no rank contributes. A union stays sparse if the sets together have less than one key in 32
    /// of the range, or if the range has `2^32` keys or more.
    pub dense_above: f64,
    /// Number of threads that sort, merge and reorder rows, including the caller. Results do not depend on it.
    pub threads: NonZeroUsize,
}

impl Default for SparseOptions {
    fn default() -> Self {
        let threads = NonZeroUsize::MIN;
        SparseOptions { size: None, degrees: None, missing_is_zero: false, dense_above: DENSE_ABOVE, threads }
    }
}

impl SparseOptions {
    /// Return options for `p` ranks and one thread. `degrees` is a text for [`Degrees::named`].
    pub fn parse(
        size: Option<u64>,
        degrees: Option<&str>,
        missing_is_zero: bool,
        dense_above: f64,
        p: usize,
    ) -> Result<SparseOptions, Error> {
        let expected = || format!("direct, binary or factors such as 8x4x2 whose product is {p}, the number of ranks");
        let degrees = degrees.map(|text| Degrees::named(text, p).map_err(|_| argument("degrees", text, &expected())));
        Ok(SparseOptions {
            size,
            degrees: degrees.transpose()?,
            missing_is_zero,
            dense_above,
            ..SparseOptions::default()
        })
    }

    /// Check the options for `p` ranks.
    pub(super) fn check(&self, p: usize) -> Result<(), Error> {
        if let Some(degrees) = self.degrees.as_ref().filter(|degrees| degrees.world_size() != p) {
            let expected = format!("factors whose product is {p}, the number of ranks");
            return Err(argument("degrees", degrees, &expected));
        }
        if self.size.is_some_and(|size| size > i64::MAX as u64) {
            return Err(argument("size", self.size.unwrap_or_default(), &format!("at most {}", i64::MAX)));
        }
        match self.dense_above >= 0.0 {
            true => Ok(()),
            false => Err(argument("dense_above", self.dense_above, "a density, 0 or more")),
        }
    }
}

impl fmt::Display for SparseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "size={size}, ")?,
            None => f.write_str("size=None, ")?,
        }
        match &self.degrees {
            Some(degrees) => write!(f, "degrees={degrees}, ")?,
            None => f.write_str("degrees=None, ")?,
        }
        let missing = if self.missing_is_zero { "zero" } else { "error" };
        write!(f, "missing={missing}, dense_above={}", self.dense_above)
    }
}
