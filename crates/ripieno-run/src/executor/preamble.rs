//! Preamble: precedes the data of one collective on one link, and is compared before any data is used.

use crate::call::{HEADER_BYTES, Header};
use crate::words::{copy_words, words};

/// Size of a [`Preamble`] in bytes.
pub(super) const PREAMBLE_BYTES: usize = HEADER_BYTES + size_of::<u64>();

/// The encoded header of a collective and the number of data bytes that follow on the link.
#[derive(Clone, Copy)]
pub(super) struct Preamble(pub [u8; PREAMBLE_BYTES]);

impl PartialEq for Preamble {
    #[inline]
    fn eq(&self, other: &Preamble) -> bool {
        let pairs = words(&self.0).zip(words(&other.0));
        pairs.fold(0, |differences, (mine, theirs)| differences | (mine ^ theirs)) == 0
    }
}

impl Preamble {
    /// Return the preamble for an encoded header.
    #[inline]
    pub fn new(header: &[u8; HEADER_BYTES], payload_bytes: usize) -> Preamble {
        let mut bytes = [0; PREAMBLE_BYTES];
        copy_words(header, &mut bytes[..HEADER_BYTES]);
        bytes[HEADER_BYTES..].copy_from_slice(&(payload_bytes as u64).to_le_bytes());
        Preamble(bytes)
    }

    pub fn header(&self) -> Option<Header> {
        Header::decode(self.0.first_chunk().expect("a preamble begins with a header"))
    }

    pub fn payload_bytes(&self) -> u64 {
        u64::from_le_bytes(*self.0.last_chunk().expect("a preamble ends with a length"))
    }
}
