//! The thread that hears from the kernel which addresses come and go (rtnetlink).

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::{debug, info, warn};

use super::known::{Known, Place, Stamp};
use super::{Addresses, Shared};
use crate::clock;

/// RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const GROUPS: u32 = 0x10 | 0x100;

/// NLM_F_DUMP_INTR: the list changed while it was made.
const INTERRUPTED: u16 = 0x10;

/// How long after an address came it is listed once more: then a second stay would have another stamp.
const CONFIRM_AFTER: Duration = Duration::from_secs(2);

/// How long after a failure the kernel is asked anew.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The pause before a list that changed while it was made is asked for anew.
const LIST_AGAIN_AFTER: Duration = Duration::from_millis(10);

const NS_PER_STAMP: u64 = 10_000_000;

/// Starts the thread, and waits until it knows the addresses that are there. After each departure it calls
/// `wake`.
///
/// Where the kernel does not tell (a sandbox without netlink), a warning says what is lost.
pub(crate) fn start(addresses: Shared, wake: impl Fn() + Send + 'static) -> io::Result<()> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    threads::start("addresses", move || {
        let mut known = Known::default();
        let mut ready = Some(ready);
        loop {
            let watched = watch(&mut known, &addresses, &wake, &mut ready);
            addresses.is_watched.store(false, std::sync::atomic::Ordering::Relaxed);
            let Err(error) = watched;
            // The starter waits only for the first try.
            if let Some(ready) = ready.take() {
                warn!(
                    %error,
                    "the kernel does not tell which addresses leave this host: sessions on one that moves away \
                     end by their leases only"
                );
                drop(ready);
            }
            thread::sleep(RETRY_AFTER);
        }
    })?;
    // An error here is the end of the first try.
    let _ = is_ready.recv();
    Ok(())
}

/// Watches until something fails; what was missed until the next watch comes out of its list.
fn watch(
    known: &mut Known,
    addresses: &Addresses,
    wake: &dyn Fn(),
    ready: &mut Option<std::sync::mpsc::Sender<()>>,
) -> io::Result<std::convert::Infallible> {
    let mut messages = Messages::open()?;
    let mut were_lost = true;
    loop {
        let (all, lost_meanwhile) = messages.list()?;
        let left = known.is_all(&all, now(), were_lost || lost_meanwhile);
        addresses.is_watched.store(true, std::sync::atomic::Ordering::Relaxed);
        tell(left, known, addresses, wake);
        if !known.has_fresh() {
            debug!("every local address has been here for a while");
        }
        drop(ready.take());
        loop {
            let patience = known.has_fresh().then_some(CONFIRM_AFTER);
            let changes = match messages.next(patience)? {
                Next::Changes(changes) => changes,
                next => {
                    were_lost = matches!(next, Next::Lost);
                    break;
                }
            };
            let mut left = Vec::new();
            for change in changes {
                left.extend(match change {
                    Change::Is(place, came) => known.has(place, came, now()),
                    Change::IsNot(place) => known.has_lost(place),
                });
            }
            tell(left, known, addresses, wake);
        }
    }
}

fn tell(left: Vec<IpAddr>, known: &Known, addresses: &Addresses, wake: &dyn Fn()) {
    let is_news = !left.is_empty();
    for address in &left {
        info!(%address, "a local address has left: sessions on it end, and their locks stay reserved");
    }
    addresses.change(left, known.addresses());
    if is_news {
        wake();
    }
}

fn now() -> Stamp {
    // It wraps as the kernel's stamps do.
    (clock::monotonic_ns() / NS_PER_STAMP) as Stamp
}

/// What the kernel says of an address.
enum Change {
    Is(Place, Stamp),
    IsNot(Place),
}

/// What came of waiting.
enum Next {
    Changes(Vec<Change>),
    /// Nobody came and nobody left for a while.
    Nothing,
    /// Some messages were lost.
    Lost,
}

/// The kernel's messages.
struct Messages {
    socket: Socket,
    /// What came while the list was read.
    early: Vec<Change>,
}

impl Messages {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, early: Vec::new() })
    }

    /// All addresses. Changes that come in between are kept for [`Messages::next`]: they may be part of the
    /// list, or newer.
    /// And whether messages were lost meanwhile.
    fn list(&mut self) -> io::Result<(Vec<(Place, Stamp)>, bool)> {
        let mut were_lost = false;
        loop {
            self.early.clear();
            self.ask_for_list()?;
            if let Some(all) = self.read_list()? {
                return Ok((all, were_lost));
            }
            were_lost = true;
            // Addresses come and go faster than they can be listed.
            thread::sleep(LIST_AGAIN_AFTER);
        }
    }

    fn ask_for_list(&self) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let payload = NetlinkPayload::from(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
        let mut request = NetlinkMessage::new(header, payload);
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// None when the list was cut short or changed while it was made.
    fn read_list(&mut self) -> io::Result<Option<Vec<(Place, Stamp)>>> {
        let (mut all, mut is_whole) = (Vec::new(), true);
        loop {
            let Some(messages) = self.receive()? else { return Ok(None) };
            // What is not understood has no address that this program could have a connection on.
            for message in messages.into_iter().flatten() {
                is_whole &= message.header.flags & INTERRUPTED == 0;
                let is_of_list = message.header.flags & NLM_F_MULTI != 0;
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(is_whole.then_some(all)),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => match change(inner) {
                        Some(Change::Is(place, came)) if is_of_list => all.push((place, came)),
                        Some(change) => self.early.push(change),
                        None => {}
                    },
                    _ => {}
                }
            }
        }
    }

    /// What comes next, at most after `patience`.
    fn next(&mut self, patience: Option<Duration>) -> io::Result<Next> {
        if !self.early.is_empty() {
            return Ok(Next::Changes(std::mem::take(&mut self.early)));
        }
        if !self.is_readable_within(patience)? {
            return Ok(Next::Nothing);
        }
        let Some(messages) = self.receive()? else { return Ok(Next::Lost) };
        let mut changes = Vec::new();
        for message in messages {
            // One that is not understood may be a departure.
            let Some(message) = message else { return Ok(Next::Lost) };
            if let NetlinkPayload::InnerMessage(inner) = message.payload {
                changes.extend(change(inner));
            }
        }
        Ok(Next::Changes(changes))
    }

    fn is_readable_within(&self, patience: Option<Duration>) -> io::Result<bool> {
        let Some(patience) = patience else { return Ok(true) };
        let timeout = Timespec::try_from(patience).expect("some seconds");
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The messages of one datagram, those that are not understood as nothing; none at all when some were
    /// lost.
    fn receive(&self) -> io::Result<Option<Vec<Option<NetlinkMessage<RouteNetlinkMessage>>>>> {
        let (bytes, from) = match self.socket.recv_from_full() {
            Ok(received) => received,
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Some(Vec::new())),
            Err(error) => return Err(error),
        };
        // Others on this host could send something too.
        if from.port_number() != 0 {
            return Ok(Some(Vec::new()));
        }
        let (mut rest, mut messages) = (&bytes[..], Vec::new());
        while rest.len() >= HEADER_LEN {
            let len = u32::from_ne_bytes(rest[..4].try_into().expect("four bytes")) as usize;
            if len < HEADER_LEN || len > rest.len() {
                break;
            }
            messages.push(NetlinkMessage::deserialize(&rest[..len]).ok());
            rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        }
        Ok(Some(messages))
    }
}

/// Of a netlink message.
const HEADER_LEN: usize = 16;

/// A part of a list: NLM_F_MULTI.
const NLM_F_MULTI: u16 = 2;

fn change(message: RouteNetlinkMessage) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewAddress(message) => {
            let (place, came) = place(&message)?;
            Some(Change::Is(place, came))
        }
        RouteNetlinkMessage::DelAddress(message) => place(&message).map(|(place, _)| Change::IsNot(place)),
        _ => None,
    }
}

/// Where an address is, and since when.
fn place(message: &AddressMessage) -> Option<(Place, Stamp)> {
    let (mut address, mut local, mut came) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            // Of a line between two hosts: the own end.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::CacheInfo(info) => came = info.cstamp,
            _ => {}
        }
    }
    Some((Place { interface: message.header.index, address: local.or(address)? }, came))
}
