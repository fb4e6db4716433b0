//! The verdict of this program.

/// Whether what was promised was kept.
pub(crate) enum Verdict {
    Met,
    Missed(String),
}
