//! The Unix socket of the admin API: a file that only its owner may use, and that goes with its server.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

/// Connections that may wait to be accepted: more than are served at once.
const BACKLOG: i32 = 128;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[error("-admin-listen unix:{}: {problem}", path.display())]
pub(crate) struct SocketError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("a server listens there already")]
    InUse,
    #[error("something else than a socket is there: remove it, or choose another path")]
    NoSocket,
    #[error("cannot tell whether a server listens there: {0}")]
    Unknown(io::Error),
    #[error("cannot listen: {0}")]
    Listen(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Listen(error)
    }
}

/// The socket's file; removed when dropped, unless another server has put its own in its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |file: fs::Metadata| (file.dev(), file.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            // A folder that has become read-only keeps it: the next start finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a path. The socket that a dead server left there is removed first.
pub(super) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let listening = open(path).or_else(|error| {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error.into());
        }
        remove_stale(path)?;
        Ok(open(path)?)
    });
    listening.map_err(|problem| SocketError { path: path.to_owned(), problem })
}

fn open(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // Linux gives the file the socket's own mode: there is no moment at which anybody else could connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device: file.dev(), inode: file.ino() };
    socket.listen(BACKLOG)?;
    Ok((socket.into(), file))
}

fn remove_stale(path: &Path) -> Result<(), Problem> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(Problem::NoSocket);
    }
    match has_server(path) {
        Ok(false) => Ok(fs::remove_file(path)?),
        Ok(true) => Err(Problem::InUse),
        Err(error) => Err(Problem::Unknown(error)),
    }
}

/// Whether a server listens on the socket at a path, which is connected to for a moment.
///
/// # Errors
///
/// When that cannot be told.
pub(crate) fn has_server(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A server that is too busy to accept is a server.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        connected => connected.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        (folder, path)
    }

    #[test]
    fn the_socket_is_its_owners_alone_and_goes_with_its_server() {
        let (_folder, path) = folder();
        let (listener, file) = listen(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        UnixStream::connect(&path).unwrap();
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_server_left_is_replaced_and_a_live_one_is_not() {
        let (_folder, path) = folder();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (_listener, _file) = listen(&path).unwrap();
        let error = listen(&path).unwrap_err().to_string();
        assert_eq!(error, format!("-admin-listen unix:{}: a server listens there already", path.display()));
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_server_that_is_too_busy_to_accept_is_alive() {
        let (_folder, path) = folder();
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        assert!(listen(&path).unwrap_err().to_string().contains("a server listens"), "its backlog is full");
    }

    #[test]
    fn nothing_else_is_removed() {
        let (folder, path) = folder();
        fs::write(&path, "text").unwrap();
        assert!(listen(&path).unwrap_err().to_string().contains("something else than a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");

        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
        assert!(listen(&link).unwrap_err().to_string().contains("something else than a socket"));

        let other = folder.path().join("datagram");
        let _other = UnixDatagram::bind(&other).unwrap();
        assert!(listen(&other).unwrap_err().to_string().contains("cannot tell"));

        let missing = folder.path().join("missing/admin.sock");
        assert!(listen(&missing).unwrap_err().to_string().contains("cannot listen: No such file"));
    }

    #[test]
    fn a_successors_socket_is_left_alone() {
        let (_folder, path) = folder();
        let (listener, file) = listen(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let (_successor, _its_file) = listen(&path).unwrap();
        drop((listener, file));
        UnixStream::connect(&path).unwrap();
    }
}
