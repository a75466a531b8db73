//! Exchange of the ranks' addresses for Python: through a callable, a TCP store or a shared directory.

use crate::errors;
use pyo3::prelude::*;
use ripieno::net::{Config, Endpoint, NetError, exchange};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval of signal checks while ranks connect.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// The medium through which ranks exchange their strings.
pub enum AddressExchange {
    /// A function that takes this rank's string and returns the strings of all ranks.
    Callable(Py<PyAny>),
    /// Host and port of rank 0's store.
    TcpStore(String, u16),
    /// A directory that all ranks can access.
    Directory(PathBuf),
}

impl AddressExchange {
    /// Select the medium from the arguments.
    pub fn parse(
        exchange: Option<Py<PyAny>>,
        tcp_store: Option<(String, u16)>,
        directory: Option<PathBuf>,
    ) -> PyResult<AddressExchange> {
        match (exchange, tcp_store, directory) {
            (Some(callable), None, None) => Ok(AddressExchange::Callable(callable)),
            (None, Some((host, port)), None) => Ok(AddressExchange::TcpStore(host, port)),
            (None, None, Some(directory)) => Ok(AddressExchange::Directory(directory)),
            _ => Err(errors::input("expected one of exchange, tcp_store and directory".to_string())),
        }
    }

    /// Connect on a separate thread, so that this thread can check for signals.
    pub fn connect(self, py: Python<'_>, config: Config) -> PyResult<Endpoint> {
        let (sender, mut receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // If the caller no longer waits, the endpoint is dropped and leaves the job.
            let _ = sender.send(self.connect_now(config));
        });
        loop {
            let connected;
            (receiver, connected) = py.detach(move || {
                let connected = receiver.recv_timeout(SIGNAL_CHECK);
                (receiver, connected)
            });
            match connected {
                Ok(connected) => return connected.map_err(errors::from_rendezvous),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => panic!("the thread sends an endpoint or an error"),
            }
        }
    }

    fn connect_now(self, config: Config) -> Result<Endpoint, NetError> {
        match self {
            AddressExchange::Callable(callable) => {
                let rank = config.rank;
                Endpoint::connect(config, &mut |own_text: &str| call_exchange(rank, &callable, own_text))
            }
            AddressExchange::TcpStore(host, port) => {
                let mut store = exchange::TcpStore::new(&config, &host, port);
                Endpoint::connect(config, &mut store)
            }
            AddressExchange::Directory(directory) => {
                let mut store = exchange::DirectoryExchange::new(&config, directory);
                Endpoint::connect(config, &mut store)
            }
        }
    }
}

fn call_exchange(rank: usize, callable: &Py<PyAny>, own_text: &str) -> Result<Vec<String>, NetError> {
    let start = Instant::now();
    Python::attach(|py| callable.bind(py).call1((own_text,))?.extract()).map_err(|error: PyErr| NetError::Exchange {
        rank,
        cause: error.to_string(),
        elapsed_ms: start.elapsed().as_millis() as u64,
    })
}
