//! Detects exhausted resources of the process in system errors, and recommends an action.

use ripieno_run::LinkError;
use rustix::io::Errno;
use std::io;

/// Return the resource that `error` reports as exhausted and a recommended action, if any.
pub(crate) fn shortage(error: &io::Error) -> Option<String> {
    let advice = match Errno::from_io_error(error)? {
        Errno::MFILE => "this process has reached its limit of open files: raise it (ulimit -n)",
        Errno::NFILE => "this host has reached its limit of open files: raise it (fs.file-max)",
        Errno::NOMEM => {
            "this process has reached its limit of memory (ulimit -v, or its cgroup's) or of mappings \
             (vm.max_map_count): raise it"
        }
        _ => return None,
    };
    Some(format!("{error}; {advice}"))
}

/// Return the text of the error, with advice if a resource is exhausted.
pub(crate) fn with_advice(error: &io::Error) -> String {
    shortage(error).unwrap_or_else(|| error.to_string())
}

/// Return the error for a connection that failed because no thread could start.
pub(crate) fn no_thread(error: &io::Error) -> LinkError {
    LinkError::MissingResource {
        cause: format!("it cannot start a thread: {error}; raise its limit of threads (ulimit -u)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_are_distinguished_from_other_errors() {
        assert!(shortage(&Errno::MFILE.into()).unwrap().contains("Too many open files (os error 24); this process"));
        assert!(shortage(&Errno::NOMEM.into()).unwrap().contains("ulimit -v"));
        assert_eq!(shortage(&Errno::CONNREFUSED.into()), None);
        assert_eq!(shortage(&io::ErrorKind::InvalidData.into()), None);
        assert_eq!(with_advice(&Errno::CONNREFUSED.into()), "Connection refused (os error 111)");
    }
}
