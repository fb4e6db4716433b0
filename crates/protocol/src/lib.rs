//! The wire protocol, version 1: frames, error codes, lock names, leases and tokens.
//!
//! No I/O and no clock. Decoders take the bytes received so far and say what they mean, so that a stream
//! split or glued in any way gives the same frames. Encoders return arrays: nothing here allocates except
//! a [`LockName`] and the reason of a received ERROR.
//!
//! | direction | frame | bytes |
//! | --- | --- | --- |
//! | client → server | ACQUIRE | `01` · version `u8` · lease_ms `u32` · name_len `u16` · name |
//! | client → server | HEARTBEAT | `02` |
//! | server → client | WAITING | `11` |
//! | server → client | ACQUIRED | `12` · token `u64` |
//! | server → client | ERROR | `13` · code `u8` · reason_len `u8` · reason |
//!
//! Integers are big endian.
#![forbid(unsafe_code)]

mod acquire;
mod code;
mod lease;
mod name;
mod server;
mod session;
mod token;

pub use acquire::{ACQUIRE_BYTES_MAX, Acquire, AcquireFrame, decode_acquire};
pub use code::{Class, ErrorCode};
pub use lease::Lease;
pub use name::{LockName, NAME_BYTES_MAX};
pub use server::{
    ACQUIRED_BYTES, ERROR_BYTES_MAX, ErrorFrame, ServerFrame, UnknownFrame, WAITING, acquired,
    decode_server_frame,
};
pub use session::{HEARTBEAT, SessionInput, decode_session};
pub use token::Token;

/// The version that an ACQUIRE names.
pub const VERSION: u8 = 1;

/// Message types: the first byte of each frame.
mod kind {
    pub(crate) const ACQUIRE: u8 = 0x01;
    pub(crate) const HEARTBEAT: u8 = 0x02;
    pub(crate) const WAITING: u8 = 0x11;
    pub(crate) const ACQUIRED: u8 = 0x12;
    pub(crate) const ERROR: u8 = 0x13;
}
