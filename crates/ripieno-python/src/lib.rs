//! `ripieno._native`: the runtime for Python. Every function parses its arguments, releases the interpreter if it may
//! wait, calls the runtime, and converts errors.

mod address_exchange;
mod arrays;
mod block_files;
mod broadcasts;
mod communicator;
mod design;
mod errors;
mod forces;
mod frames;
mod functions;
mod graph;
mod handle;
mod interruption;
mod introduction;
mod kernels;
mod keyed;
mod lightgbm;
mod measuring;
mod memory;
mod models;
mod objects;
mod pairs;
mod plain_calls;
mod plain_leaves;
mod plans;
mod recorder;
mod signatures;
mod simulation;
mod sparse;
mod strings;
mod text;
mod threads;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<handle::Handle>()?;
    module.add_class::<plain_calls::PlainCalls>()?;
    module.add_function(wrap_pyfunction!(handle::wait_any, module)?)?;
    block_files::register(module)?;
    signatures::register(module)?;
    frames::register(module)?;
    objects::register(module)?;
    broadcasts::register(module)?;
    module.add_class::<memory::Memory>()?;
    module.add_function(wrap_pyfunction!(memory::pooled, module)?)?;
    module.add_function(wrap_pyfunction!(communicator::algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(communicator::doctor, module)?)?;
    introduction::register(module)?;
    measuring::register(module)?;
    design::register(module)?;
    graph::register(module)?;
    simulation::register(module)?;
    sparse::register(module)?;
    keyed::register(module)?;
    lightgbm::register(module)?;
    strings::register(module)?;
    text::register(module)?;
    threads::register(module)?;
    models::register(module)?;
    pairs::register(module)?;
    plans::register(module)?;
    forces::register(module)?;
    kernels::register(module)
}
