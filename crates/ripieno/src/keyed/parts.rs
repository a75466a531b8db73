//! The sealed result of an aggregation: parts, each owned by a rank.

use super::block::{KeyedBlock, KeyedSchema, PartSize};
use super::limit::Limited;
use super::owners::PartOwners;
use super::part::KeyedPart;
use super::spill::{SpillFile, SpillRecord};
use crate::error::Error;
use ripieno_kernels::Threads;

/// Parts of distinct keys. Within a part, keys are in order of first appearance.
#[derive(Debug)]
pub struct Parts {
    schema: KeyedSchema,
    owners: PartOwners,
    sealed: Vec<SealedPart>,
    /// File of the spilled parts.
    file: Option<SpillFile>,
    spilled_bytes: u64,
}

/// State of a sealed part.
#[derive(Debug)]
enum SealedPart {
    Held(KeyedBlock),
    Spilled(PartSize, SpillRecord),
    Taken,
}

impl Parts {
    /// Seal the parts of an aggregation, which must have no staged rows. If parts were spilled, half of the limit must
    /// be free.
    pub(super) fn sealed(
        schema: KeyedSchema,
        owners: PartOwners,
        parts: Vec<KeyedPart>,
        mut limited: Option<Limited>,
        threads: &Threads,
    ) -> Result<Parts, Error> {
        let has_runs = |at| limited.as_ref().is_some_and(|limited| limited.has_runs(at));
        let mut slots: Vec<(Option<KeyedPart>, SealedPart)> =
            parts.into_iter().map(|part| (Some(part), SealedPart::Taken)).collect();
        let unspilled = slots.iter_mut().enumerate().filter(|(at, _)| !has_runs(*at)).map(|(_, slot)| slot).collect();
        threads.for_each(
            unspilled,
            1 << 16,
            || (),
            |(), (part, sealed)| {
                *sealed = SealedPart::Held(part.take().expect("each part is sealed once").into_block());
            },
        );
        let mut sealed = Parts { schema, owners, sealed: Vec::new(), file: None, spilled_bytes: 0 };
        if let Some(limited) = &mut limited {
            sealed.merge(&mut slots, limited)?;
            sealed.spilled_bytes = limited.spilled_bytes() + sealed.file.as_ref().map_or(0, SpillFile::size_bytes);
        }
        sealed.sealed = slots.into_iter().map(|(_, sealed)| sealed).collect();
        Ok(sealed)
    }

    /// Merge the parts that have runs, one at a time. Merged parts above half of the limit are written to another file.
    fn merge(&mut self, slots: &mut [(Option<KeyedPart>, SealedPart)], limited: &mut Limited) -> Result<(), Error> {
        let mut held_bytes: usize = slots.iter().map(|(part, sealed)| size_bytes(part, sealed)).sum();
        for (at, (part, sealed)) in slots.iter_mut().enumerate() {
            held_bytes -= size_bytes(part, sealed);
            if let Some(part) = part.take() {
                let block = limited.merged(at, part, &self.schema)?.into_block();
                *sealed = if held_bytes + block.size_bytes() <= limited.bytes() / 2 {
                    SealedPart::Held(block)
                } else {
                    let file = match &mut self.file {
                        Some(file) => file,
                        none => none.insert(limited.new_file()?),
                    };
                    let record = file.append(block.keys.view(), block.counts.as_deref(), &block.values)?;
                    SealedPart::Spilled(block.size(), record)
                };
            }
            held_bytes += size_bytes(&None, sealed);
        }
        Ok(())
    }

    /// Return the schema of the data.
    pub fn schema(&self) -> &KeyedSchema {
        &self.schema
    }

    /// Set the schema of the data. The parts must have no rows.
    pub(super) fn adopt(&mut self, schema: KeyedSchema) {
        self.schema = schema;
    }

    /// Return the number of ranks that own parts.
    pub fn rank_count(&self) -> usize {
        self.owners.rank_count
    }

    /// Return the number of parts; part `p` belongs to rank `p / (part_count / rank_count)`.
    pub fn part_count(&self) -> usize {
        self.sealed.len()
    }

    /// Return the bytes written to files.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// Return the memory held in bytes.
    pub fn held_bytes(&self) -> usize {
        self.sealed.iter().map(|sealed| size_bytes(&None, sealed)).sum()
    }

    /// Return the size of part `part`; empty after it is taken.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn size(&self, part: usize) -> PartSize {
        match &self.sealed[part] {
            SealedPart::Held(block) => block.size(),
            SealedPart::Spilled(size, _) => *size,
            SealedPart::Taken => PartSize::default(),
        }
    }

    /// Take part `part` and remove it here.
    ///
    /// # Errors
    /// A part that was spilled cannot be read back.
    ///
    /// # Panics
    /// If there is no such part, or it has been taken before.
    pub fn take(&mut self, part: usize) -> Result<KeyedBlock, Error> {
        let (held, element) = (self.schema.held_element(), self.schema.element);
        Ok(self.take_held(part)?.converted(held, element))
    }

    /// Take part `part` like [`Parts::take`], with rows in the held type.
    pub(super) fn take_held(&mut self, part: usize) -> Result<KeyedBlock, Error> {
        match std::mem::replace(&mut self.sealed[part], SealedPart::Taken) {
            SealedPart::Held(block) => Ok(block),
            SealedPart::Spilled(_, record) => {
                let (file, kind) = (self.file.as_ref().expect("spilled parts have a file"), self.schema.keys);
                Ok(KeyedBlock {
                    keys: file.keys(&record, kind)?,
                    counts: file.links(&record, kind, 0, record.key_count)?,
                    values: file.values(&record, kind, 0, record.value_bytes)?,
                })
            }
            SealedPart::Taken => panic!("part {part} was taken before"),
        }
    }
}

/// Return the memory used by a part, sealed or not.
fn size_bytes(part: &Option<KeyedPart>, sealed: &SealedPart) -> usize {
    match (part, sealed) {
        (Some(part), _) => part.size_bytes(),
        (None, SealedPart::Held(block)) => block.size_bytes(),
        (None, _) => 0,
    }
}
