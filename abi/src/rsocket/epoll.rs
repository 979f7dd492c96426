//! `repoll_create`, `repoll_ctl`, `repoll_wait`: epoll with sockets among the descriptors.
//!
//! The descriptor is an epoll of the system's, in which are
//! - a second one, with the program's other descriptors: the system watches those as it does without us;
//! - of each socket the descriptor that says that something may have changed;
//! - an event that other threads raise when they change the list.
//!
//! A wait looks at each socket, as `rpoll` does.

use core::ffi::c_int;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use libc::epoll_event;
use rustix::event::EventfdFlags;

use super::sys;
use super::table::{self, Socket};
use crate::errno::{Errno, minus_one, or_minus_one};
use crate::layout::array_mut;
use crate::lock::{lock, whole};

/// Of the events, those that `poll` has too, with the same numbers.
const POLLED: u32 = 0x3fff;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
/// What the system returns for the event, where it has the numbers of sockets for sockets.
const KICK: u64 = u64::MAX;
const OTHERS: u64 = u64::MAX - 1;
/// Descriptors that became readable, at a time.
const WOKEN_MAX: usize = 32;

struct Epoll {
    all: OwnedFd,
    others: OwnedFd,
    kick: OwnedFd,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    sockets: BTreeMap<RawFd, Entry>,
    /// The socket that was reported last: the next look begins behind it.
    last: RawFd,
    /// Which kind is reported first: a short list of results has room for one alone.
    others_first: bool,
}

struct Entry {
    socket: Weak<Socket>,
    /// 0 after a report to one that wants only one.
    events: u32,
    data: u64,
    /// What held at the last look, and what had happened by the last report.
    seen: u32,
    turns: [u32; 2],
    /// The descriptor that the system watches for it.
    watched: Option<RawFd>,
}

type Table = RwLock<HashMap<RawFd, Arc<Epoll>>>;

fn all_epolls() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::default)
}

fn find(fd: RawFd) -> Result<Arc<Epoll>, Errno> {
    let table = whole(all_epolls().read());
    // As epoll says of another kind of descriptor.
    table.get(&fd).cloned().ok_or(Errno::INVAL)
}

/// For `rclose`. `EBADF` if the descriptor is not one of these.
pub(super) fn close(fd: RawFd) -> Result<(), Errno> {
    let mut table = whole(all_epolls().write());
    table.remove(&fd).map(drop).ok_or(Errno(libc::EBADF))
}

pub(crate) unsafe extern "C" fn repoll_create(flags: c_int) -> c_int {
    or_minus_one(Epoll::new(flags).map(|epoll| {
        let fd = epoll.all.as_raw_fd();
        whole(all_epolls().write()).insert(fd, Arc::new(epoll));
        fd
    }))
}

pub(crate) unsafe extern "C" fn repoll_ctl(
    epoll: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: an event or null, by the rules of the function; it need not be aligned.
    let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
    minus_one(find(epoll).and_then(|epoll| epoll.change(op, fd, event)))
}

pub(crate) unsafe extern "C" fn repoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    events_max: c_int,
    timeout_ms: c_int,
) -> c_int {
    let found = find(epoll).and_then(|epoll| {
        let room = usize::try_from(events_max).unwrap_or(0);
        if room == 0 || events.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: room for so many, by the rules of the function.
        epoll.wait(unsafe { array_mut(events, room) }, timeout_ms)
    });
    or_minus_one(found.map(|count| count as c_int))
}

impl Epoll {
    fn new(flags: c_int) -> Result<Epoll, Errno> {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(Errno::INVAL);
        }
        let epoll = Epoll {
            all: sys::epoll_with(flags)?,
            others: sys::epoll()?,
            kick: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            list: Mutex::default(),
        };
        let input = libc::EPOLLIN as u32;
        epoll.watch(epoll.others.as_raw_fd(), input, OTHERS)?;
        // One waiting thread for each time that it is raised.
        epoll.watch(epoll.kick.as_raw_fd(), input | EDGE, KICK)?;
        Ok(epoll)
    }

    fn watch(&self, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
        let event = epoll_event { events, u64: data };
        sys::epoll_ctl(self.all.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, Some(event))
    }

    fn unwatch(&self, entry: &Entry) {
        if let Some(fd) = entry.watched {
            // Of a socket that was closed it is gone already.
            let _ = sys::epoll_ctl(self.all.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, None);
        }
    }

    /// Lets a waiting thread look at the list again.
    fn kick(&self) {
        // It fails after 2^64 times.
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }

    fn change(&self, op: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<(), Errno> {
        if fd == self.all.as_raw_fd() {
            return Err(Errno::INVAL);
        }
        let Ok(socket) = table::find(fd) else {
            return sys::epoll_ctl(self.others.as_raw_fd(), op, fd, event);
        };
        let mut list = lock(&self.list);
        list.forget_closed();
        let is_known = list.sockets.contains_key(&fd);
        match op {
            libc::EPOLL_CTL_ADD if is_known => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_ADD => {}
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_known => {
                return Err(Errno(libc::ENOENT));
            }
            libc::EPOLL_CTL_MOD => {}
            libc::EPOLL_CTL_DEL => {
                if let Some(entry) = list.sockets.remove(&fd) {
                    self.unwatch(&entry);
                }
                return Ok(());
            }
            _ => return Err(Errno::INVAL),
        }
        let event = event.ok_or(Errno(libc::EFAULT))?;
        let entry = list.sockets.entry(fd).or_insert_with(|| Entry {
            socket: Arc::downgrade(&socket),
            events: 0,
            data: 0,
            seen: 0,
            turns: [0; 2],
            watched: None,
        });
        // Errors and the end are told to all.
        entry.events = event.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        entry.data = event.u64;
        entry.seen = 0;
        drop(list);
        self.kick();
        Ok(())
    }

    fn wait(&self, out: &mut [epoll_event], timeout_ms: c_int) -> Result<usize, Errno> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // What happens to a socket raises an event only after that was asked for.
        let mut is_armed = false;
        loop {
            let found = self.look(out)?;
            if found > 0 || timeout_ms == 0 {
                return Ok(found);
            }
            // A connection that was made meanwhile is waited for at another descriptor.
            let has_moved = self.arm()?;
            if has_moved || !is_armed {
                is_armed = true;
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left_ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000) as c_int);
            let mut woken = [epoll_event { events: 0, u64: 0 }; WOKEN_MAX];
            let count = sys::epoll_wait(self.all.as_raw_fd(), &mut woken, left_ms)?;
            if count == 0 {
                return Ok(0);
            }
            is_armed = false;
            self.disarm(&woken[..count]);
        }
    }

    /// Asks each socket to raise an event. True if one of them does so at another descriptor than before.
    fn arm(&self) -> Result<bool, Errno> {
        let mut list = lock(&self.list);
        let mut has_moved = false;
        for (&fd, entry) in &mut list.sockets {
            let Some(socket) = entry
                .socket
                .upgrade()
                .filter(|_| entry.events & POLLED != 0)
            else {
                // What is not asked for is not to wake us again and again.
                self.unwatch(entry);
                entry.watched = None;
                continue;
            };
            let at = socket.arm()?;
            if entry.watched != Some(at) {
                self.unwatch(entry);
                entry.watched = Some(at);
                has_moved = true;
                self.watch(at, libc::EPOLLIN as u32, fd as u64)?;
            }
        }
        Ok(has_moved)
    }

    /// Takes the events that woke us.
    fn disarm(&self, woken: &[epoll_event]) {
        let list = lock(&self.list);
        for event in woken {
            let entry = RawFd::try_from(event.u64)
                .ok()
                .and_then(|fd| list.sockets.get(&fd));
            if let Some(socket) = entry.and_then(|entry| entry.socket.upgrade()) {
                socket.disarm();
            }
        }
    }

    /// What there is to report, without waiting.
    fn look(&self, out: &mut [epoll_event]) -> Result<usize, Errno> {
        let mut list = lock(&self.list);
        list.forget_closed();
        list.others_first = !list.others_first;
        let others = |out: &mut [epoll_event]| sys::epoll_wait(self.others.as_raw_fd(), out, 0);
        let mut count = 0;
        if list.others_first {
            count = others(out)?;
        }
        count += list.look(&mut out[count..]);
        if !list.others_first && count < out.len() {
            count += others(&mut out[count..])?;
        }
        if count == out.len() {
            // There may be more, for another thread.
            self.kick();
        }
        Ok(count)
    }
}

impl List {
    /// Numbers of closed sockets may be those of others by now.
    fn forget_closed(&mut self) {
        self.sockets.retain(|&fd, entry| {
            let now = table::find(fd).ok();
            now.is_some_and(|now| std::ptr::eq(Arc::as_ptr(&now), entry.socket.as_ptr()))
        });
    }

    fn look(&mut self, out: &mut [epoll_event]) -> usize {
        let mut count = 0;
        let behind: Vec<RawFd> = {
            let first = self.sockets.range((Excluded(self.last), Unbounded));
            let rest = self.sockets.range(..=self.last);
            first.chain(rest).map(|(fd, _)| *fd).collect()
        };
        for fd in behind {
            if count == out.len() {
                break;
            }
            if let Some(event) = self.sockets.get_mut(&fd).and_then(Entry::look) {
                out[count] = event;
                count += 1;
                self.last = fd;
            }
        }
        count
    }
}

impl Entry {
    /// What there is to report.
    fn look(&mut self) -> Option<epoll_event> {
        let socket = self.socket.upgrade()?;
        let wanted = self.events & POLLED;
        if wanted == 0 {
            return None;
        }
        let found = u32::from(socket.ready(wanted as i16).cast_unsigned());
        let turns = socket.turns();
        let is_due = if self.events & EDGE == 0 {
            found != 0
        } else {
            self.is_edge(found, turns)
        };
        self.seen = found;
        if !is_due {
            return None;
        }
        self.turns = turns;
        if self.events & ONE_SHOT != 0 {
            self.events &= !POLLED;
        }
        Some(epoll_event {
            events: found,
            u64: self.data,
        })
    }

    /// Something holds that did not at the last look, or of which there is more.
    fn is_edge(&self, found: u32, [news, stalls]: [u32; 2]) -> bool {
        let has_more = news != self.turns[0] && found & !OUT != 0;
        let has_room = stalls != self.turns[1] && found & OUT != 0;
        found & !self.seen != 0 || has_more || has_room
    }
}
