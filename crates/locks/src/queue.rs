//! The queue of one lock: in order, with suspects aside.
//!
//! Three parts, all ordered by sequence number. The *line* is a doubly linked list through the session
//! records: every claim starts here, and every step on it is O(1). A *suspect* moves aside to an ordered map,
//! and one that comes back moves to another, since the line has no cheap way to find its old place; promotion
//! compares the heads of the line and of the returned. Only suspects pay O(log n).

use std::collections::BTreeMap;

use crate::record::{Place, Session};
use crate::slab::{NONE, Slab};

#[derive(Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
    /// Allocated while there is something in it.
    aside: Option<Box<Aside>>,
}

/// Sequence number → session.
type Ordered = BTreeMap<u64, u32>;

#[derive(Debug, Default)]
struct Aside {
    suspects: Ordered,
    returned: Ordered,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { head: NONE, tail: NONE, len: 0, aside: None }
    }

    /// How many wait, suspects included.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a new waiter at the end of the line.
    pub(crate) fn push_back<C>(&mut self, sessions: &mut Slab<Session<C>>, at: u32) {
        let tail = std::mem::replace(&mut self.tail, at);
        sessions[at].waiter_mut().place = Place::Line { prev: tail, next: NONE };
        match tail {
            NONE => self.head = at,
            _ => *next_of(sessions, tail) = at,
        }
        self.len += 1;
    }

    /// Takes a waiter out, wherever it stands.
    pub(crate) fn remove<C>(&mut self, sessions: &mut Slab<Session<C>>, at: u32) {
        self.detach(sessions, at);
        self.len -= 1;
    }

    /// Moves a waiter aside: it keeps its place and is passed over.
    pub(crate) fn set_aside<C>(&mut self, sessions: &mut Slab<Session<C>>, at: u32) {
        self.detach(sessions, at);
        let waiter = sessions[at].waiter_mut();
        waiter.place = Place::Suspect;
        self.aside.get_or_insert_default().suspects.insert(waiter.sequence, at);
    }

    /// Gives a suspect its old place back.
    pub(crate) fn bring_back<C>(&mut self, sessions: &mut Slab<Session<C>>, at: u32) {
        self.detach(sessions, at);
        let waiter = sessions[at].waiter_mut();
        waiter.place = Place::Returned;
        self.aside.get_or_insert_default().returned.insert(waiter.sequence, at);
    }

    /// The first waiter that is not suspect.
    pub(crate) fn first<C>(&self, sessions: &Slab<Session<C>>) -> Option<u32> {
        let line = (self.head != NONE).then_some(self.head);
        let Some(aside) = &self.aside else { return line };
        match (line, aside.returned.first_key_value()) {
            (Some(head), Some((&sequence, _))) if sessions[head].waiter().sequence < sequence => line,
            (_, Some((_, &returned))) => Some(returned),
            (_, None) => line,
        }
    }

    /// All waiters in order, suspects included.
    pub(crate) fn iter<'a, C>(&'a self, sessions: &'a Slab<Session<C>>) -> impl Iterator<Item = u32> + 'a {
        let after = |at: u32| match sessions[at].waiter().place {
            Place::Line { next, .. } if next != NONE => Some(next),
            _ => None,
        };
        let line = std::iter::successors((self.head != NONE).then_some(self.head), move |&at| after(at));
        let mut line = line.map(|at| (sessions[at].waiter().sequence, at)).peekable();
        let aside = self.aside.iter().flat_map(|aside| [&aside.suspects, &aside.returned]);
        let mut parts: Vec<_> = aside.map(|part| part.iter().map(|(&s, &at)| (s, at)).peekable()).collect();
        std::iter::from_fn(move || {
            let first_aside = parts.iter_mut().filter_map(|part| part.peek().copied()).min();
            match (line.peek().copied(), first_aside) {
                (Some(in_line), Some(aside)) if aside < in_line => advance(&mut parts, aside),
                (None, Some(aside)) => advance(&mut parts, aside),
                _ => line.next().map(|(_, at)| at),
            }
        })
    }

    fn detach<C>(&mut self, sessions: &mut Slab<Session<C>>, at: u32) {
        let waiter = sessions[at].waiter();
        let sequence = waiter.sequence;
        match waiter.place {
            Place::Line { prev, next } => self.unlink(sessions, prev, next),
            Place::Suspect => self.forget(at, sequence, |aside| &mut aside.suspects),
            Place::Returned => self.forget(at, sequence, |aside| &mut aside.returned),
        }
    }

    fn unlink<C>(&mut self, sessions: &mut Slab<Session<C>>, prev: u32, next: u32) {
        match prev {
            NONE => self.head = next,
            _ => *next_of(sessions, prev) = next,
        }
        match next {
            NONE => self.tail = prev,
            _ => *prev_of(sessions, next) = prev,
        }
    }

    fn forget(&mut self, at: u32, sequence: u64, part: fn(&mut Aside) -> &mut Ordered) {
        let aside = self.aside.as_mut().expect("a waiter aside is in a map");
        let removed = part(aside).remove(&sequence);
        assert_eq!(removed, Some(at), "a waiter aside is in the map of its place");
        if aside.suspects.is_empty() && aside.returned.is_empty() {
            self.aside = None;
        }
    }
}

fn advance(
    parts: &mut [std::iter::Peekable<impl Iterator<Item = (u64, u32)>>],
    first: (u64, u32),
) -> Option<u32> {
    parts.iter_mut().find_map(|part| part.next_if_eq(&first)).map(|(_, at)| at)
}

fn next_of<C>(sessions: &mut Slab<Session<C>>, at: u32) -> &mut u32 {
    match &mut sessions[at].waiter_mut().place {
        Place::Line { next, .. } => next,
        place => panic!("the line leads to a waiter that is {place:?}"),
    }
}

fn prev_of<C>(sessions: &mut Slab<Session<C>>, at: u32) -> &mut u32 {
    match &mut sessions[at].waiter_mut().place {
        Place::Line { prev, .. } => prev,
        place => panic!("the line leads to a waiter that is {place:?}"),
    }
}
