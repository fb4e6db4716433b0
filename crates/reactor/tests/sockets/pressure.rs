//! Peers that do not read, or slowly.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::*;
use reactor::{Config, Ended, Key, OUTPUT_PAUSE_BYTES, Reactor};
use rustix::net::{AddressFamily, SocketType, sockopt};
use testkit::random::Random;

/// Small socket buffers, so that they fill soon.
const SOCKET_BUFFER_BYTES: usize = 8 * 1024;

fn narrow(reactor: &mut Reactor<u64>) -> (Key, TcpStream) {
    let (server, client) = pair(&listener());
    sockopt::set_socket_send_buffer_size(server.as_fd(), SOCKET_BUFFER_BYTES).unwrap();
    sockopt::set_socket_recv_buffer_size(client.as_fd(), SOCKET_BUFFER_BYTES).unwrap();
    (reactor.insert(server, 0).unwrap(), client)
}

/// A client whose window is small from its first packet on. Segments are then at most half of it, and a send
/// that spans two of them can end between them.
fn shallow(reactor: &mut Reactor<u64>) -> (Key, TcpStream) {
    let listener = listener();
    let client = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&client, SOCKET_BUFFER_BYTES / 2).unwrap();
    rustix::net::connect(&client, &listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    sockopt::set_socket_send_buffer_size(&server, SOCKET_BUFFER_BYTES).unwrap();
    (reactor.insert(server.into(), 0).unwrap(), client.into())
}

/// A numbered frame of nine bytes for each byte received.
fn answer(reactor: &mut Reactor<u64>, seen: &Seen) {
    if let Seen::Received(key, bytes) = seen {
        for _ in bytes {
            let number = reactor.get_mut(*key).unwrap();
            *number += 1;
            let mut frame = [0x12; 9];
            frame[1..].copy_from_slice(&number.to_be_bytes());
            reactor.send(*key, &frame);
        }
    }
}

#[test]
fn a_slow_reader_gets_every_frame_once_and_in_order() {
    const FRAMES: u64 = 60_000;
    let mut random = Random::of_one_run();
    let mut reactor = reactor(Config { io_timeout: Duration::from_secs(10), ..Config::default() });
    let (key, mut client) = narrow(&mut reactor);
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&vec![2; FRAMES as usize]).unwrap());
    let reading = std::thread::spawn(move || {
        for number in 1..=FRAMES {
            let mut frame = [0; 9];
            client.read_exact(&mut frame).unwrap();
            assert_eq!((frame[0], u64::from_be_bytes(frame[1..].try_into().unwrap())), (0x12, number));
            if random.below(2_000) == 0 {
                // What is slow about this reader; nothing waits for it.
                std::thread::sleep(Duration::from_millis(random.below(20)));
            }
        }
        client
    });
    let paused = Cell::new(0);
    drive(
        &mut reactor,
        |reactor, seen| answer(reactor, &seen),
        |reactor| {
            paused.set(paused.get() + u32::from(!reactor.is_reading(key)));
            reading.is_finished()
        },
    );
    assert!(paused.get() > 10, "the socket was full now and then");
    assert_eq!(reactor.get(key), Some(&FRAMES));
    writing.join().unwrap();
    let mut client = reading.join().unwrap();

    // Afterwards the connection is an ordinary one again.
    client.write_all(&[2]).unwrap();
    drive(
        &mut reactor,
        |reactor, seen| answer(reactor, &seen),
        |reactor| reactor.get(key) == Some(&(FRAMES + 1)),
    );
    reactor.wait(Some(Duration::ZERO)).unwrap();
    client.read_exact(&mut [0; 9]).unwrap();
    assert!(reactor.is_reading(key));
}

#[test]
fn small_sends_that_meet_a_full_socket_stay_whole_and_in_order() {
    const OUTPUT_BYTES: usize = 1 << 20;
    let byte = |at: usize| (at % 251) as u8;
    let mut random = Random::of_one_run();
    let mut reactor = reactor(Config { io_timeout: Duration::from_secs(10), ..Config::default() });
    let (key, mut client) = shallow(&mut reactor);
    let reading = std::thread::spawn(move || {
        let (mut read, mut bytes) = (0, [0; 4096]);
        while read < OUTPUT_BYTES {
            let count = client.read(&mut bytes).unwrap();
            let wrong = (0..count).find(|at| bytes[*at] != byte(read + at));
            assert!(count > 0 && wrong.is_none(), "byte {wrong:?} after {read} is wrong");
            read += count;
        }
        client
    });
    let mut sent = 0;
    drive(
        &mut reactor,
        |_, seen| panic!("{seen:?}"),
        |reactor| {
            // As long as it reads it is not behind: these are quiet sends, small enough for one piece.
            while sent < OUTPUT_BYTES && reactor.is_reading(key) {
                let count =
                    (1 + random.below(OUTPUT_PAUSE_BYTES as u64 - 1) as usize).min(OUTPUT_BYTES - sent);
                let piece: Vec<u8> = (sent..sent + count).map(byte).collect();
                reactor.send(key, &piece);
                sent += count;
                reactor.wait(Some(Duration::ZERO)).unwrap();
                assert!(reactor.next_event().is_none());
            }
            reading.is_finished()
        },
    );
    reading.join().unwrap();
}

#[test]
fn a_flood_that_nobody_reads_is_bounded_and_ends_by_timeout() {
    let io_timeout = Duration::from_millis(300);
    let mut reactor = reactor(Config { io_timeout, ..Config::default() });
    let (key, client) = narrow(&mut reactor);
    client.set_nonblocking(true).unwrap();
    let (received, ended, paused_at) = (Cell::new(0), Cell::new(None), Cell::new(None));
    let mut flood = &client;
    let start = Instant::now();
    drive(
        &mut reactor,
        |reactor, seen| {
            answer(reactor, &seen);
            match seen {
                Seen::Received(_, bytes) => received.set(received.get() + bytes.len()),
                Seen::Ended(from, how) => {
                    assert_eq!(from, key);
                    assert!(ended.replace(Some(how)).is_none());
                }
                Seen::Woken => panic!("nobody called"),
            }
        },
        |reactor| {
            let _ = flood.write(&[2; 65_536]);
            if !reactor.is_reading(key) && received.get() > 0 && paused_at.get().is_none() {
                paused_at.set(Some(start.elapsed()));
            }
            ended.get().is_some()
        },
    );
    assert_eq!(ended.get(), Some(Ended::SendTimeout));
    assert!(start.elapsed() >= io_timeout);
    // What sockets, the pause limit and one turn's completions hold. Without the pause, megabytes would come.
    let answered = received.get() * 9;
    assert!(answered > OUTPUT_PAUSE_BYTES && answered < 200_000, "{answered} bytes of answers");
    assert!(paused_at.get().is_some());
    assert_eq!(reactor.close(key), Some(received.get() as u64));
    settle(&mut reactor);
}

#[test]
fn a_reader_that_makes_progress_does_not_time_out() {
    const OUTPUT_BYTES: usize = 128 << 20;
    let io_timeout = Duration::from_millis(300);
    let mut reactor = reactor(Config { io_timeout, ..Config::default() });
    let (key, client) = connect(&mut reactor);
    client.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let (start, mut next, mut read) = (Instant::now(), Duration::ZERO, 0);
    reactor.send(key, &vec![0; OUTPUT_BYTES]);
    drive(
        &mut reactor,
        |_, seen| panic!("{seen:?}"),
        |_| {
            if start.elapsed() >= next {
                next = start.elapsed() + Duration::from_millis(20);
                read += (&client).read(&mut bytes).unwrap_or(0);
            }
            start.elapsed() > 3 * io_timeout
        },
    );
    assert!(read > 0 && read < OUTPUT_BYTES, "blocked all the time: {read} bytes");
    // It stops to read, and only now it is late.
    assert_eq!(collect(&mut reactor, |seen| !seen.is_empty()), [Seen::Ended(key, Ended::SendTimeout)]);
}
