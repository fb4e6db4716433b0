//! Could a file or a socket be made at a path, or used there? Looked at without touching it.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::admin;

/// A log that lines would be appended to.
pub(super) fn of_log(path: &Path) -> Result<String, String> {
    match metadata(path)? {
        None => creatable(path).map(|()| "it would be created".to_owned()),
        Some(metadata) if metadata.is_dir() => Err("it is a directory".to_owned()),
        Some(metadata) if metadata.file_type().is_socket() => Err(audit::IS_A_SOCKET.to_owned()),
        Some(metadata) => match may(path, Access::WRITE_OK) {
            Ok(()) => Ok(of_log_that_is_there(path, &metadata).to_owned()),
            Err(error) => Err(format!("it cannot be written to: {error}")),
        },
    }
}

fn of_log_that_is_there(path: &Path, metadata: &Metadata) -> &'static str {
    // Their targets are this process's own, and the server's may be others.
    let of_the_process = ["/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/"];
    if of_the_process.iter().any(|of| path.as_os_str().as_encoded_bytes().starts_with(of.as_bytes())) {
        "under a service manager it may be a socket, which cannot be opened: - is standard output"
    } else if metadata.file_type().is_fifo() {
        "it is a FIFO: something must read from it when the server starts"
    } else {
        "it is there and would be appended to"
    }
}

/// A socket that the server would listen on. The one that is there may be a running server's, or one that was
/// left behind.
pub(super) fn of_socket(path: &Path) -> Result<String, String> {
    // bind(2) follows no link.
    match found(fs::symlink_metadata(path))? {
        Some(metadata) if !metadata.file_type().is_socket() => {
            Err("something else than a socket is there".to_owned())
        }
        there => {
            creatable(path)?;
            let Some(file) = there else { return Ok("it would be created".to_owned()) };
            match admin::has_server(path) {
                Ok(true) => Ok("a server listens there now".to_owned()),
                Ok(false) if !removable(path, &file) => {
                    Err("only the owner of the dead server's socket may remove it".to_owned())
                }
                Ok(false) => Ok("it would take the place of a dead server's".to_owned()),
                Err(error) => Err(format!("cannot tell whether a server listens there: {error}")),
            }
        }
    }
}

/// `None` when nothing is there.
fn metadata(path: &Path) -> Result<Option<Metadata>, String> {
    found(fs::metadata(path))
}

fn found(metadata: io::Result<Metadata>) -> Result<Option<Metadata>, String> {
    match metadata {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot look at it: {error}")),
    }
}

/// Whether the folder of a path is there and takes new entries.
fn creatable(path: &Path) -> Result<(), String> {
    // A path without a file's name, as one that ends in a slash, names a folder.
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.file_name().is_none() {
        return Err("it names a directory".to_owned());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match metadata(folder)? {
        None => Err(format!("there is no directory {}", folder.display())),
        Some(metadata) if !metadata.is_dir() => Err(format!("{} is no directory", folder.display())),
        Some(_) => may(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| format!("nothing can be created in {}: {error}", folder.display())),
    }
}

/// In a folder like /tmp, which is sticky, files are removed by their owner and the folder's.
fn removable(path: &Path, file: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    let user = rustix::process::geteuid();
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    user.is_root()
        || folder.is_none_or(|folder| {
            folder.mode() & STICKY == 0 || [folder.uid(), file.uid()].contains(&user.as_raw())
        })
}

/// Whether this process might, as its effective user.
fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_log_is_appended_to_or_created_in_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("there");
        fs::write(&there, "line\n").unwrap();
        let missing = folder.path().join("missing");
        assert_eq!(of_log(&there).unwrap(), "it is there and would be appended to");
        assert_eq!(of_log(&missing).unwrap(), "it would be created");
        assert_eq!(of_log(Path::new("a-log-in-this-folder")).unwrap(), "it would be created");
        assert_eq!(of_log(Path::new("/dev/null")).unwrap(), "it is there and would be appended to");

        assert_eq!(of_log(folder.path()).unwrap_err(), "it is a directory");
        let socket = folder.path().join("socket");
        drop(UnixListener::bind(&socket).unwrap());
        assert_eq!(of_log(&socket).unwrap_err(), audit::IS_A_SOCKET);
        fs::remove_file(&socket).unwrap();
        assert_eq!(of_log(&folder.path().join("new/")).unwrap_err(), "it names a directory");
        assert!(of_log(&missing.join("log")).unwrap_err().starts_with("there is no directory"));
        assert!(of_log(&there.join("log")).unwrap_err().contains("Not a directory"));

        assert_eq!(fs::read_to_string(&there).unwrap(), "line\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was created");
    }

    #[test]
    fn a_socket_takes_the_place_of_nothing_or_of_another_socket() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        assert_eq!(of_socket(&socket).unwrap(), "it would be created");
        drop(UnixListener::bind(&socket).unwrap());
        assert_eq!(of_socket(&socket).unwrap(), "it would take the place of a dead server's");
        // Through a link the server would find the socket, and could not bind: there is a file in its place.
        let [link, dangling] = ["link", "dangling"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &dangling).unwrap();
        for other in [folder.path(), Path::new("/dev/null"), &link, &dangling] {
            assert_eq!(of_socket(other).unwrap_err(), "something else than a socket is there");
        }
        assert!(
            of_socket(&folder.path().join("missing/socket"))
                .unwrap_err()
                .starts_with("there is no directory")
        );
        assert!(socket.exists());
    }
}
