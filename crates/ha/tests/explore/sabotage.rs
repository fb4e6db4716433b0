//! Planted faults: what a driver does wrong at the edge of the real state machine.
//!
//! Each names the rule it breaks. An exploration that does not find one of them proves nothing about that
//! rule.

/// A planted fault, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sabotage {
    /// Everything is as it should be.
    None,
    /// The address of the peer leads to oneself, and the own answer is taken for the peer's.
    PeerIsOneself,
    /// No answer is taken for `closed`.
    SilenceIsProof,
    /// A refusal is taken for `closed`.
    RefusalIsProof,
    /// The gate opens some time after the decision, although the promise may have moved on.
    OpensLate,
    /// A promise is told while it is still being written.
    TellsBeforeSynced,
    /// `closed` is told while shards may still grant.
    TellsBeforeClosed,
    /// A host that has booted anew says that it has not.
    ForgetsBoot,
    /// The peer's power fencer is not told.
    HidesPowerFencer,
    /// `promote --auto` is taken for `promote`.
    AutoIsHand,
    /// An answer to a promotion that has ended is taken for the one that runs.
    TakesLateAnswers,
    /// A mere promise of the peer is taken for an opened term.
    PromiseIsOpened,
    /// A command that failed is taken for a confirmed fence.
    FailureIsFence,
}

impl Sabotage {
    /// Every planted fault.
    pub(crate) const ALL: [Self; 12] = [
        Self::PeerIsOneself,
        Self::SilenceIsProof,
        Self::RefusalIsProof,
        Self::OpensLate,
        Self::TellsBeforeSynced,
        Self::TellsBeforeClosed,
        Self::ForgetsBoot,
        Self::HidesPowerFencer,
        Self::AutoIsHand,
        Self::TakesLateAnswers,
        Self::PromiseIsOpened,
        Self::FailureIsFence,
    ];
}
