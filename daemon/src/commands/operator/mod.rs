//! The operator's commands: look at locks and act on them, through a server's admin API.
//!
//! Names, identities and reasons come from clients and servers: all text is escaped where it is made or, as a
//! problem, in `fail`, and JSON where it is written.

mod act;
mod drill;
mod inspect;
mod locks;
mod node;
mod output;
mod problem;
mod rank;
mod span;
mod table;
mod target;
mod top;
mod view;

use cli::exit;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use protocol::LockName;

use crate::commands::ending::fail;
use admin_api::Client;
use cli::AdminAddress;
use problem::Problem;
use threads::runtime;

/// A command of the operator.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Locks(locks::LocksArgs),
    Inspect(inspect::InspectArgs),
    Release(act::ReleaseArgs),
    Kick(act::KickArgs),
    Top(top::TopArgs),
    Status(node::StatusArgs),
    Promote(node::PromoteArgs),
    Demote(node::DemoteArgs),
    Switchover(node::SwitchoverArgs),
    Ha(node::HaArgs),
}

/// Where the admin API is.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin API: host:port, :port on this machine, or unix:/path [env: MONOLOCK_ADMIN_LISTEN_ADDRESS].
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminAddress>,
}

/// What the commands for one lock have in common.
#[derive(Debug, Args)]
struct LockArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// JSON, one line.
    #[arg(long)]
    json: bool,
    /// The lock.
    #[arg(value_parser = lock_name)]
    name: LockName,
}

/// Runs to the end.
pub(crate) fn run(command: &Command) -> ExitCode {
    let runtime = match runtime::current_thread() {
        Ok(runtime) => runtime,
        Err(error) => return fail(exit::OS_ERROR, &format!("starting: {error}")),
    };
    let done = runtime.block_on(done(command));
    match done {
        // A reader that has seen enough (`| head`) is no error.
        Ok(status) => ExitCode::from(status),
        Err(Problem::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(problem) => fail(problem.exit_status(), &problem.to_string()),
    }
}

/// The exit status of a command that has its answer.
async fn done(command: &Command) -> Result<u8, Problem> {
    match command {
        Command::Locks(args) => locks::list(&args.admin.api()?, args).await?,
        Command::Inspect(args) => inspect::inspect(&args.of.admin.api()?, args).await?,
        Command::Release(args) => act::release(&args.of.admin.api()?, args).await?,
        Command::Kick(args) => act::kick(&args.of.admin.api()?, args).await?,
        Command::Top(args) => top::top(&args.admin.api()?, args).await?,
        Command::Status(args) => return node::status(args).await,
        Command::Promote(args) => return node::promote(args).await,
        Command::Demote(args) => return node::demote(args).await,
        Command::Switchover(args) => return node::switch_over(args).await,
        Command::Ha(args) => return node::ha(args).await,
    }
    Ok(exit::SUCCESS)
}

impl AdminArgs {
    fn api(&self) -> Result<Client, Problem> {
        target::resolve(self.admin.as_ref(), cli::environment_variable).map(Client::new)
    }
}

/// A lock's name as an argument.
fn lock_name(text: &str) -> Result<LockName, &'static str> {
    LockName::new(text).map_err(protocol::ErrorCode::meaning)
}
