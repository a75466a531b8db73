//! Kernel threads of this process for Python: pinning, times, and costs of synchronization.

use crate::errors;
use pyo3::prelude::*;
use ripieno_kernels::thread_costs::{self, PhaseDispatch};
use std::num::NonZeroUsize;

/// Add the functions of this module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(pin_threads, module)?)?;
    module.add_function(wrap_pyfunction!(pinned_cores, module)?)?;
    module.add_function(wrap_pyfunction!(hold_threads, module)?)?;
    module.add_function(wrap_pyfunction!(release_threads, module)?)?;
    module.add_function(wrap_pyfunction!(thread_times, module)?)?;
    module.add_function(wrap_pyfunction!(thread_turn, module)?)?;
    module.add_function(wrap_pyfunction!(rounds_per_us, module)?)
}

/// Pin member `i` of every team to `cores[i % len(cores)]`; an empty list removes the pinning.
#[pyfunction]
fn pin_threads(cores: Vec<usize>) -> PyResult<()> {
    ripieno_kernels::pin_threads(&cores).map_err(|error| errors::input(format!("cores={cores:?}: {error}")))
}

/// Return the last argument of `pin_threads`.
#[pyfunction]
fn pinned_cores() -> Vec<usize> {
    ripieno_kernels::pinned_cores()
}

/// Keep `count` threads of the calling thread busy until `release_threads`.
#[pyfunction]
fn hold_threads(py: Python<'_>, count: NonZeroUsize) {
    py.detach(|| ripieno_kernels::hold(count.get()));
}

/// End `hold_threads`.
#[pyfunction]
fn release_threads(py: Python<'_>) {
    py.detach(ripieno_kernels::release);
}

/// Return for every member of every team the number of the team, its index, its system thread id, its number of tasks,
/// and its seconds of computing and of waiting.
#[pyfunction]
fn thread_times() -> Vec<(usize, usize, i32, u64, f64, f64)> {
    let of_member = |member: ripieno_kernels::MemberTimes| {
        let [computing, waiting] = [member.computing, member.waiting].map(|time| time.as_secs_f64());
        (member.team, member.index, member.tid, member.task_count, computing, waiting)
    };
    ripieno_kernels::thread_times().into_iter().map(of_member).collect()
}

/// Measure the seconds of some phases, each with `rounds` rounds of work, that a team of threads runs by `dispatch`.
#[pyfunction]
fn thread_turn(py: Python<'_>, dispatch: &str, threads: NonZeroUsize, phases: usize, rounds: usize) -> PyResult<f64> {
    let Some(&(_, dispatch)) = PhaseDispatch::ALL.iter().find(|(name, _)| *name == dispatch) else {
        let names = PhaseDispatch::ALL.map(|(name, _)| name).join(", ");
        return Err(errors::input(format!("dispatch={dispatch:?}: expected one of {names}")));
    };
    Ok(py.detach(|| thread_costs::turn(dispatch, threads.get(), phases, rounds)).as_secs_f64())
}

/// Measure the number of work rounds that a core completes in a microsecond.
#[pyfunction]
fn rounds_per_us(py: Python<'_>) -> f64 {
    py.detach(thread_costs::rounds_per_us)
}
