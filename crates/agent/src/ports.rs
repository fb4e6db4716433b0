//! Whether somebody listens on a port, asked of the kernel (sock_diag over netlink): a server that was
//! started by hand has handed over nothing.
//!
//! The answer is for this network namespace, whatever address the listener has.

use std::io::{self, ErrorKind};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// The kernel answers at once.
const KERNEL_TIME_MAX: Duration = Duration::from_millis(200);

/// A dump comes in packets of up to 32 KiB.
const PACKET_BYTES_MAX: usize = 1 << 16;

/// The first of these ports that somebody listens on.
///
/// # Errors
///
/// The kernel does not tell.
pub(crate) fn listened_on(ports: &[u16]) -> io::Result<Option<u16>> {
    for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        for &port in ports {
            let socket_id = SocketId { source_port: port, ..any.clone() };
            if is_listened_on(port, family, socket_id)? {
                return Ok(Some(port));
            }
        }
    }
    Ok(None)
}

/// A socket for each question: what is left of an earlier answer cannot be taken for this one.
fn is_listened_on(port: u16, family: u8, socket_id: SocketId) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(KERNEL_TIME_MAX))?;
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::LISTEN,
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(&socket, &bytes, SendFlags::empty())?;
    found_in_answer(&socket, port)
}

/// Reads the dump to its end.
fn found_in_answer(socket: &OwnedFd, port: u16) -> io::Result<bool> {
    let mut found = false;
    let mut packet = vec![0; PACKET_BYTES_MAX];
    loop {
        let (_, len) = recv(socket, &mut packet[..], RecvFlags::empty())?;
        let mut rest = packet.get(..len).ok_or_else(not_understood)?;
        while !rest.is_empty() {
            let message =
                NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(|_| not_understood())?;
            if message.header.flags & NLM_F_DUMP_INTR != 0 {
                return Err(io::Error::new(ErrorKind::Interrupted, "sockets changed while they were listed"));
            }
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    found |= response.header.socket_id.source_port == port;
                }
                NetlinkPayload::Done(done) if done.code == 0 => return Ok(found),
                NetlinkPayload::Done(done) => return Err(io::Error::from_raw_os_error(-done.code)),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => return Err(not_understood()),
            }
            // Messages are aligned to four bytes.
            let len = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(len..).unwrap_or_default();
        }
    }
}

fn not_understood() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the kernel's answer about sockets is not understood")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::sleep;

    use super::*;

    #[test]
    fn a_listener_is_seen_on_ipv4_and_ipv6_and_not_when_it_has_gone() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            assert_eq!(listened_on(&[1, port]).unwrap(), Some(port), "{address}");
            drop(listener);
            // Other tests take ports from the same range, this one too.
            let is_free = || listened_on(&[1, port]).unwrap().is_none();
            assert!(
                is_free()
                    || (0..1000).any(|_| {
                        sleep(Duration::from_millis(1));
                        is_free()
                    }),
                "{address}"
            );
        }
    }

    #[test]
    fn a_connection_without_a_listener_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let served = listener.accept().unwrap();
        drop(listener);
        assert_eq!(listened_on(&[port, client.local_addr().unwrap().port()]).unwrap(), None);
        drop(served);
    }

    #[test]
    fn one_listener_among_many_is_found() {
        let many: Vec<_> = (0..400).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = many[399].local_addr().unwrap().port();
        assert_eq!(listened_on(&[port]).unwrap(), Some(port));
    }
}
