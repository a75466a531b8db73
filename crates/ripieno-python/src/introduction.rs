//! Introductions of members and the process that launches a job, on sockets of Python's.

use crate::communicator::seconds;
use pyo3::prelude::*;
use ripieno::net::{Token, introduction};
use std::os::fd::BorrowedFd;

/// Proves to who listens at the other end of a socket, and has it prove, that both know the token.
#[pyfunction]
fn introduce_member(py: Python<'_>, socket: i32, token: &[u8], timeout_s: f64) -> PyResult<()> {
    let (token, timeout) = (Token::from_secret(token), seconds("timeout_s", timeout_s)?);
    // SAFETY: the caller's socket is open until this returns.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    Ok(py.detach(|| introduction::join(socket, &token, timeout))?)
}

/// The same for who has connected.
#[pyfunction]
fn admit_member(py: Python<'_>, socket: i32, token: &[u8], timeout_s: f64) -> PyResult<()> {
    let (token, timeout) = (Token::from_secret(token), seconds("timeout_s", timeout_s)?);
    // SAFETY: as above.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    Ok(py.detach(|| introduction::admit(socket, &token, timeout))?)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(introduce_member, module)?)?;
    module.add_function(wrap_pyfunction!(admit_member, module)?)
}
