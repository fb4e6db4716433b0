//! Nine bytes for each byte received: the least that a lock server does for a heartbeat. For measuring the
//! reactor.
//!
//! `respond [ADDRESS]` serves until its standard input ends, then prints messages and the CPU of each.

use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use reactor::{Config, Event, Reactor};
use rustix::time::{ClockId, clock_gettime};

enum Command {
    Serve(OwnedFd),
    Stop,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7171".into());
    let listener = TcpListener::bind(&address)?;
    let mut reactor = Reactor::<u64>::new(Config::default())?;
    println!("listening on {address}, {:?}", reactor::probe()?);

    let (commands, inbox) = mpsc::channel();
    let (waker, stop) = (reactor.waker(), commands.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            let _ = commands.send(Command::Serve(stream.into()));
            waker.wake();
        }
    });
    let waker = reactor.waker();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(Command::Stop);
        waker.wake();
    });
    serve(&mut reactor, &inbox)
}

fn serve(
    reactor: &mut Reactor<u64>,
    inbox: &mpsc::Receiver<Command>,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut messages, mut turns) = (0u64, 0u64);
    let cpu_start = thread_cpu();
    loop {
        reactor.wait(None)?;
        turns += 1;
        let mut woken = false;
        while let Some(event) = reactor.next_event() {
            match event {
                Event::Woken => woken = true,
                Event::Received { key, data, bytes } => {
                    let count = bytes.len();
                    *data += count as u64;
                    messages += count as u64;
                    for _ in 0..count {
                        reactor.send(key, &[0x12; 9]);
                    }
                }
                Event::Ended { key, .. } => drop(reactor.close(key)),
            }
        }
        if !woken {
            continue;
        }
        for command in inbox.try_iter() {
            match command {
                Command::Serve(fd) => drop(reactor.insert(fd, 0)),
                Command::Stop => {
                    let cpu = thread_cpu() - cpu_start;
                    let each_us = cpu.as_secs_f64() * 1e6 / messages.max(1) as f64;
                    println!("{messages} messages, {turns} turns, {cpu:?} CPU, {each_us:.2} µs each");
                    return Ok(());
                }
            }
        }
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
