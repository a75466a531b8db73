//! The native methods of the class `org.ripieno.Native`: Ripieno for the JVM.
//!
//! Memory is passed as addresses of direct buffers. Java holds a buffer until the call, or the handle of a background
//! call, has ended. The garbage collector therefore never waits for ranks. Native objects are passed as addresses of
//! boxes. Java frees each box once, when no thread can use it any more. An error is thrown as the corresponding Java
//! exception.

mod als;
mod communicator;
mod errors;
mod keyed;
mod kmeans;
mod memory;
mod rendezvous;
mod sparse;
