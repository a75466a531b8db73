//! What an aggregation has become: parts, each with a home rank.

use super::block::{Block, Form, PartSize};
use super::part::Part;
use crate::error::Error;

/// Parts of distinct keys. Within a part, keys lie in order of first appearance.
#[derive(Debug)]
pub struct Parts {
    pub(super) form: Form,
    pub(super) rank_count: usize,
    /// `None` once taken.
    pub(super) parts: Vec<Option<Part>>,
}

impl Parts {
    /// What the data looks like.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// How many ranks the parts have their homes at.
    pub fn rank_count(&self) -> usize {
        self.rank_count
    }

    /// How many parts; part `p` is at home at rank `p / (part_count / rank_count)`.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// How large part `part` is; nothing once it is taken.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn size(&self, part: usize) -> PartSize {
        self.parts[part].as_ref().map_or(PartSize::default(), |part| part.size(&self.form))
    }

    /// Takes part `part`, and leaves none of its memory here.
    ///
    /// # Errors
    /// A part that was spilled cannot be read back.
    ///
    /// # Panics
    /// If there is no such part, or it has been taken before.
    pub fn take(&mut self, part: usize) -> Result<Block, Error> {
        let part = self.parts[part].take().expect("a part is taken once");
        Ok(part.into_block(&self.form))
    }
}
