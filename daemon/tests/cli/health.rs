//! `monolock check` before servers that do whatever they like: its answer is there in time.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::harness::{MONOLOCK, Server, wait_for};

const TIMEOUT: Duration = Duration::from_millis(400);

/// What a process takes to start and end here beside many others.
const LATE_MAX: Duration = Duration::from_millis(1500);

struct Checked {
    code: Option<i32>,
    err: String,
}

fn command(url: &str) -> Command {
    let mut command = Command::new(&*MONOLOCK);
    command.args(["check", "--url", url, "--timeout", "400ms"]).stdin(Stdio::null());
    command
}

/// Runs it, and holds it to its time.
fn check(url: &str, flags: &[&str]) -> Checked {
    let started = Instant::now();
    let output = command(url).args(flags).output().expect("the program starts");
    let took = started.elapsed();
    assert!(took < TIMEOUT + LATE_MAX, "{took:?}");
    Checked { code: output.status.code(), err: String::from_utf8(output.stderr).unwrap() }
}

/// Answers each connection in one way, until dropped.
struct Other {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Other {
    /// `answer` writes to a connection whose request was read, as long as that works and it is not told to
    /// stop.
    fn start(
        answer: impl Fn(&mut TcpStream, &str, &AtomicBool) -> std::io::Result<()> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap_or(0);
                // Who asked may be gone.
                let _ = answer(&mut stream, &String::from_utf8_lossy(&request[..read]), &stopped);
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

fn no_yes_in_time(url: &str) -> String {
    let Checked { code, err } = check(url, &[]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.starts_with("monolock: could not tell: ") && err.ends_with('\n'), "{err:?}");
    assert_eq!(err.lines().count(), 1, "{err:?}");
    err
}

#[test]
fn a_server_that_accepts_and_says_nothing() {
    let other = Other::start(|stream, _, _| {
        // Until the other side gives up.
        stream.read(&mut [0]).map(drop)
    });
    assert!(no_yes_in_time(&other.url()).contains("no whole answer within 400ms"));
}

#[test]
fn a_server_that_says_a_byte_now_and_then() {
    let other = Other::start(|stream, _, stop| {
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            stream.write_all(&[*byte])?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    });
    no_yes_in_time(&other.url());
}

#[test]
fn an_answer_that_does_not_end() {
    let other = Other::start(|stream, _, stop| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok\n")?;
        while !stop.load(Ordering::Relaxed) {
            stream.write_all(&[b'x'; 4096])?;
        }
        Ok(())
    });
    no_yes_in_time(&other.url());
}

#[test]
fn heads_that_do_not_end() {
    let other = Other::start(|stream, _, stop| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        while !stop.load(Ordering::Relaxed) {
            stream.write_all(b"X-More: and more\r\n")?;
        }
        Ok(())
    });
    no_yes_in_time(&other.url());
}

#[test]
fn a_closed_port() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert!(no_yes_in_time(&format!("http://{address}")).contains("refused"));
}

#[test]
fn an_address_at_which_nothing_answers() {
    // A listener whose queue is full answers no SYN.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    wait_for("a full queue", || match TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        Ok(stream) => {
            queued.push(stream);
            None
        }
        Err(error) => (error.kind() == ErrorKind::TimedOut).then_some(()),
    });
    no_yes_in_time(&format!("http://{address}"));
}

#[test]
fn connections_that_are_reset() {
    let other =
        Other::start(|stream, _, _| socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)));
    no_yes_in_time(&other.url());
}

#[test]
fn a_server_of_another_kind_that_is_happy() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "",
    ] {
        let other = Other::start(move |stream, _, _| stream.write_all(answer.as_bytes()));
        no_yes_in_time(&other.url());
    }
}

#[test]
fn metrics_that_do_not_come_are_no_yes() {
    let other = Other::start(|stream, request, _| {
        if request.starts_with("GET /readyz ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
        } else {
            stream.read(&mut [0]).map(drop)
        }
    });
    no_yes_in_time(&other.url());
}

#[test]
fn what_the_other_side_says_cannot_reach_the_terminal() {
    let body = "\u{1b}[2Jshard 0\u{7}\n";
    let answer = format!("HTTP/1.1 503 No\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let other = Other::start(move |stream, _, _| stream.write_all(answer.as_bytes()));
    let Checked { code, err } = check(&other.url(), &[]);
    assert_eq!(code, Some(1));
    assert!(err.contains("shard 0") && !err.trim_end().contains(char::is_control), "{err:?}");
}

#[test]
fn closed_streams_change_no_status() {
    let server = Server::start();
    let url = format!("http://{}", server.ops.unwrap());
    wait_for("readiness", || (server.get("/readyz").0 == 200).then_some(()));
    for (url, code) in [(url.as_str(), 0), ("http://127.0.0.1:1", 2)] {
        let closed = format!("exec \"$0\" check --timeout 10s --url {url} <&- >&- 2>&-");
        let status = Command::new("sh").args(["-c", &closed, &MONOLOCK]).status().unwrap();
        assert_eq!(status.code(), Some(code));
    }
}

#[test]
fn streams_that_nobody_reads_hold_nothing_up() {
    // A pipe that is full.
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let started = Instant::now();
    let status = command("http://127.0.0.1:1").stderr(OwnedFd::from(writer)).status().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(started.elapsed() < TIMEOUT + LATE_MAX, "{:?}", started.elapsed());
    drop(reader);
}

#[test]
fn a_mistake_in_the_arguments_has_a_status_of_its_own() {
    for (flags, problem) in [
        (&["--fail-on", "p98"][..], "\"p98\" is none of p99, descriptors, clock, isolated, audit"),
        (&["--fail-on", "clock:5"], "clock: the duration has no unit"),
        (&["--timeout", "0"], "must be positive"),
        (&["--url", "https://127.0.0.1:9090"], "write http://"),
        (&["--port", "9"], "\"--port\""),
    ] {
        let output = Command::new(&*MONOLOCK).arg("check").args(flags).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{err}");
        assert!(err.contains(problem) && err.lines().count() == 1, "{err}");
    }
}

#[test]
#[ignore = "as root, for a network of its own; .ci/run runs it"]
fn a_name_server_that_says_nothing() {
    let script = r#"
        set -e
        ip link set lo up
        printf 'nameserver 127.0.0.1\noptions timeout:30\n' >"$DIR/resolv"
        mount --bind "$DIR/resolv" /etc/resolv.conf
        printf 'hosts: dns\n' >"$DIR/nsswitch"
        [ ! -e /etc/nsswitch.conf ] || mount --bind "$DIR/nsswitch" /etc/nsswitch.conf
        perl -MIO::Socket::INET -e '
            $s = IO::Socket::INET->new(Proto => "udp", LocalAddr => "127.0.0.1:53") or die $!;
            sleep 60' &
        dns=$!
        for try in $(seq 500); do
            grep -q '0100007F:0035' /proc/net/udp && break
            sleep 0.01
        done
        status=0
        "$0" check --url http://locks.example.net:9090 --timeout 400ms || status=$?
        kill $dns
        exit $status
    "#;
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let output = Command::new("unshare")
        .args(["--mount", "--net", "bash", "-c", script, &MONOLOCK])
        .env("DIR", folder.path())
        .output()
        .expect("unshare is there");
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("no whole answer within 400ms"), "{err}");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}
