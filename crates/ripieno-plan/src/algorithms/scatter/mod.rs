//! Scatter: every rank ends with its chunk of the root's vector. All ranks use the layout of the root; elsewhere than in
//! its own chunk a rank's buffer is scratch.

pub mod binomial;
pub mod direct;
