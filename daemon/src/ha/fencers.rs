//! Commands that stop the peer: `PATH off NODE`, and then `PATH status NODE`, each with a hard limit.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ha::term::NodeId;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// What the output of a command may be in a log line.
const SHOWN_BYTES_MAX: u64 = 200;

/// Runs the command, and says why it does not confirm that the node can no longer act.
///
/// Both calls have to end with status 0: who was asked to act has to look, too. Dropped, it takes the
/// command's process with it.
pub(super) async fn fence(path: &Path, node: &NodeId, limit: Duration) -> Result<(), String> {
    for action in ["off", "status"] {
        let ended = timeout(limit, run(path, action, node)).await;
        let problem = match ended {
            Err(_) => format!("no end within {limit:?}"),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok((status, _))) if status.success() => continue,
            Ok(Ok((status, stderr))) => ending(status, &stderr),
        };
        return Err(format!("{} {action} {node}: {problem}", path.display()));
    }
    Ok(())
}

/// The status of the command, and how its standard error begins.
async fn run(path: &Path, action: &str, node: &NodeId) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut command = Command::new(path);
    command.args([action, node.as_str()]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).process_group(0).spawn()?;
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let mut stderr = child.stderr.take().expect("piped above");
    let mut text = Vec::new();
    (&mut stderr).take(SHOWN_BYTES_MAX).read_to_end(&mut text).await?;
    tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
    let status = child.wait().await?;
    group.0 = None;
    Ok((status, text))
}

/// The processes of a command, which end with the value as long as the command was not waited for.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            // It may be gone, but its number is its own until it is waited for.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

fn ending(status: ExitStatus, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    match text.lines().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("{status}: {}", line.trim()),
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    async fn ran(script: &str, limit: Duration) -> (Result<(), String>, String) {
        let dir = tempfile::tempdir().unwrap();
        let (path, calls) = (dir.path().join("fence"), dir.path().join("calls"));
        let script = format!("#!/bin/sh\necho \"$1 $2\" >> {}\n{script}\n", calls.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let result = fence(&path, &"b".parse().unwrap(), limit).await;
        (result, fs::read_to_string(calls).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_command_confirms_by_off_and_then_by_status() {
        assert_eq!(ran("", LIMIT).await, (Ok(()), "off b\nstatus b\n".into()));
    }

    #[tokio::test]
    async fn whatever_else_it_does_is_no_confirmation() {
        let (off, calls) = ran("echo no power >&2; exit 3", LIMIT).await;
        assert!(off.unwrap_err().ends_with("off b: exit status: 3: no power"));
        assert_eq!(calls, "off b\n");
        let (status, _) = ran("test $1 = off", LIMIT).await;
        assert!(status.unwrap_err().ends_with("status b: exit status: 1"));
        let (killed, _) = ran("kill -9 $$", LIMIT).await;
        assert!(killed.unwrap_err().contains("signal: 9"));
        let (hung, _) = ran("exec sleep 600", Duration::from_millis(200)).await;
        assert!(hung.unwrap_err().contains("no end within 200ms"));
        let missing = fence(Path::new("/no/such/fencer"), &"b".parse().unwrap(), LIMIT).await;
        assert!(missing.unwrap_err().contains("No such file"));
    }
}
