//! The tool from outside: its processes and exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol::{ACQUIRED_BYTES, Acquire, HEARTBEAT, Lease, LockName};

const TOOL: &str = env!("CARGO_BIN_EXE_monolock-bench");
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn the_floor_prints_its_port_answers_an_acquire_and_each_byte_and_ends_by_itself() {
    let mut floor =
        Command::new(TOOL).args(["floor", "--time", "2s"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(floor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening ").unwrap();

    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let acquire = Acquire { name: LockName::new("x").unwrap(), lease: Lease::from_ms(1000).unwrap() };
    socket.write_all(&acquire.encode()).unwrap();
    let mut first = [0; ACQUIRED_BYTES];
    socket.read_exact(&mut first).unwrap();
    socket.write_all(&HEARTBEAT.repeat(3)).unwrap();
    let mut answers = [0; 3 * ACQUIRED_BYTES];
    socket.read_exact(&mut answers).unwrap();
    assert_eq!(answers, *first.repeat(3));

    assert!(floor.wait().unwrap().success());
}

#[test]
fn a_missing_server_is_one_clear_line_and_no_verdict() {
    let output = Command::new(TOOL).args(["idle", "--server", "/nonexistent/monolock"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("/nonexistent/monolock") && message.contains("--server"), "{message}");
}
