//! `monolock check-config`: what a server with these settings would use, and everything that is wrong with
//! it.
//!
//! Files are read, names are looked up, a ring is opened and closed, and addresses are bound for a moment.
//! Nothing is created, opened for writing, or listened on. Only the start itself can find what others take
//! meanwhile (a port, memory, the disk), a limit of threads, and a FIFO that nobody reads.

mod addresses;
mod place;

use cli::exit;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use addresses::Addresses;

use crate::commands::ending::{fail, unknown_variables};
use crate::settings::{Reading, SHARDS, TLS_CERT, TLS_KEY};
use crate::{boot, capacity, clock, token_file};
use cli::{AdminAddress, Given, Origin};
use logging::escape::escaped;
use tls::{Certificate, ClientCa};

/// Checks, and says on standard output what would be used and on standard error what is wrong.
pub(crate) fn check(reading: &Reading) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(exit::OS_ERROR, &format!("cannot look up names: {error}")),
    };
    let now_unix_s = i64::try_from(clock::unix_ns() / 1_000_000_000).expect("64 bits of ns are few seconds");
    let report = runtime.block_on(Report::new(reading, now_unix_s));
    let text: String = report.lines.iter().map(|line| format!("{line}\n")).collect();
    // A reader that has seen enough (`| head`) is no error.
    let _ = io::stdout().write_all(text.as_bytes());
    let mut status = ExitCode::SUCCESS;
    for mistake in &report.mistakes {
        status = fail(exit::CONFIG, mistake);
    }
    status
}

/// What was found; a line each.
#[derive(Debug, Default)]
struct Report {
    lines: Vec<String>,
    mistakes: Vec<String>,
}

impl Report {
    async fn new(reading: &Reading, now_unix_s: i64) -> Self {
        let mut report = Self::default();
        report.lines.extend(reading.given.iter().map(setting));
        report.mistakes.extend(
            unknown_variables().iter().map(|name| {
                format!("{name} is no variable of monolock; monolock --help lists what there is")
            }),
        );
        report.mistakes.extend(reading.mistakes.iter().map(ToString::to_string));
        let mut addresses = Addresses::default();
        for given in &reading.given {
            let flag = given.flag.name;
            match found(given, reading, now_unix_s, &mut addresses).await {
                None => {}
                Some(Ok(found)) => report.lines.push(escaped(&format!("{flag} {}: {found}", given.text))),
                Some(Err(mistake)) => report.mistakes.push(mistake),
            }
        }
        let shards = reading.given(&SHARDS.flag);
        match machine(boot::shard_count(shards.text.parse().ok().filter(|_| shards.is_valid))) {
            Ok(found) => report.lines.push(found),
            Err(mistake) => report.mistakes.push(mistake),
        }
        report
    }
}

/// `-listen  default  0.0.0.0:7070`.
fn setting(given: &Given) -> String {
    let origin = match given.origin {
        Origin::Flag => "flag",
        Origin::Variable => "variable",
        Origin::Default => "default",
    };
    let value = match given.text.as_str() {
        "" if *given.flag == SHARDS.flag => {
            format!("{} (one for each usable CPU)", boot::shard_count(None))
        }
        "" => "(none)".to_owned(),
        text => text.to_owned(),
    };
    escaped(&format!("{:<14} {origin:<8} {value}", given.flag.name))
}

/// What a setting's value stands for, or what is wrong with that; `None` where there is nothing to look at.
async fn found(
    given: &Given,
    reading: &Reading,
    now_unix_s: i64,
    addresses: &mut Addresses,
) -> Option<Result<String, String>> {
    const PARSED: &str = "a valid value was parsed before";
    let (flag, text) = (given.flag.name, given.text.as_str());
    if text.is_empty() || !given.is_valid {
        return None;
    }
    let path = Path::new(text);
    let under_flag = |problem: String| format!("{flag} {text}: {problem}");
    Some(match flag {
        "-listen" | "-ops-listen" => {
            addresses.look(format!("{flag} {text}"), &text.parse().expect(PARSED)).await.map_err(under_flag)
        }
        "-admin-listen" => match text.parse().expect(PARSED) {
            AdminAddress::Tcp(address) => {
                addresses.look(format!("{flag} {text}"), &address).await.map_err(under_flag)
            }
            AdminAddress::Unix(path) => place::of_socket(&path).map_err(under_flag),
        },
        "-tls-cert" => {
            let key = reading.given(&TLS_KEY.flag);
            if key.text.is_empty() || !key.is_valid {
                return None;
            }
            certificate(path, Path::new(&key.text), now_unix_s)
        }
        "-tls-client-ca" => match ClientCa::load(path) {
            Ok(authorities) => Ok(count(authorities.count(), "authority", "authorities")),
            Err(error) => Err(format!("{flag} {error}")),
        },
        "-acl-file" => match acl::load(path) {
            Ok(acl) => Ok(count(acl.count(), "rule", "rules")),
            Err(error) => Err(format!("{flag} {error}")),
        },
        "-token-file" => match token_file::look(path) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => place::of_log(path).map_err(under_flag),
            Err(error) => Err(error.to_string()),
        },
        "-audit-log" if text == "-" => Ok("standard output".to_owned()),
        "-audit-log" => place::of_log(path).map_err(under_flag),
        _ => return None,
    })
}

/// What this machine must have for a server, whatever its settings are.
fn machine(shards: usize) -> Result<String, String> {
    reactor::probe().map_err(|error| error.to_string())?;
    let capacity = boot::capacity(capacity::raise_descriptor_limit(), shards);
    let places = capacity.map_err(|error| error.to_string())?.places();
    Ok(format!("open files: enough for {}", count(places, "connection", "connections")))
}

/// A certificate that clients will refuse is a mistake too.
fn certificate(cert: &Path, key: &Path, now_unix_s: i64) -> Result<String, String> {
    let certificate = Certificate::load(cert, key)
        .map_err(|error| format!("{} {error}", crate::settings::tls_flag(error.of)))?;
    let description = certificate.description();
    match certificate.doubt(now_unix_s) {
        Some(doubt) => {
            let cert = cert.display();
            Err(format!(
                "{} {cert}: clients refuse the certificate: {doubt}: {description}",
                TLS_CERT.flag.name
            ))
        }
        None => Ok(description.to_owned()),
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
