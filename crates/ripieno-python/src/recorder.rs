//! The flight recorder for Python: converts records and waits, and attaches them to errors.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ripieno::net::Endpoint;
use ripieno::{AlgorithmUsage, CollectiveRecord, Error, FlightRecorder, Reading, StallInterval};
use std::time::Duration;

/// Number of records and of waits to keep if they are written to a file. They take 6 MiB.
const FILE_RECORD_COUNT: usize = 65_536;
/// Number of records that are attached to an error.
const ERROR_RECORD_COUNT: usize = 64;

/// The identity of the rank that owns records.
#[derive(Clone)]
pub struct RecorderIdentity {
    job: String,
    rank: usize,
    world_size: usize,
    host: String,
    /// Destination of the records.
    folder: Option<String>,
}

impl RecorderIdentity {
    /// Create the identity of the rank at `endpoint`, with the destination of its records, if any.
    pub fn new(endpoint: &Endpoint, folder: Option<String>) -> RecorderIdentity {
        let config = endpoint.config();
        RecorderIdentity {
            job: endpoint.job().to_string(),
            rank: config.rank,
            world_size: config.world_size,
            host: endpoint.host(config.rank).to_string(),
            folder,
        }
    }

    /// Return the identity of the same process in another world.
    pub fn in_world(&self, job: String, rank: usize, world_size: usize) -> RecorderIdentity {
        RecorderIdentity { job, rank, world_size, ..self.clone() }
    }

    /// Make `communicator` keep enough records, if they are written to a file.
    pub fn keep_records(&self, communicator: &ripieno::Communicator) -> Result<(), Error> {
        match self.folder {
            Some(_) => communicator.keep_records(FILE_RECORD_COUNT),
            None => Ok(()),
        }
    }

    /// Return the number of records that an error needs; `None` for all, if they are written to a file.
    pub fn count_for_error(&self) -> Option<usize> {
        self.folder.is_none().then_some(ERROR_RECORD_COUNT)
    }
}

/// Return the contents of the recorder, and the identity of the rank.
pub fn flight<'py>(
    py: Python<'py>,
    identity: &RecorderIdentity,
    flight: FlightRecorder,
) -> PyResult<Bound<'py, PyDict>> {
    let records: PyResult<Vec<_>> = flight.records.iter().map(|(number, it)| record(py, *number, it)).collect();
    let entries = PyDict::new(py);
    entries.set_item("job", &identity.job)?;
    entries.set_item("rank", identity.rank)?;
    entries.set_item("world_size", identity.world_size)?;
    entries.set_item("host", &identity.host)?;
    entries.set_item("folder", &identity.folder)?;
    entries.set_item("records", records?)?;
    let waited_for = (0..identity.world_size).map(|peer| flight.waited_for.get(peer).copied().unwrap_or_default());
    entries.set_item("seconds_waited_for", waited_for.map(seconds).collect::<Vec<_>>())?;
    entries.set_item("waits", flight.waits.iter().map(wait).collect::<Vec<_>>())?;
    Ok(entries)
}

/// Convert one record; times in seconds of the monotonic clock of this host.
fn record<'py>(py: Python<'py>, number: u64, record: &CollectiveRecord) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("number", number)?;
    entry.set_item("communicator", record.communicator)?;
    entry.set_item("sequence", record.sequence)?;
    entry.set_item("collective", record.collective.name())?;
    entry.set_item("algorithm", record.algorithm())?;
    entry.set_item("dtype", record.element.name())?;
    entry.set_item("op", record.op.map(|op| op.name()))?;
    entry.set_item("bytes", record.bytes)?;
    entry.set_item("peer_count", record.peer_count)?;
    entry.set_item("start_s", record.start().map(seconds))?;
    entry.set_item("end_s", record.end().map(seconds))?;
    entry.set_item("waiting_s", seconds(record.waiting()))?;
    entry.set_item("moving_s", record.moving().map(seconds))?;
    entry.set_item("waited_for", record.waited_for())?;
    entry.set_item("outcome", record.outcome.name())?;
    entry.set_item("text", record.to_string())?;
    Ok(entry)
}

/// Convert one wait: number of the record, peer, number of peers, start and end.
fn wait(wait: &StallInterval) -> (u64, u32, u32, f64, f64) {
    (wait.number, wait.peer, wait.peer_count, seconds(wait.since), seconds(wait.until))
}

/// Convert the communication counters of a rank, read at `now`.
pub fn traffic<'py>(py: Python<'py>, now: Duration, reading: Reading) -> PyResult<Bound<'py, PyDict>> {
    let usage = |it: &AlgorithmUsage| (it.collective.name(), it.algorithm, it.call_count, it.sent_bytes);
    let entries = PyDict::new(py);
    entries.set_item("call_count", reading.call_count)?;
    entries.set_item("bytes_sent", reading.sent_bytes())?;
    entries.set_item("bytes_received", reading.received_bytes)?;
    entries.set_item("called_s", seconds(reading.called))?;
    entries.set_item("waited_s", seconds(reading.waited))?;
    entries.set_item("sent_to", &reading.sent_to)?;
    entries.set_item("waited_for_s", reading.waited_for.into_iter().map(seconds).collect::<Vec<_>>())?;
    entries.set_item("usage", reading.usage.iter().map(usage).collect::<Vec<_>>())?;
    let current = reading.current.as_ref();
    entries.set_item("collective", current.map(|current| current.collective.name()))?;
    let waits = current.and_then(|current| current.waits);
    entries.set_item("waits_for", waits.map(|(peer, since)| (peer, seconds(now.saturating_sub(since)))))?;
    Ok(entries)
}

/// Attach this rank's last records to an error of a collective. If this fails, return the new error instead.
pub fn attach(py: Python<'_>, error: PyErr, flight: PyResult<Bound<'_, PyDict>>) -> PyErr {
    let module = py.import("ripieno.flight");
    let attached = flight.and_then(|flight| module?.call_method1("attach", (error.value(py), flight)));
    attached.err().unwrap_or(error)
}

/// Convert a duration to seconds.
pub fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
