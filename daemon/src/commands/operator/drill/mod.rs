//! `monolock ha drill`: clients at the address that moves, while an operator fails over by hand.

mod record;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use cli::parse_duration;
use client::{CancellationToken, Client, Config, Error, Identity, Tls, boottime_ns};
use tokio::time::sleep;

use super::output;
use super::problem::Problem;
use record::{Gap, Record};

const HELP: &str = "\
Exit status:
   0  served at the end, tokens rose, and no two clients held one lock
   1  one of that is not so; what is told
  64  an argument is invalid";

/// Between two attempts of a client: the resolution of what is measured is this, divided by the clients.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an address may be silent that is dialled. A host that is gone does not refuse.
const DIAL_TIMEOUT: Duration = Duration::from_millis(500);

/// How often a holder looks at its claim.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A holder that lets go now and then, so that its lock is claimed anew.
const HOLD_MAX: Duration = Duration::from_secs(3);

/// Who asks for more needs more than one machine.
const CLIENTS_MAX: usize = 1000;

/// Measures what clients notice while you fail over by hand.
///
/// It claims locks of its own (monolock-drill/…) at the address that clients use, and prints each
/// interruption: from the last grant before to the first one after. It moves and stops nothing. Ctrl-C ends
/// it early, with the verdict so far.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct DrillArgs {
    /// The address that moves, as clients have it: host:port.
    #[arg(long, value_name = "HOST:PORT")]
    address: String,
    /// How many clients, from 2: half of them hold locks by twos, the others take one anew all the time.
    #[arg(long, value_name = "N", default_value = "20", value_parser = clients)]
    clients: usize,
    /// The lease of their claims.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    lease: Duration,
    /// How long it lasts.
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    lasts: Duration,
    /// TLS: who vouches for the server, PEM.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// This client's certificate, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    tls_key: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the address's.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
}

fn clients(text: &str) -> Result<usize, String> {
    let clients = text.parse().ok().filter(|clients| (2..=CLIENTS_MAX).contains(clients));
    clients.ok_or_else(|| format!("a number from 2 to {CLIENTS_MAX} is expected"))
}

/// What the clients share.
struct Shared {
    client: Client,
    lease: Duration,
    record: Mutex<Record>,
    ends: CancellationToken,
}

impl Shared {
    fn record<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T {
        note(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The exit status.
pub(super) async fn drill(args: &DrillArgs) -> Result<u8, Problem> {
    let mut config = Config::new(&args.address).with_dial_timeout(DIAL_TIMEOUT);
    if let Some(tls) = tls(args)? {
        config = config.with_tls(tls);
    }
    let begun_ns = boottime_ns();
    let shared = Arc::new(Shared {
        client: Client::new(config),
        lease: args.lease,
        record: Mutex::new(Record::new(begun_ns, args.lease)),
        ends: CancellationToken::new(),
    });
    let of_run = format!("monolock-drill/{}", std::process::id());
    let holders = args.clients / 2;
    let mut tasks = Vec::new();
    for number in 0..args.clients {
        let (shared, of_run) = (Arc::clone(&shared), of_run.clone());
        tasks.push(tokio::spawn(async move {
            if number < holders {
                hold(&shared, &format!("{of_run}/held-{}", number / 2)).await;
            } else {
                probe(&shared, &format!("{of_run}/free-{number}")).await;
            }
        }));
    }
    output::write(
        format!(
            "{} clients at {}, lease {:?}, for {:?}: fail over now\n",
            args.clients, args.address, args.lease, args.lasts
        )
        .as_bytes(),
    )?;
    watch(&shared, begun_ns, args.lasts).await?;
    shared.ends.cancel();
    for task in tasks {
        // One that has panicked has said so.
        let _ = task.await;
    }
    let verdict = shared.record(|record| record.verdict(boottime_ns()));
    output::write(verdict.text.as_bytes())?;
    Ok(if verdict.passed { cli::exit::SUCCESS } else { cli::exit::NOT_THERE })
}

/// Prints interruptions as they end, until the time is over, something is wrong for good, or Ctrl-C.
async fn watch(shared: &Shared, begun_ns: u64, lasts: Duration) -> Result<(), Problem> {
    let over = sleep(lasts);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(over, interrupted);
    loop {
        tokio::select! {
            () = &mut over => return Ok(()),
            _ = &mut interrupted => return Ok(()),
            () = shared.ends.cancelled() => return Ok(()),
            () = sleep(LOOK_EVERY) => {}
        }
        for Gap { from_ns, to_ns } in shared.record(Record::new_gaps) {
            let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
            let (at, length) = (seconds(from_ns - begun_ns), seconds(to_ns - from_ns));
            output::write(format!("{at:8.3} s  interrupted for {length:.3} s\n").as_bytes())?;
        }
    }
}

/// Takes a lock and lets it go: each grant says that the address serves.
async fn probe(shared: &Shared, lock: &str) {
    while !shared.ends.is_cancelled() {
        drop(attempt(shared, lock).await);
        sleep(PAUSE).await;
    }
}

/// Holds a lock that another one wants too, for as long as its claim stands.
async fn hold(shared: &Shared, lock: &str) {
    while !shared.ends.is_cancelled() {
        if let Some(guard) = attempt(shared, lock).await {
            let until_ns = boottime_ns() + fastrand::u64(0..ns(HOLD_MAX));
            while guard.is_held() && !shared.ends.is_cancelled() && boottime_ns() < until_ns {
                shared.record(|record| record.holds(boottime_ns(), lock, guard.token()));
                tokio::select! {
                    _ = guard.lost() => break,
                    () = sleep(LOOK_EVERY) => {}
                }
            }
        }
        sleep(PAUSE).await;
    }
}

/// One attempt; a grant is written down.
async fn attempt(shared: &Shared, lock: &str) -> Option<client::Guard> {
    let floor = shared.record(|record| record.largest());
    match shared.client.try_acquire(lock, shared.lease).await {
        Ok(Some(guard)) => {
            shared.record(|record| record.granted(boottime_ns(), floor, lock, guard.token()));
            Some(guard)
        }
        Ok(None) => None,
        Err(error) => {
            note(shared, &error);
            None
        }
    }
}

fn note(shared: &Shared, error: &Error) {
    if error.is_temporary() {
        return shared.record(|record| record.failed(error.to_string()));
    }
    shared.record(|record| record.fault(error.to_string()));
    shared.ends.cancel();
}

fn tls(args: &DrillArgs) -> Result<Option<Tls>, Problem> {
    let Some(roots) = &args.tls_ca else { return Ok(None) };
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| Problem::Usage(format!("{}: {error}", path.display())))
    };
    let usage = |error: client::TlsError| Problem::Usage(error.to_string());
    let identity = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
        _ => None,
    };
    let identity =
        identity.as_ref().map(|(certificates_pem, key_pem)| Identity { certificates_pem, key_pem });
    let tls = Tls::new(&read(roots)?, identity).map_err(usage)?;
    match &args.tls_server_name {
        Some(name) => tls.with_server_name(name).map(Some).map_err(usage),
        None => Ok(Some(tls)),
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
