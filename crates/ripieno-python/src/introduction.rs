//! Python bindings of the mutual authentication between a job's members and its launching process.

use crate::communicator::seconds;
use crate::errors;
use pyo3::prelude::*;
use ripieno::net::tls;
use ripieno::net::{Credentials, Encryption, MAKE_TOKEN, Token, introduction};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::Instant;

/// Forwards the data of an encrypted connection while its descriptor is open.
#[pyclass(module = "ripieno._native")]
struct Tunnel {
    // Python threads may share the tunnel. Only one of them waits at a time.
    inner: Mutex<tls::Tunnel>,
}

#[pymethods]
impl Tunnel {
    /// Wait until all data written before the descriptor was closed is sent; return False on timeout.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = seconds("timeout_s", timeout_s)?;
        Ok(py.detach(|| self.inner.lock().is_ok_and(|inner| inner.wait(timeout))))
    }
}

/// The tunnel of an encrypted connection, and the descriptor that replaces its socket. `None` without encryption.
type Tunneled = Option<(Tunnel, i32)>;

/// Authenticate mutually with the listening side of a connection: each side proves that it knows the token.
#[pyfunction]
fn introduce_member(
    py: Python<'_>,
    socket: i32,
    token: &[u8],
    tls: Option<bool>,
    timeout_s: f64,
) -> PyResult<Tunneled> {
    let (credentials, timeout) = (credentials(token, tls), seconds("timeout_s", timeout_s)?);
    // SAFETY: the caller keeps the socket open until this returns.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let tunneled = py.detach(|| introduction::join(socket, &credentials, timeout))?;
    Ok(tunneled.map(into_python))
}

/// Acceptor of authenticated members on a listening socket. Only one thread may use it.
#[pyclass(module = "ripieno._native")]
struct MemberAcceptor {
    inner: introduction::MemberAcceptor,
}

#[pymethods]
impl MemberAcceptor {
    /// Create the acceptor on a listening socket.
    #[new]
    fn new(listener: i32, token: &[u8], tls: Option<bool>) -> PyResult<MemberAcceptor> {
        // SAFETY: the caller keeps the socket open until this returns.
        let listener = unsafe { BorrowedFd::borrow_raw(listener) };
        Ok(MemberAcceptor { inner: introduction::MemberAcceptor::new(listener, credentials(token, tls))? })
    }

    /// Return a descriptor that becomes readable when `next_member` should be called.
    fn fileno(&self) -> i32 {
        self.inner.as_fd().as_raw_fd()
    }

    /// Return the seconds until `next_member` must be called even if the descriptor is not readable.
    fn due_s(&self) -> Option<f64> {
        self.inner.due().map(|due| due.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Return the exhausted resource that prevents this process from accepting members, if any.
    fn shortage(&self) -> Option<&str> {
        self.inner.shortage()
    }

    /// Return the connection of the next authenticated member, and its tunnel if it is encrypted. Return None if no
    /// member is ready.
    fn next_member(&mut self, py: Python<'_>) -> Option<(i32, Tunneled)> {
        let member = py.detach(|| self.inner.next_member())?;
        Some((member.connection.into_raw_fd(), member.tunneled.map(into_python)))
    }
}

fn credentials(token: &[u8], tls: Option<bool>) -> Credentials {
    Credentials { token: Token::from_secret(token), tls: Encryption::from_setting(tls) }
}

fn into_python((inner, end): (tls::Tunnel, OwnedFd)) -> (Tunnel, i32) {
    (Tunnel { inner: Mutex::new(inner) }, end.into_raw_fd())
}

/// Raise `RendezvousError` if a token can be guessed. `name` is its variable.
#[pyfunction]
fn check_token(token: &str, name: &str) -> PyResult<()> {
    Token::check_text(name, token).map_err(errors::from_rendezvous)
}

/// Return the cipher suite of encrypted connections.
#[pyfunction]
fn tls_cipher() -> &'static str {
    tls::CIPHER
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MAKE_TOKEN", MAKE_TOKEN)?;
    module.add_function(wrap_pyfunction!(check_token, module)?)?;
    module.add_class::<Tunnel>()?;
    module.add_function(wrap_pyfunction!(tls_cipher, module)?)?;
    module.add_class::<MemberAcceptor>()?;
    module.add_function(wrap_pyfunction!(introduce_member, module)?)
}
