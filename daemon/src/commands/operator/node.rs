//! Commands about one of two nodes: who is active, and who is to be.

use std::net::IpAddr;

use admin_api::{Client, Commanded, NodeStatus};
use clap::{Args, Subcommand};
use logging::escape::escaped;

use super::drill::{self, DrillArgs};
use super::problem::Problem;
use super::{AdminArgs, output};

/// The statuses of these commands, for the help text.
const HELP: &str = "\
Exit status:
   0  done
   1  refused; the reason is told
   2  unknown: the admin API gives no answer, or nobody knows what came of it
   3  pending: the node goes on trying to fence the other one
  64  an argument or the variable is invalid";

const STATUS_HELP: &str = "\
Exit status:
   0  active
   1  standby
   2  unknown: the admin API gives no answer, or the server has no standby
   3  fence pending
  64  an argument or the variable is invalid";

/// Makes this node the active one, after the other one is fenced.
///
/// By hand it also lifts a demotion by hand.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct PromoteArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// For keepalived's notify scripts: not after a demotion by hand.
    #[arg(long, conflicts_with_all = ["keep", "force_unfenced"])]
    auto: bool,
    /// For check scripts that run every second: nothing unless --address is here, and never against a node
    /// that is open.
    #[arg(long, requires = "address", conflicts_with = "force_unfenced")]
    keep: bool,
    /// The address that moves.
    #[arg(long, value_name = "IP", requires = "keep")]
    address: Option<IpAddr>,
    /// Without a fence. The other server must be stopped, and stay so.
    #[arg(long)]
    force_unfenced: bool,
}

/// Closes this node: every session ends, and it stays closed until a promotion by hand.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct DemoteArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// For keepalived's notify scripts: the next promotion, whoever makes it, opens it again.
    #[arg(long)]
    auto: bool,
}

/// Hands over to the other node, if that one is fit: closes here, opens there, moves the address.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct SwitchoverArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

/// Says whether this node is the active one, and why not.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// JSON, one line.
    #[arg(long)]
    json: bool,
}

/// Keeps this node as it is, for work on the pair, or measures a failover.
#[derive(Debug, Args)]
pub(crate) struct HaArgs {
    #[command(subcommand)]
    command: HaCommand,
}

#[derive(Debug, Subcommand)]
enum HaCommand {
    /// No promotion and no fencing by this node, also after a restart, until `unhold`. It still closes and
    /// answers. Hold the node that must not take over.
    #[command(after_help = HELP)]
    Hold(AdminArgs),
    /// Ends a hold.
    #[command(after_help = HELP)]
    Unhold(AdminArgs),
    Drill(DrillArgs),
}

impl PromoteArgs {
    /// As the API has it.
    fn call(&self) -> String {
        match (self.auto, self.address, self.force_unfenced) {
            (true, ..) => "promote?mode=auto".into(),
            (_, Some(address), _) => format!("promote?mode=keep&address={address}"),
            (_, _, true) => "promote?mode=unfenced".into(),
            _ => "promote".into(),
        }
    }
}

/// The exit status.
pub(super) async fn promote(args: &PromoteArgs) -> Result<u8, Problem> {
    if args.force_unfenced {
        output::tell(
            "the other server must be stopped, and stay stopped until it is set up as a standby again",
        );
    }
    command(&args.admin, &args.call()).await
}

pub(super) async fn demote(args: &DemoteArgs) -> Result<u8, Problem> {
    command(&args.admin, if args.auto { "demote?mode=auto" } else { "demote" }).await
}

pub(super) async fn switch_over(args: &SwitchoverArgs) -> Result<u8, Problem> {
    command(&args.admin, "switchover").await
}

pub(super) async fn ha(args: &HaArgs) -> Result<u8, Problem> {
    match &args.command {
        HaCommand::Hold(admin) => command(admin, "hold").await,
        HaCommand::Unhold(admin) => command(admin, "unhold").await,
        HaCommand::Drill(args) => drill::drill(args).await,
    }
}

async fn command(admin: &AdminArgs, call: &str) -> Result<u8, Problem> {
    let Commanded { status, result } = unknown(admin.api()?.command(call).await)?;
    output::write(format!("{}\n", escaped(&result)).as_bytes())?;
    Ok(status)
}

pub(super) async fn status(args: &StatusArgs) -> Result<u8, Problem> {
    let api: Client = args.admin.api()?;
    let node = unknown(api.node().await)?;
    let status = match node.role.as_str() {
        "active" => 0,
        "standby" => 1,
        "fence_pending" => 3,
        _ => 2,
    };
    if args.json {
        output::write_json(&[node])?;
    } else {
        output::write(escaped_lines(&shown(&node)).as_bytes())?;
    }
    Ok(status)
}

/// Whatever the reason, nothing is known of the node then.
fn unknown<T>(answer: Result<T, admin_api::Error>) -> Result<T, Problem> {
    answer.map_err(Problem::NodeUnknown)
}

fn shown(node: &NodeStatus) -> Vec<String> {
    let NodeStatus { peer, .. } = node;
    let term = |term: &Option<String>| term.clone().unwrap_or_else(|| "none".into());
    let role = match node.role.as_str() {
        "fence_pending" => "fence pending",
        role => role,
    };
    let mut lines = vec![
        format!("{}: {role}, gate {}, term {}", node.node, node.gate, term(&node.term)),
        match peer.answered_ms_ago {
            Some(ms) => format!(
                "{}: gate {}, term {}, {} sessions, answered {ms} ms ago",
                peer.node,
                peer.gate.as_deref().unwrap_or("unknown"),
                term(&peer.term),
                peer.sessions.unwrap_or(0),
            ),
            None => format!("{}: no answer since this server started", peer.node),
        },
        format!("fencers: {}", node.fencers),
    ];
    lines.extend(node.reason.as_ref().map(|reason| format!("not active: {reason}")));
    lines.extend(node.last_fence.as_ref().map(|fence| format!("last fence: {fence}")));
    lines.extend(node.hold.then(|| "under hold: monolock ha unhold ends it".to_owned()));
    lines.extend(node.demoted.then(|| "demoted by hand: monolock promote ends it".to_owned()));
    lines.extend(node.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines
}

fn escaped_lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", escaped(line))).collect()
}
