//! Whether this machine has what a reactor needs.

use crate::buffers::Buffers;
use crate::ring::{Capabilities, Ring};
use crate::unavailable::Unavailable;

/// Entries of the ring that only asks whether io_uring works.
const PROBE_ENTRIES: u32 = 8;

/// Asks the kernel whether a [`Reactor`](crate::Reactor) can work here, without keeping anything.
///
/// # Errors
///
/// It cannot; the error names what is missing and the remedy.
pub fn probe() -> Result<Capabilities, Unavailable> {
    let ring = Ring::open(PROBE_ENTRIES, 2 * PROBE_ENTRIES)?;
    Buffers::new(&ring, 1)?;
    Ok(ring.capabilities())
}
