//! `monolock check`: whether clients should be sent to a server, asked of its ops endpoints; for keepalived,
//! load balancers and cron. It answers in time, whatever the server does.

mod ask;
mod judge;
mod say;
mod url;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use cli::values::positive_duration;
use threads::runtime;

use crate::checks::Limits;
use judge::{Verdict, judge};
use url::Url;

/// Of the time, what is kept for the way out: saying why, and the process's end.
const WAY_OUT: Duration = Duration::from_millis(20);

const HELP: &str = "\
LIST is NAME[:LASTING], with commas between several: descriptors, clock:60s, isolated, audit, and p99[=ABOVE][:LASTING]
for the heartbeats' service time, as in p99=5ms. Each is a warning of /readyz that fails here when it has lasted so long.

Exit status:
   0  serve here: \"ok\" on standard output, and a line for each warning
   1  do not: why is on standard error
   2  it could not be told: no answer in time, or not that of a monolock server
  64  an argument is invalid";

/// Says whether clients should be sent to a server; for keepalived's vrrp_script, load balancers and cron.
///
/// It reads /readyz and /metrics of the server's -ops-listen address, and needs no settings file and no
/// variable.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct HealthArgs {
    /// The server's -ops-listen address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090", value_parser = Url::parse)]
    url: Url,
    /// The answer is there in this time, whatever the server does.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive_duration)]
    timeout: Duration,
    /// Warnings that fail here, beside those of the server's -ready-fail-on.
    #[arg(long, value_name = "LIST", default_value = "", value_parser = Limits::parse)]
    fail_on: Limits,
}

/// Asks, and says what came out.
pub(super) fn run(args: &HealthArgs) -> ExitCode {
    let ends = Instant::now() + args.timeout;
    let verdict = verdict(args, ends - WAY_OUT.min(args.timeout / 4));
    say::say(&verdict, ends);
    ExitCode::from(verdict.exit_status())
}

fn verdict(args: &HealthArgs, until: Instant) -> Verdict {
    let HealthArgs { url, timeout, fail_on } = args;
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(error) => return Verdict::CouldNotTell(format!("starting: {error}")),
    };
    let asked = runtime.block_on(async { tokio::time::timeout_at(until.into(), ask::ask(url)).await });
    // A look-up of a name may hang for long.
    runtime.shutdown_background();
    match asked {
        Ok(Ok(answers)) => judge(&answers, fail_on),
        Ok(Err(why)) => Verdict::CouldNotTell(format!("{url}: {why}")),
        Err(_) => Verdict::CouldNotTell(format!("{url}: no whole answer within {timeout:?}")),
    }
}
