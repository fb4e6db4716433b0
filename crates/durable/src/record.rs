//! One value in one file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Fault, Problem, cannot};

/// Records are small. What is larger is none of ours, and is not read into memory.
const LEN_MAX: u64 = 1 << 20;

/// How much of a foreign file is shown.
const SHOWN_MAX: usize = 40;

/// A value in a file.
#[derive(Debug)]
pub struct Record<T> {
    path: PathBuf,
    kind: &'static str,
    _value: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Record<T> {
    /// The record of a file that may or may not be there. `kind` is a word that tells it from other records.
    pub fn new(path: impl Into<PathBuf>, kind: &'static str) -> Self {
        Self { path: path.into(), kind, _value: PhantomData }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value as it was last written; none when there is no file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not what was written.
    pub fn read(&self) -> Result<Option<T>, Fault> {
        let path = &self.path;
        let bytes = match self.bytes() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot("read", path)(error)),
        };
        let header = format!("monolock {} 1 crc32 ", self.kind);
        let Some(rest) = bytes.strip_prefix(header.as_bytes()) else {
            return Err(self.foreign(&bytes));
        };
        let damaged = |why: &str| Problem::Damaged(why.into()).of(path);
        let (checksum, value) = rest.split_at_checked(9).ok_or_else(|| damaged("it ends too early"))?;
        if checksum != checksum_line(value).as_bytes() {
            return Err(damaged("its checksum is that of another text"));
        }
        let value = serde_json::from_slice(value).map_err(|error| damaged(&error.to_string()))?;
        Ok(Some(value))
    }

    /// Replaces the value. When this returns, it is on the disk; when it fails, the old value or the new one
    /// is, as a whole.
    ///
    /// # Errors
    ///
    /// The disk is full, read-only or broken.
    pub fn write(&self, value: &T) -> Result<(), Fault> {
        let path = &self.path;
        let mut json = serde_json::to_vec(value).map_err(|error| cannot("write", path)(error.into()))?;
        json.push(b'\n');
        let header = format!("monolock {} 1 crc32 {}", self.kind, checksum_line(&json));
        // A link is followed to the file that it names, which is replaced in its own directory.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let mut aside = path.clone().into_os_string();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        let mut file = File::create(&aside).map_err(cannot("open", &aside))?;
        file.write_all(header.as_bytes())
            .and_then(|()| file.write_all(&json))
            .map_err(cannot("write", &aside))?;
        file.sync_all().map_err(cannot("sync", &aside))?;
        fs::rename(&aside, &path).map_err(cannot("replace", &path))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        File::open(directory).and_then(|file| file.sync_all()).map_err(cannot("sync", directory))
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let len = fs::metadata(&self.path)?.len();
        if len > LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {len} bytes")));
        }
        fs::read(&self.path)
    }

    fn foreign(&self, bytes: &[u8]) -> Fault {
        let begins = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(&begins[..begins.len().min(SHOWN_MAX)]).into_owned();
        let found = match bytes {
            [] => "it is empty".into(),
            _ => format!("it begins with {text:?}"),
        };
        Problem::Foreign { expected: self.kind, found }.of(&self.path)
    }
}

fn checksum_line(value: &[u8]) -> String {
    format!("{:08x}\n", crc32fast::hash(value))
}
