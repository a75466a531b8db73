//! Introductions of members and the process that launches a job, on sockets of Python's.

use crate::communicator::seconds;
use pyo3::prelude::*;
use ripieno::net::tls;
use ripieno::net::{Credentials, Encryption, Token, introduction};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::Instant;

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
    let (credentials, timeout) = (credentials(token, tls), seconds("timeout_s", timeout_s)?);
    // SAFETY: the caller's socket is open until this returns.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let tunneled = py.detach(|| introduction::join(socket, &credentials, timeout))?;
    Ok(tunneled.map(with_end))
}

/// Where members come in; only the thread that lets them in may use it.
#[pyclass(module = "ripieno._native")]
struct Reception {
    inner: introduction::MemberAcceptor,
}

#[pymethods]
impl Reception {
    /// On a socket that listens.
    #[new]
    fn new(listener: i32, token: &[u8], tls: Option<bool>) -> PyResult<Reception> {
        // SAFETY: the caller's socket is open until this returns.
        let listener = unsafe { BorrowedFd::borrow_raw(listener) };
        Ok(Reception { inner: introduction::MemberAcceptor::new(listener, credentials(token, tls))? })
    }

    /// Readable when somebody may have something to say.
    fn fileno(&self) -> i32 {
        self.inner.as_fd().as_raw_fd()
    }

    /// Seconds until it is to be looked after even if it is not readable.
    fn due_s(&self) -> Option<f64> {
        self.inner.due().map(|due| due.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// What this process has lacked for a while to let anybody in.
    fn lack(&self) -> Option<&str> {
        self.inner.lack()
    }

    /// The connection of the next member, and what carries it if it is encrypted; None when that is all for now.
    fn next_member(&mut self, py: Python<'_>) -> Option<(i32, Tunneled)> {
        let member = py.detach(|| self.inner.next_member())?;
        Some((member.connection.into_raw_fd(), member.tunneled.map(with_end)))
    }
}

fn credentials(token: &[u8], tls: Option<bool>) -> Credentials {
    Credentials { token: Token::from_secret(token), tls: Encryption::meant_by(tls) }
}

fn with_end((inner, end): (tls::Tunnel, OwnedFd)) -> (Tunnel, i32) {
    (Tunnel { inner: Mutex::new(inner) }, end.into_raw_fd())
}

/// The cipher suite of encrypted connections.
#[pyfunction]
fn tls_cipher() -> &'static str {
    tls::CIPHER
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Tunnel>()?;
    module.add_function(wrap_pyfunction!(tls_cipher, module)?)?;
    module.add_class::<Reception>()?;
    module.add_function(wrap_pyfunction!(introduce_member, module)?)
}
