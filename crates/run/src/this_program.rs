//! The program that the other processes of a run are.

/// What is executed for the other processes: the very file that runs, also if its path has another one by
/// now.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
