//! Preamble: precedes the data of one collective on one link, and is compared before any data is used.

use crate::call::{HEADER_BYTES, Header};

/// Size of a [`Preamble`] in bytes.
pub(super) const PREAMBLE_BYTES: usize = HEADER_BYTES + size_of::<u64>();

/// The encoded header of a collective and the number of data bytes that follow on the link.
#[derive(Clone, Copy)]
pub(super) struct Preamble(pub [u8; PREAMBLE_BYTES]);

impl PartialEq for Preamble {
    #[inline]
    fn eq(&self, other: &Preamble) -> bool {
        let pairs = self.words().into_iter().zip(other.words());
        pairs.fold(0, |differences, (mine, theirs)| differences | (mine ^ theirs)) == 0
    }
}

impl Preamble {
    /// Return the preamble for an encoded header.
    #[inline]
    pub fn new(header: &[u8; HEADER_BYTES], payload_bytes: usize) -> Preamble {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(header);
        bytes[HEADER_BYTES..].copy_from_slice(&(payload_bytes as u64).to_le_bytes());
        Preamble(bytes)
    }

    /// Return the bytes as integers, which take a few instructions to compare.
    #[inline]
    fn words(&self) -> [u64; PREAMBLE_BYTES / size_of::<u64>()] {
        let (words, _) = self.0.as_chunks();
        std::array::from_fn(|at| u64::from_ne_bytes(words[at]))
    }

    pub fn header(&self) -> Option<Header> {
        Header::decode(self.0.first_chunk().expect("a preamble begins with a header"))
    }

    pub fn payload_bytes(&self) -> u64 {
        u64::from_le_bytes(*self.0.last_chunk().expect("a preamble ends with a length"))
    }
}
