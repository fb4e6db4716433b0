//! Planted faults: what a shell does wrong at the edge of the real lock table or the real claim.
//!
//! Each names the rule it breaks. A simulation that does not find one of them proves nothing about that rule.

/// A planted fault, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Sabotage {
    /// Everything is as it should be.
    None,
    /// Server: a claim expires after half its lease.
    ExpiresAtHalfLease,
    /// Server: the next grant is carried out before the release that makes way for it.
    GrantsBeforeReleasing,
    /// Server: now and then a holder's lock moves, and its connection is told nothing.
    ReleasesWithoutWord,
    /// Server: a new waiter takes the place of the last one.
    QueuesLastFirst,
    /// Server: a restarted process counts its tokens from its start.
    ReusesTokens,
    /// Server: an overdue session's socket is not asked before it is expired.
    ExpiresUnheard,
    /// Server: takes what waits for others as unread input of the session that it looks at.
    PutsOffForOthers,
    /// Server: what the local kernel concluded by itself releases at once.
    TakesSilenceForGone,
    /// Server: a waiter whose own lease is over is promoted.
    PromotesOverdue,
    /// Server: grants and confirms behind a closed gate.
    IgnoresGate,
    /// Server: is promoted again while sessions of its last life are left, and takes them for its own.
    ForgetsOpenings,
    /// Server: its deadline is extended after it has passed.
    ExtendsLate,
    /// Server: takes no notice of the ceiling on its disk.
    IgnoresCeiling,
    /// Server: uses tokens before they are put aside.
    RaisesBeforeStoring,
    /// Server: carries out a heartbeat's effects before it answers.
    AnswersAfterGranting,
    /// Server: looks at the clock before it waits, not after.
    LooksBeforeWaiting,
    /// Server: reads the wall clock after it looked at the gate, and may have been held up in between.
    ReadsWallClockLate,
    /// Server: leaves a heartbeat unanswered now and then.
    SwallowsAnswers,
    /// Server: never looks at leases.
    NeverExpires,
    /// Client: counts from the time at which an answer was read.
    CountsFromReading,
    /// Client: takes the push for an answer: to the heartbeat in flight, or else to one sent just now.
    TakesPushForAnswer,
    /// Client: gives up after 1.0 × lease.
    GivesUpAtLease,
    /// Client: gives up after 1.3 × lease.
    GivesUpLate,
    /// Client: its clock stands still while its host is suspended.
    IgnoresSuspend,
    /// Client: believes on after an ERROR.
    BelievesAfterError,
    /// Client: upstream's rules in a network that they cannot bear.
    UpstreamInRoughNetwork,
    /// Client: clocks up to 1.4 times apart, more than 0.8 × lease bears.
    ClocksTooFarApart,
}

impl Sabotage {
    /// Every planted fault.
    pub const ALL: [Self; 27] = [
        Self::ExpiresAtHalfLease,
        Self::GrantsBeforeReleasing,
        Self::ReleasesWithoutWord,
        Self::QueuesLastFirst,
        Self::ReusesTokens,
        Self::ExpiresUnheard,
        Self::PutsOffForOthers,
        Self::TakesSilenceForGone,
        Self::PromotesOverdue,
        Self::IgnoresGate,
        Self::ForgetsOpenings,
        Self::ExtendsLate,
        Self::IgnoresCeiling,
        Self::RaisesBeforeStoring,
        Self::AnswersAfterGranting,
        Self::LooksBeforeWaiting,
        Self::ReadsWallClockLate,
        Self::SwallowsAnswers,
        Self::NeverExpires,
        Self::CountsFromReading,
        Self::TakesPushForAnswer,
        Self::GivesUpAtLease,
        Self::GivesUpLate,
        Self::IgnoresSuspend,
        Self::BelievesAfterError,
        Self::UpstreamInRoughNetwork,
        Self::ClocksTooFarApart,
    ];
}
