//! Links between threads of one process.

use super::doorbell::Waker;
use super::ring::{RingLink, RingSide, Segment};
use std::io;
use std::sync::Arc;

/// Create both ends of a link with rings of at least `capacity_bytes`. `first` wakes the rank that holds the first end.
pub fn pair(capacity_bytes: usize, first: Waker, second: Waker) -> io::Result<(RingLink, RingLink)> {
    let (segment, _) = Segment::create(capacity_bytes)?;
    segment.publish_token(RingSide::First)?;
    segment.publish_token(RingSide::Second)?;
    let segment = Arc::new(segment);
    let pid = Some(rustix::process::getpid().as_raw_nonzero().get());
    let link = RingLink::new(segment.clone(), RingSide::First, second, pid);
    Ok((link, RingLink::new(segment, RingSide::Second, first, pid)))
}
