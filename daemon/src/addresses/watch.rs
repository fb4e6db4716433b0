//! The thread that hears from the kernel which addresses come and go (rtnetlink).

use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use tokio::runtime::Handle;
use tracing::{debug, info, warn};

use super::known::{Known, Place, Stamp};
use super::{LocalAddress, Shared};

/// RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR.
const GROUPS: u32 = 0x10 | 0x100;

/// Of the socket: more than a thousand changes, where the kernel's default holds some 250. Without privileges
/// the kernel gives less.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// How long after a failure the kernel is asked anew.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The pause before a list that changed while it was made is asked for anew.
const LIST_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// How long the kernel may take for a part of a list, and the start of the server for the first one. It takes
/// microseconds.
const LIST_TIME_MAX: Duration = Duration::from_secs(2);

/// Starts the thread, and waits until it knows the addresses that are there. After each departure it calls
/// `wake`.
///
/// Where the kernel does not tell (a sandbox without netlink), a warning says what is lost, and it is asked
/// again and again.
pub(crate) fn start(addresses: Shared, wake: impl Fn() + Send + 'static) -> io::Result<()> {
    let (ready, is_ready) = mpsc::channel();
    addresses.runtime.get_or_init(Handle::current);
    let known = Known::default();
    let watch = Watch { known, addresses, wake: Box::new(wake), ready: Some(ready), is_down: false };
    threads::start("addresses", move || watch.run())?;
    // An error is the end of the first try, or one that takes too long for a server to wait for.
    let _ = is_ready.recv_timeout(LIST_TIME_MAX);
    Ok(())
}

struct Watch {
    known: Known,
    addresses: Shared,
    wake: Box<dyn Fn() + Send>,
    /// For the starter, who waits for the first try only.
    ready: Option<mpsc::Sender<()>>,
    /// The log knows that it does not work.
    is_down: bool,
}

impl Watch {
    fn run(mut self) {
        loop {
            if let Err(error) = self.watch() {
                self.addresses.watched(false);
                if !mem::replace(&mut self.is_down, true) {
                    warn!(
                        %error,
                        "the kernel does not tell which addresses leave this host: sessions on one that moves \
                         away end by their leases only"
                    );
                }
                self.ready = None;
                thread::sleep(RETRY_AFTER);
            }
            // What was missed until the next watch comes out of its list.
            self.known.were_lost();
        }
    }

    /// Watches until messages are lost. Then a new socket is better than this one: the kernel drops more of
    /// them, and says nothing, until all that is queued has been read; and what is queued tells of the past.
    fn watch(&mut self) -> io::Result<()> {
        let mut messages = Messages::open()?;
        loop {
            match messages.list()? {
                List::Whole(all) => {
                    let left = self.known.is_all(&all, Instant::now());
                    self.addresses.replace(&left, self.known.addresses());
                    self.tell(&left);
                    break;
                }
                // Addresses come and go faster than they can be listed: who goes is heard of all the same.
                List::Interrupted => self.apply(mem::take(&mut messages.early)),
                List::Lost => {
                    thread::sleep(LIST_AGAIN_AFTER);
                    return Ok(());
                }
            }
            thread::sleep(LIST_AGAIN_AFTER);
        }
        self.addresses.watched(true);
        self.ready = None;
        if mem::take(&mut self.is_down) {
            info!("the kernel tells again which addresses leave this host");
        }
        self.apply(mem::take(&mut messages.early));
        loop {
            match messages.next(self.known.settles_at())? {
                Next::Changes(changes) => self.apply(changes),
                Next::Nothing => {
                    self.known.settle(Instant::now());
                    if self.known.settles_at().is_none() {
                        debug!("every local address has been here for a while");
                    }
                }
                Next::Lost => {
                    debug!("messages about addresses were lost: they are listed anew");
                    return Ok(());
                }
            }
        }
    }

    fn apply(&mut self, changes: Vec<Change>) {
        let now = Instant::now();
        let (mut left, mut touched) = (Vec::new(), Vec::new());
        for change in changes {
            let (Change::Is(place, came) | Change::IsNot(place, came)) = change;
            left.extend(match change {
                Change::Is(..) => self.known.has(place, came, now),
                Change::IsNot(..) => self.known.has_lost(place, came),
            });
            touched.push(place.address);
        }
        let here = touched.into_iter().map(|address| (address, self.known.is_here(address)));
        self.addresses.change(&left, here);
        self.tell(&left);
    }

    fn tell(&self, left: &[LocalAddress]) {
        for address in left {
            // Most of them no session was ever on; the shards log what they end.
            debug!(address = %address.ip, "a local address has left");
        }
        if !left.is_empty() {
            (self.wake)();
        }
    }
}

/// What the kernel says of an address.
#[derive(Clone, Copy)]
enum Change {
    Is(Place, Stamp),
    IsNot(Place, Stamp),
}

/// What came of waiting.
enum Next {
    Changes(Vec<Change>),
    /// Nobody came and nobody left until then, and nothing was lost.
    Nothing,
    Lost,
}

/// What came of a list.
enum List {
    Whole(Vec<(Place, Stamp)>),
    /// It changed while it was made. Some may be missing in it.
    Interrupted,
    Lost,
}

/// The kernel's messages, from the opening on.
struct Messages {
    socket: Socket,
    /// What came while the list was read: it may be part of the list, or newer.
    early: Vec<Change>,
}

impl Messages {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let _ = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
            .or_else(|_| set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES));
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, early: Vec::new() })
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

    /// All addresses.
    fn list(&mut self) -> io::Result<List> {
        self.ask_for_list()?;
        let (mut all, mut is_whole) = (Vec::new(), true);
        loop {
            if !self.is_readable_by(Instant::now() + LIST_TIME_MAX)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let Some(messages) = self.receive()? else { return Ok(List::Lost) };
            // What is not understood has no address that this program could have a connection on.
            for message in messages.into_iter().flatten() {
                is_whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
                let is_of_list = message.header.flags & NLM_F_MULTIPART != 0;
                match message.payload {
                    NetlinkPayload::Done(_) if is_whole => return Ok(List::Whole(all)),
                    NetlinkPayload::Done(_) => return Ok(List::Interrupted),
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

    /// What comes next, at most until then.
    fn next(&mut self, until: Option<Instant>) -> io::Result<Next> {
        if let Some(until) = until
            && !self.is_readable_by(until)?
        {
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

    /// Whether something comes until then, a loss included.
    fn is_readable_by(&self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).expect("some seconds");
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
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

fn change(message: RouteNetlinkMessage) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewAddress(message) => {
            place(&message).map(|(place, came)| Change::Is(place, came))
        }
        RouteNetlinkMessage::DelAddress(message) => {
            place(&message).map(|(place, came)| Change::IsNot(place, came))
        }
        _ => None,
    }
}

/// Where an address is, and since when.
fn place(message: &AddressMessage) -> Option<(Place, Stamp)> {
    let (mut address, mut local, mut came) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            // Of a line between two hosts: the own end.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::CacheInfo(info) => came = Some(info.cstamp),
            _ => {}
        }
    }
    let (interface, prefix) = (message.header.index, message.header.prefix_len);
    let own = local.or(address)?;
    let place =
        Place { address: LocalAddress::on(own, interface), interface, prefix, peer: address.unwrap_or(own) };
    Some((place, came?))
}
