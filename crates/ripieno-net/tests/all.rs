//! All tests of this crate in one program, because each program links the crate again.

mod common;
mod doorbell;
mod endpoint;
mod failure;
mod links;
mod rendezvous;
mod replicas;
mod shared_memory;
mod tcp;
mod threads;
mod unauthenticated;
mod zero_copy;
