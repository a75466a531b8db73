//! Gather: the root ends with every rank's chunk. All ranks use the layout of the root; elsewhere than in its own chunk
//! a rank's buffer is scratch.

pub mod binomial;
pub mod direct;
