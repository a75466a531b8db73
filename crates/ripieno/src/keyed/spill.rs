//! Spill files: columns of keyed data in an unnamed file, which the system deletes when the process ends.

use super::columns::{KeyColumn, KeyKind, OwnedKeys};
use crate::error::Error;
use crate::number_bytes::{Plain, bytes_of, bytes_of_mut};
use ripieno_kernels::keyed::Strings;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file of appended records.
#[derive(Debug)]
pub(super) struct SpillFile {
    file: File,
    directory: PathBuf,
    end: u64,
}

/// Position and size of keys and rows in a spill file. The columns follow one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpillRecord {
    at: u64,
    pub key_count: usize,
    /// For string keys, their bytes.
    pub data_bytes: usize,
    /// Bytes of the links: the owner of each row, or the row count of each key. 0 if there is one row per key.
    link_bytes: usize,
    pub value_bytes: usize,
}

impl SpillFile {
    /// Create a file in `directory`.
    pub fn new(directory: &Path) -> Result<SpillFile, Error> {
        let file =
            tempfile::tempfile_in(directory).map_err(|error| failed("opening".to_string(), directory, &error))?;
        Ok(SpillFile::of(file, directory))
    }

    fn of(file: File, directory: &Path) -> SpillFile {
        SpillFile { file, directory: directory.to_path_buf(), end: 0 }
    }

    /// Return the number of bytes written.
    pub fn size_bytes(&self) -> u64 {
        self.end
    }

    /// Append keys, the links between rows and keys, and rows.
    pub fn append<T: Plain>(
        &mut self,
        keys: KeyColumn<'_>,
        links: Option<&[T]>,
        values: &[u8],
    ) -> Result<SpillRecord, Error> {
        let link_bytes = links.map_or(&[][..], bytes_of);
        let at = self.end;
        let data_bytes = match keys {
            KeyColumn::Int64(keys) => {
                self.write(bytes_of(keys))?;
                0
            }
            KeyColumn::Strings(keys) => {
                let (offsets, data) = columns(keys);
                self.write(bytes_of(&offsets))?;
                self.write(data)?;
                data.len()
            }
        };
        self.write(link_bytes)?;
        self.write(values)?;
        let key_count = keys.len();
        Ok(SpillRecord { at, key_count, data_bytes, link_bytes: link_bytes.len(), value_bytes: values.len() })
    }

    /// Read the keys of a record.
    pub fn keys(&self, record: &SpillRecord, kind: KeyKind) -> Result<OwnedKeys, Error> {
        Ok(match kind {
            KeyKind::Int64 => OwnedKeys::Int64(self.read(record.at, record.key_count)?),
            KeyKind::Strings => {
                let offsets = self.read(record.at, record.key_count + 1)?;
                let data = self.read(record.at + size_of_val(&offsets[..]) as u64, record.data_bytes)?;
                OwnedKeys::Strings { offsets, data }
            }
        })
    }

    /// Read links `from` to `from + count` of a record; `None` if it has one row per key.
    pub fn links<T: Plain>(
        &self,
        record: &SpillRecord,
        kind: KeyKind,
        from: usize,
        count: usize,
    ) -> Result<Option<Vec<T>>, Error> {
        if record.link_bytes == 0 {
            return Ok(None);
        }
        self.read(record.links_at(kind) + (from * size_of::<T>()) as u64, count).map(Some)
    }

    /// Read bytes `from` to `from + count` of the rows of a record.
    pub fn values(&self, record: &SpillRecord, kind: KeyKind, from: usize, count: usize) -> Result<Vec<u8>, Error> {
        self.read(record.links_at(kind) + (record.link_bytes + from) as u64, count)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all_at(bytes, self.end);
        written.map_err(|error| failed(format!("writing {} bytes to", bytes.len()), &self.directory, &error))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn read<T: Plain>(&self, at: u64, count: usize) -> Result<Vec<T>, Error> {
        let mut numbers = vec![T::default(); count];
        let read = self.file.read_exact_at(bytes_of_mut(&mut numbers), at);
        read.map_err(|error| {
            failed(format!("reading {} bytes from", size_of_val(&numbers[..])), &self.directory, &error)
        })?;
        Ok(numbers)
    }
}

impl SpillRecord {
    /// Return the file offset of the links, after the keys.
    fn links_at(&self, kind: KeyKind) -> u64 {
        let numbers = match kind {
            KeyKind::Int64 => self.key_count,
            KeyKind::Strings => self.key_count + 1,
        };
        self.at + (numbers * size_of::<i64>() + self.data_bytes) as u64
    }

    /// Return the number of links of type `T`.
    pub fn link_count<T: Plain>(&self) -> usize {
        self.link_bytes / size_of::<T>()
    }
}

/// Return the offsets, shifted to begin at 0, and the bytes that they refer to.
fn columns(keys: Strings<'_>) -> (Vec<i64>, &[u8]) {
    let (offsets, data) = keys.columns();
    let [first, .., last] = offsets else { return (vec![0], &[]) };
    (offsets.iter().map(|offset| offset - first).collect(), &data[*first as usize..*last as usize])
}

fn failed(task: String, directory: &Path, error: &io::Error) -> Error {
    let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    Error::Spill { task, directory: directory.to_path_buf(), cause: error.to_string(), is_full }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_bytes_are_read_back() {
        let mut file = SpillFile::new(&std::env::temp_dir()).unwrap();
        let ints = file.append(KeyColumn::Int64(&[3, -4]), Some(&[1u32, 0, 1]), b"abc").unwrap();
        let strings = Strings::new(&[1, 1, 4], b"-xyz").unwrap();
        let strings = file.append::<u64>(KeyColumn::Strings(strings), None, b"de").unwrap();
        assert_eq!(file.keys(&ints, KeyKind::Int64).unwrap(), OwnedKeys::Int64(vec![3, -4]));
        assert_eq!(file.links(&ints, KeyKind::Int64, 1, 2).unwrap(), Some(vec![0u32, 1]));
        assert_eq!(file.values(&ints, KeyKind::Int64, 2, 1).unwrap(), b"c");
        let keys = OwnedKeys::Strings { offsets: vec![0, 0, 3], data: b"xyz".to_vec() };
        assert_eq!(file.keys(&strings, KeyKind::Strings).unwrap(), keys);
        assert_eq!(file.links::<u64>(&strings, KeyKind::Strings, 0, 2).unwrap(), None);
        assert_eq!(file.values(&strings, KeyKind::Strings, 0, 2).unwrap(), b"de");
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_directory_and_the_bytes() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut file = SpillFile::of(full, Path::new("/spills"));
        let error = file.append::<u32>(KeyColumn::Int64(&[1, 2]), None, &[0; 16]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "writing 16 bytes to a spill file of /spills: No space left on device (os error 28); free space there, \
             choose another spill_directory, or allow a larger memory_limit"
        );
    }
}
