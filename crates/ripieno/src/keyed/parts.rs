//! What an aggregation has become: parts, each with a home rank.

use super::block::{Block, Form, PartSize};
use super::homes::Homes;
use super::limit::Limited;
use super::part::Part;
use super::spill::{Record, SpillFile};
use crate::error::Error;
use ripieno_kernels::Threads;

/// Parts of distinct keys. Within a part, keys lie in order of first appearance.
#[derive(Debug)]
pub struct Parts {
    form: Form,
    homes: Homes,
    sealed: Vec<Sealed>,
    /// Where the spilled ones are.
    file: Option<SpillFile>,
    spilled_bytes: u64,
}

/// What has become of a part.
#[derive(Debug)]
enum Sealed {
    Held(Block),
    Spilled(PartSize, Record),
    Taken,
}

impl Parts {
    /// The parts of an aggregation, none of whose rows wait; if some were spilled, half of the limit is free.
    pub(super) fn sealed(
        form: Form,
        homes: Homes,
        parts: Vec<Part>,
        mut limited: Option<Limited>,
        threads: &Threads,
    ) -> Result<Parts, Error> {
        let has_runs = |at| limited.as_ref().is_some_and(|limited| limited.has_runs(at));
        let mut slots: Vec<(Option<Part>, Sealed)> =
            parts.into_iter().map(|part| (Some(part), Sealed::Taken)).collect();
        let whole = slots.iter_mut().enumerate().filter(|(at, _)| !has_runs(*at)).map(|(_, slot)| slot).collect();
        threads.for_each(
            whole,
            1 << 16,
            || (),
            |(), (part, sealed)| {
                *sealed = Sealed::Held(part.take().expect("it was not sealed yet").into_block());
            },
        );
        let mut sealed = Parts { form, homes, sealed: Vec::new(), file: None, spilled_bytes: 0 };
        if let Some(limited) = &mut limited {
            sealed.merge(&mut slots, limited)?;
            sealed.spilled_bytes = limited.spilled_bytes() + sealed.file.as_ref().map_or(0, SpillFile::size_bytes);
        }
        sealed.sealed = slots.into_iter().map(|(_, sealed)| sealed).collect();
        Ok(sealed)
    }

    /// Merges the parts that have runs, one at a time. What finds no room in half the limit goes to another file.
    fn merge(&mut self, slots: &mut [(Option<Part>, Sealed)], limited: &mut Limited) -> Result<(), Error> {
        let mut held_bytes: usize = slots.iter().map(|(part, sealed)| size_bytes(part, sealed)).sum();
        for (at, (part, sealed)) in slots.iter_mut().enumerate() {
            held_bytes -= size_bytes(part, sealed);
            if let Some(part) = part.take() {
                let block = limited.merged(at, part, &self.form)?.into_block();
                *sealed = if held_bytes + block.size_bytes() <= limited.bytes() / 2 {
                    Sealed::Held(block)
                } else {
                    let file = match &mut self.file {
                        Some(file) => file,
                        none => none.insert(limited.new_file()?),
                    };
                    let record = file.append(block.keys.view(), block.counts.as_deref(), &block.values)?;
                    Sealed::Spilled(block.size(), record)
                };
            }
            held_bytes += size_bytes(&None, sealed);
        }
        Ok(())
    }

    /// What the data looks like.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// What the data would look like, if there were any: there is none.
    pub(super) fn adopt(&mut self, form: Form) {
        self.form = form;
    }

    /// How many ranks the parts have their homes at.
    pub fn rank_count(&self) -> usize {
        self.homes.rank_count
    }

    /// How many parts; part `p` is at home at rank `p / (part_count / rank_count)`.
    pub fn part_count(&self) -> usize {
        self.sealed.len()
    }

    /// Bytes that were written to files.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// The memory that is held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.sealed.iter().map(|sealed| size_bytes(&None, sealed)).sum()
    }

    /// How large part `part` is; nothing once it is taken.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn size(&self, part: usize) -> PartSize {
        match &self.sealed[part] {
            Sealed::Held(block) => block.size(),
            Sealed::Spilled(size, _) => *size,
            Sealed::Taken => PartSize::default(),
        }
    }

    /// Takes part `part`, and leaves none of its memory here.
    ///
    /// # Errors
    /// A part that was spilled cannot be read back.
    ///
    /// # Panics
    /// If there is no such part, or it has been taken before.
    pub fn take(&mut self, part: usize) -> Result<Block, Error> {
        let (held, element) = (self.form.held_element(), self.form.element);
        Ok(self.take_held(part)?.converted(held, element))
    }

    /// Takes part `part` as [`Parts::take`] does, with rows in the type in which they are held.
    pub(super) fn take_held(&mut self, part: usize) -> Result<Block, Error> {
        match std::mem::replace(&mut self.sealed[part], Sealed::Taken) {
            Sealed::Held(block) => Ok(block),
            Sealed::Spilled(_, record) => {
                let (file, kind) = (self.file.as_ref().expect("spilled parts lie in a file"), self.form.keys);
                Ok(Block {
                    keys: file.keys(&record, kind)?,
                    counts: file.links(&record, kind, 0, record.key_count)?,
                    values: file.values(&record, kind, 0, record.value_bytes)?,
                })
            }
            Sealed::Taken => panic!("part {part} is taken once"),
        }
    }
}

/// The memory that a part takes, sealed or not.
fn size_bytes(part: &Option<Part>, sealed: &Sealed) -> usize {
    match (part, sealed) {
        (Some(part), _) => part.size_bytes(),
        (None, Sealed::Held(block)) => block.size_bytes(),
        (None, _) => 0,
    }
}
