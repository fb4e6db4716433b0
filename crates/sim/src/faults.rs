//! What can go wrong.

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of a client reaches the servers.
    CutToServer,
    /// Nothing reaches a client.
    CutToClient,
    /// Both.
    CutBothWays,
    /// No client and no server hear each other.
    CutEverybody,
    /// A server process is stopped and continued: its input stays.
    ServerStops,
    /// A server's host sleeps: its monotonic clock stands still.
    ServerSuspends,
    /// A shard is held up in the middle of a turn.
    ShardIsHeldUp,
    /// A server process is killed.
    ServerIsKilled,
    /// A server's host loses power: its connections are silent.
    ServerLosesPower,
    /// A server process shuts down in order.
    ServerShutsDown,
    /// A standby takes over when the old server's gate has closed by itself.
    FailoverByDeadline,
    /// A standby takes over, and the old server's connections are silent.
    FailoverSilent,
    /// A standby takes over, and resets the old server's connections.
    FailoverReset,
    /// A server's wall clock steps, forward or back.
    WallClockSteps,
    /// A server's kernel gives a connection up by itself.
    KernelGivesUp,
    /// A client process is stopped and continued.
    ClientStops,
    /// A client's host sleeps.
    ClientSuspends,
    /// A client process is killed.
    ClientIsKilled,
    /// A client's host loses power.
    ClientLosesPower,
    /// A client closes its connection.
    ClientLeaves,
    /// A session falls under suspicion.
    SessionIsSuspected,
    /// A packet of a session's host comes.
    SessionIsAlive,
    /// An administrator takes a lock from its holder.
    ForceRelease,
    /// An administrator removes a waiter.
    Kick,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 24] = [
        Self::CutToServer,
        Self::CutToClient,
        Self::CutBothWays,
        Self::CutEverybody,
        Self::ServerStops,
        Self::ServerSuspends,
        Self::ShardIsHeldUp,
        Self::ServerIsKilled,
        Self::ServerLosesPower,
        Self::ServerShutsDown,
        Self::FailoverByDeadline,
        Self::FailoverSilent,
        Self::FailoverReset,
        Self::WallClockSteps,
        Self::KernelGivesUp,
        Self::ClientStops,
        Self::ClientSuspends,
        Self::ClientIsKilled,
        Self::ClientLosesPower,
        Self::ClientLeaves,
        Self::SessionIsSuspected,
        Self::SessionIsAlive,
        Self::ForceRelease,
        Self::Kick,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::CutToServer => "client cut off, to server",
            Self::CutToClient => "client cut off, to client",
            Self::CutBothWays => "client cut off",
            Self::CutEverybody => "servers cut off",
            Self::ServerStops => "server stopped",
            Self::ServerSuspends => "server suspended",
            Self::ShardIsHeldUp => "shard held up in its turn",
            Self::ServerIsKilled => "server killed",
            Self::ServerLosesPower => "server without power",
            Self::ServerShutsDown => "server shut down",
            Self::FailoverByDeadline => "failover by deadline",
            Self::FailoverSilent => "failover, silent",
            Self::FailoverReset => "failover, reset",
            Self::WallClockSteps => "wall clock stepped",
            Self::KernelGivesUp => "server's kernel gives up",
            Self::ClientStops => "client stopped",
            Self::ClientSuspends => "client suspended",
            Self::ClientIsKilled => "client killed",
            Self::ClientLosesPower => "client without power",
            Self::ClientLeaves => "client leaves",
            Self::SessionIsSuspected => "session suspected",
            Self::SessionIsAlive => "session alive again",
            Self::ForceRelease => "lock force-released",
            Self::Kick => "waiter kicked",
        }
    }
}
