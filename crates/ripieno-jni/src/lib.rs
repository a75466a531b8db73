//! Ripieno for the JVM: what the class `org.ripieno.Native` calls.
//!
//! Memory crosses as addresses of direct buffers, which Java holds until the call, or the handle of one that goes on
//! by itself, has ended: nothing here stops its collector while ranks wait for each other. Objects of this side cross
//! as addresses of boxes, which Java frees once, when nobody can use them any more. An error is thrown as the class
//! that Java has for it.

mod communicator;
mod errors;
mod keyed;
mod kmeans;
mod meeting;
mod memory;
mod sparse;
