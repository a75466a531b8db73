//! Introductions of members and the process that launches a job, on sockets of Python's.

use crate::communicator::seconds;
use pyo3::prelude::*;
use ripieno::net::tls;
use ripieno::net::{Credentials, Encryption, Token, introduction};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Mutex;

/// What carries an encrypted connection, as long as its descriptor is open.
#[pyclass(module = "ripieno._native")]
struct Tunnel {
    // Python may share it among threads; only one waits.
    inner: Mutex<tls::Tunnel>,
}

#[pymethods]
impl Tunnel {
    /// Waits until all is on its way that was written before the descriptor was closed; whether that is so in time.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = seconds("timeout_s", timeout_s)?;
        Ok(py.detach(|| self.inner.lock().is_ok_and(|inner| inner.wait(timeout))))
    }
}

/// The descriptor that takes the socket's place.
type Tunneled = Option<(Tunnel, i32)>;

/// Proves to who listens at the other end of a socket, and has it prove, that both know the token.
#[pyfunction]
fn introduce_member(
    py: Python<'_>,
    socket: i32,
    token: &[u8],
    tls: Option<bool>,
    timeout_s: f64,
) -> PyResult<Tunneled> {
    introduce(py, socket, token, tls, timeout_s, introduction::join)
}

/// The same for who has connected.
#[pyfunction]
fn admit_member(py: Python<'_>, socket: i32, token: &[u8], tls: Option<bool>, timeout_s: f64) -> PyResult<Tunneled> {
    introduce(py, socket, token, tls, timeout_s, introduction::admit)
}

fn introduce(
    py: Python<'_>,
    socket: i32,
    token: &[u8],
    tls: Option<bool>,
    timeout_s: f64,
    by: impl Fn(BorrowedFd<'_>, &Credentials, std::time::Duration) -> std::io::Result<introduction::Tunneled> + Sync,
) -> PyResult<Tunneled> {
    let (credentials, timeout) = (
        Credentials { token: Token::from_secret(token), tls: Encryption::meant_by(tls) },
        seconds("timeout_s", timeout_s)?,
    );
    // SAFETY: the caller's socket is open until this returns.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let tunneled = py.detach(|| by(socket, &credentials, timeout))?;
    Ok(tunneled.map(|(inner, end)| (Tunnel { inner: Mutex::new(inner) }, end.into_raw_fd())))
}

/// The cipher suite of encrypted connections.
#[pyfunction]
fn tls_cipher() -> &'static str {
    tls::CIPHER
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Tunnel>()?;
    module.add_function(wrap_pyfunction!(tls_cipher, module)?)?;
    module.add_function(wrap_pyfunction!(introduce_member, module)?)?;
    module.add_function(wrap_pyfunction!(admit_member, module)?)
}
