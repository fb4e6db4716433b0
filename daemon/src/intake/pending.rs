//! The connections in set-up of one intake thread: bounded in number, the silent ones make room for new ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

use super::socket::WeakSocket;

/// How many of the oldest are asked whether they make room. Only one whose bytes wait for this thread does
/// not, and then the ones behind it hardly do.
const ASKED_MAX: usize = 16;

/// All connections in set-up, in the order in which they came.
#[derive(Debug)]
pub(super) struct PendingList {
    max: usize,
    next: RefCell<u64>,
    sockets: RefCell<BTreeMap<u64, WeakSocket>>,
    left: Notify,
}

/// A connection's entry in the list, for as long as it is in set-up.
#[derive(Debug)]
pub(super) struct Pending {
    number: u64,
    list: Rc<PendingList>,
}

impl PendingList {
    pub(super) fn new(max: usize) -> Rc<Self> {
        Rc::new(Self { max, next: RefCell::default(), sockets: RefCell::default(), left: Notify::new() })
    }

    /// Enters a connection.
    pub(super) fn enter(self: &Rc<Self>, socket: WeakSocket) -> Pending {
        let number = *self.next.borrow();
        *self.next.borrow_mut() += 1;
        self.sockets.borrow_mut().insert(number, socket);
        Pending { number, list: Rc::clone(self) }
    }

    /// Makes room for one more: where there is none, the oldest connection whose peer owes us the next bytes
    /// is shut down. False if all are waiting for this thread: then it takes no more until it is done with
    /// one.
    pub(super) fn make_room(&self) -> bool {
        let mut sockets = self.sockets.borrow_mut();
        if sockets.len() < self.max {
            return true;
        }
        let silent = sockets.iter().take(ASKED_MAX).find(|(_, socket)| socket.shut_down_if_silent());
        let silent = silent.map(|(&number, _)| number);
        silent.is_some_and(|number| sockets.remove(&number).is_some())
    }

    /// Waits until a connection leaves.
    pub(super) async fn one_left(&self) {
        self.left.notified().await;
    }
}

impl Pending {
    /// Whether this connection was shut down for another one.
    pub(super) fn has_made_room(&self) -> bool {
        !self.list.sockets.borrow().contains_key(&self.number)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.list.sockets.borrow_mut().remove(&self.number);
        self.list.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::intake::socket::Socket;

    /// A connection's two ends: ours, and the client's.
    fn connection() -> (Socket, UnixStream) {
        let (ours, client) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        (Socket::new(ours.into()), client)
    }

    fn is_closed(mut client: &UnixStream) -> bool {
        client.read(&mut [0; 1]).is_ok_and(|len| len == 0)
    }

    #[test]
    fn the_oldest_connection_that_owes_us_bytes_makes_room() {
        let list = PendingList::new(3);
        let connections: Vec<_> = (0..3).map(|_| connection()).collect();
        let mut entries: Vec<_> =
            connections.iter().map(|(socket, _)| list.enter(socket.downgrade())).collect();
        let clients: Vec<&UnixStream> = connections.iter().map(|(_, client)| client).collect();
        // The oldest has spoken, and waits for us.
        (&mut &*clients[0]).write_all(b"x").unwrap();
        assert!(list.make_room());
        assert_eq!([0, 1, 2].map(|at| is_closed(clients[at])), [false, true, false]);
        assert_eq!([0, 1, 2].map(|at| entries[at].has_made_room()), [false, true, false]);
        assert!(list.make_room(), "there is room now");
        assert!(!is_closed(clients[2]));
        let (socket, client) = connection();
        entries.push(list.enter(socket.downgrade()));
        entries.remove(1);
        assert!(list.make_room());
        assert!(is_closed(clients[2]) && !is_closed(&client));
    }

    #[tokio::test]
    async fn nobody_makes_room_while_all_wait_for_us_and_the_next_one_that_leaves_does() {
        let list = PendingList::new(2);
        let connections: Vec<_> = (0..2).map(|_| connection()).collect();
        let mut entries: Vec<_> =
            connections.iter().map(|(socket, _)| list.enter(socket.downgrade())).collect();
        connections.iter().for_each(|(_, client)| (&mut &*client).write_all(b"x").unwrap());
        assert!(!list.make_room());
        entries.pop();
        list.one_left().await;
        assert!(list.make_room());
        assert!(connections.iter().all(|(_, client)| !is_closed(client)));
    }
}
