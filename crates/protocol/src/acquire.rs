//! ACQUIRE: the first frame of a connection, and the order in which it is checked.

use std::ops::Deref;

use crate::{ErrorCode, Lease, LockName, NAME_BYTES_MAX, VERSION, kind};

/// Bytes before the name: type, version, lease, name length.
const HEADER_BYTES: usize = 8;

/// The longest ACQUIRE that is not an error.
pub const ACQUIRE_BYTES_MAX: usize = HEADER_BYTES + NAME_BYTES_MAX;

/// What a connection claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// The lock that is claimed.
    pub name: LockName,
    /// How long the claim outlives its last sign of life.
    pub lease: Lease,
}

impl Acquire {
    /// The frame that asks for this claim.
    pub fn encode(&self) -> AcquireFrame {
        let name = self.name.as_bytes();
        let mut bytes = [0; ACQUIRE_BYTES_MAX];
        bytes[0] = kind::ACQUIRE;
        bytes[1] = VERSION;
        bytes[2..6].copy_from_slice(&self.lease.as_ms().to_be_bytes());
        let name_len = u16::try_from(name.len()).expect("a LockName has at most 255 bytes");
        bytes[6..8].copy_from_slice(&name_len.to_be_bytes());
        bytes[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(name);
        AcquireFrame { bytes, len: HEADER_BYTES + name.len() }
    }
}

/// An encoded ACQUIRE; dereferences to its bytes.
#[derive(Debug, Clone)]
pub struct AcquireFrame {
    bytes: [u8; ACQUIRE_BYTES_MAX],
    len: usize,
}

impl Deref for AcquireFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes the first frame of a connection from all bytes received so far.
///
/// Returns the claim and the bytes that follow it, or `None` while more bytes are needed. The checks are made
/// in the protocol's order (type, version, lease, empty name, long name, UTF-8), each as soon as its bytes
/// are there: another version is refused before the rest of its frame, a long name before the name itself.
///
/// # Errors
///
/// The code of the ERROR frame that answers a bad ACQUIRE.
pub fn decode_acquire(received: &[u8]) -> Result<Option<(Acquire, &[u8])>, ErrorCode> {
    match received.first() {
        None => return Ok(None),
        Some(&kind::ACQUIRE) => {}
        Some(_) => return Err(ErrorCode::NOT_ACQUIRE),
    }
    match received.get(1) {
        None => return Ok(None),
        Some(&VERSION) => {}
        Some(_) => return Err(ErrorCode::UNSUPPORTED_VERSION),
    }
    let Some(lease_ms) = received.get(2..6) else { return Ok(None) };
    let lease_ms = u32::from_be_bytes(lease_ms.try_into().expect("the range has four bytes"));
    let lease = Lease::from_ms(lease_ms).ok_or(ErrorCode::LEASE_NOT_POSITIVE)?;

    let Some(name_len) = received.get(6..8) else { return Ok(None) };
    let name_len = usize::from(u16::from_be_bytes(name_len.try_into().expect("the range has two bytes")));
    LockName::check_len(name_len)?;

    let name_end = HEADER_BYTES + name_len;
    let Some(name) = received.get(HEADER_BYTES..name_end) else { return Ok(None) };
    let name = LockName::from_bytes(name)?;
    Ok(Some((Acquire { name, lease }, &received[name_end..])))
}
