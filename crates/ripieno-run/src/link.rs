//! The link trait: a byte stream in each direction between this rank and one peer, never blocking.
//!
//! A link neither knows collectives nor frames. It takes what it has room for and gives what has arrived; the executor
//! does the rest. Every link passes the suite in [`crate::conformance`].

/// Why a link carries nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer's end is gone; `cause` is what the operating system said.
    #[error("link closed: {cause}")]
    Closed {
        /// What the operating system said.
        cause: String,
    },
    /// This end lacks what the link needs, which is no fault of the peer's.
    #[error("{what}")]
    Lacking {
        /// What was tried, what the operating system said, and what to do.
        what: String,
    },
}

impl LinkError {
    /// What the operating system said, or what this end lacks.
    pub fn why(&self) -> &str {
        match self {
            LinkError::Closed { cause: why } | LinkError::Lacking { what: why } => why,
        }
    }
}

/// A byte stream to and from one peer.
pub trait Link: Send {
    /// Takes a prefix of the concatenation of `parts`; returns its length, 0 when there is no room now.
    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError>;

    /// Makes what `send` took, and the room that `receive` and `consume` made, known to the peer, and wakes it if it is
    /// parked and waits for that. Called after each visit that moved something, in whichever direction.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Moves bytes that have arrived to the front of `into`; returns how many, 0 when nothing is there now.
    fn receive(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;

    /// The bytes that have arrived, without taking them: at least `least` of them once so many are there, else empty
    /// or fewer. The slice is contiguous, in no particular alignment. `least` is at most 64.
    /// What is lent begins a slice of its own.
    fn peek(&mut self, least: usize) -> Result<&[u8], LinkError>;

    /// Takes the first `count` bytes that the last `peek` showed.
    fn consume(&mut self, count: usize);

    /// Says that `bytes` more, at least 1, are sure to come without anything from this rank, and that it has no use for
    /// fewer: a rank that sleeps on this link need not be woken earlier. Holds for the next sleep.
    fn expect(&mut self, bytes: usize);

    /// Sends the concatenation of `parts` and makes it known to the peer, as [`Self::send`] and [`Self::flush`] do, if
    /// there is room for all of it and that takes no system call but to wake the peer; whether it did.
    fn send_message(&mut self, _parts: &[&[u8]; 2]) -> bool {
        false
    }

    /// The next `length_bytes` that the peer has sent, without taking them, once they are there, if looking takes no
    /// system call; looks for them up to `look_count` times. What ails the link the other methods tell.
    fn message(&mut self, _length_bytes: usize, _look_count: u32) -> Option<&[u8]> {
        None
    }

    /// Takes what [`Self::message`] has just shown, and makes the room known as [`Self::flush`] does.
    fn end_message(&mut self, _length_bytes: usize) {
        unreachable!("a link that shows messages takes them");
    }

    /// Whether the peer can read `bytes` where they are.
    fn lends(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// Lends `bytes`, whole elements, to the peer, which gets them next in the stream but reads them where they are;
    /// whether that could be done now. They stay as they are until [`Self::lent_bytes`] no longer counts them, or
    /// [`Self::recall`] has been called.
    fn lend(&mut self, _bytes: &[u8]) -> Result<bool, LinkError> {
        Ok(false)
    }

    /// Bytes that are lent and not returned; loans return in order. While there are any, the peer wakes this rank when
    /// it returns more.
    fn lent_bytes(&mut self) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Takes back what is lent, whatever becomes of it: the peer sees the link closed when it reads on.
    fn recall(&mut self) {}

    /// Bytes that it took and that wait on this host for their turn.
    fn unsent_bytes(&self) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Whether looking for news costs a memory access, not a system call, so that spinning on the link is worthwhile.
    fn is_memory(&self) -> bool;
}
