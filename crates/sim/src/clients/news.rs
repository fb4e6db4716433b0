//! What either kind of claim tells its client.

/// What a claim tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Waits,
    Holds,
    Lost,
}
