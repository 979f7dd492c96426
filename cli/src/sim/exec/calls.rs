//! What programs ask their simulation for beside verbs.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use fabric_sim::HostId;
use fabric_sim::program::sleep;
use nix::libc;
use urxe::network::remote::{Call, SLEEP};
use urxe::network::{Network, Pause, Ready};

use super::streams::{LATENCY_NS, Look, StreamId, Streams};

/// The same numbers are in `preload/simulated/src/lib.rs`, which says what belongs to each.
const PID: u32 = 16;
const SOCKET: u32 = 17;
const BIND: u32 = 18;
const LISTEN: u32 = 19;
const ACCEPT: u32 = 20;
const CONNECT: u32 = 21;
const SEND: u32 = 22;
const RECEIVE: u32 = 23;
const SHUTDOWN: u32 = 24;
const CLOSE: u32 = 25;
const WAIT: u32 = 26;
const NAME: u32 = 27;
const REFUSED: u32 = 28;

const NO_WAIT: u64 = 1;
const PEEK: u64 = 2;

/// Process ids of the system are smaller.
const PID_MIN: u64 = (1 << 22) + 1;
const PIDS: u64 = 1 << 20;
/// A place of `WAIT`: a stream and the events that are waited for.
const ENTRY: usize = 16;

/// An error number.
type Errno = i32;

/// The calls of one program. Its streams end with this.
pub(super) struct Calls {
    host: HostId,
    network: Arc<dyn Network>,
    streams: Arc<Mutex<Streams>>,
    mine: BTreeSet<StreamId>,
    notes: Vec<String>,
}

/// Something changed about streams since a program looked at them.
#[derive(Debug)]
struct Changed {
    streams: Arc<Mutex<Streams>>,
    ids: Vec<StreamId>,
    changes: u64,
    what: &'static str,
}

impl Ready for Changed {
    fn is_ready(&self) -> bool {
        with(&self.streams, |streams| streams.changes_of(&self.ids)) != self.changes
    }

    fn what(&self) -> String {
        self.what.to_owned()
    }
}

fn with<T>(streams: &Mutex<Streams>, work: impl FnOnce(&mut Streams) -> T) -> T {
    work(&mut streams.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Calls {
    pub(super) fn new(
        host: HostId,
        network: Arc<dyn Network>,
        streams: Arc<Mutex<Streams>>,
    ) -> Calls {
        Calls {
            host,
            network,
            streams,
            mine: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn take_notes(&mut self) -> Vec<String> {
        core::mem::take(&mut self.notes)
    }

    /// 0 or more, or `-errno`.
    pub(super) fn answer(&mut self, call: &mut Call<'_>) -> i64 {
        match self.try_answer(call) {
            Ok(number) => number as i64,
            Err(errno) => -i64::from(errno),
        }
    }

    fn try_answer(&mut self, call: &mut Call<'_>) -> Result<u64, Errno> {
        let [id, first, second] = call.args;
        match call.number {
            SLEEP => {
                sleep(Duration::from_nanos(id));
                return Ok(0);
            }
            PID => return Ok(PID_MIN + self.network.random() % PIDS),
            SOCKET => {
                let id = with(&self.streams, |streams| streams.make(self.host));
                return Ok(self.own(id));
            }
            WAIT => return self.wait(call),
            REFUSED => {
                self.note(String::from_utf8_lossy(call.bytes).into_owned());
                return Ok(0);
            }
            _ => {}
        }
        let id = self.known(id)?;
        let port = || u16::try_from(second).map_err(|_| libc::EINVAL);
        let now = self.network.now_ns();
        match call.number {
            BIND => {
                let port = u16::try_from(first).map_err(|_| libc::EINVAL)?;
                with(&self.streams, |streams| streams.bind(id, port)).map(u64::from)
            }
            LISTEN => with(&self.streams, |streams| streams.listen(id)).map(|()| 0),
            ACCEPT => {
                let look = |streams: &mut Streams, now| streams.accept(id, now);
                let accepted = self.look(&[id], "a connection", first & NO_WAIT == 0, look)?;
                Ok(self.own(accepted))
            }
            CONNECT => {
                let ip = u32::try_from(first).map_err(|_| libc::EINVAL)?;
                let (ip, port) = (Ipv4Addr::from(ip), port()?);
                let connected = with(&self.streams, |streams| streams.connect(id, ip, port, now));
                // There and back.
                sleep(Duration::from_nanos(2 * LATENCY_NS));
                connected.map(|()| 0)
            }
            SEND => {
                let sent = with(&self.streams, |streams| streams.send(id, call.bytes, now));
                sent.map(|()| call.bytes.len() as u64)
            }
            RECEIVE => {
                let (len, stays) = (first as usize, second & PEEK != 0);
                let look = |streams: &mut Streams, now| streams.receive(id, len, stays, now);
                call.out = self.look(&[id], "bytes of a stream", second & NO_WAIT == 0, look)?;
                Ok(call.out.len() as u64)
            }
            SHUTDOWN => with(&self.streams, |streams| streams.shutdown(id, first, now)).map(|()| 0),
            CLOSE => {
                with(&self.streams, |streams| streams.close(id, now));
                self.mine.remove(&id);
                Ok(0)
            }
            NAME => with(&self.streams, |streams| streams.name(id, first != 0)),
            _ => Err(libc::ENOSYS),
        }
    }

    fn own(&mut self, id: StreamId) -> u64 {
        self.mine.insert(id);
        id.0
    }

    fn known(&self, id: u64) -> Result<StreamId, Errno> {
        let id = StreamId(id);
        if self.mine.contains(&id) {
            Ok(id)
        } else {
            Err(libc::EBADF)
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Looks at streams until there is what is looked for.
    fn look<T>(
        &self,
        ids: &[StreamId],
        what: &'static str,
        waits: bool,
        look: impl FnMut(&mut Streams, u64) -> Result<Look<T>, Errno>,
    ) -> Result<T, Errno> {
        let deadline = if waits {
            None
        } else {
            Some(self.network.now_ns())
        };
        self.look_until(ids, what, deadline, look)?
            .ok_or(libc::EAGAIN)
    }

    /// The same until a time; `None` if it is not there then.
    fn look_until<T>(
        &self,
        ids: &[StreamId],
        what: &'static str,
        deadline: Option<u64>,
        mut look: impl FnMut(&mut Streams, u64) -> Result<Look<T>, Errno>,
    ) -> Result<Option<T>, Errno> {
        loop {
            let now = self.network.now_ns();
            let (looked, changes) = with(&self.streams, |streams| {
                (look(streams, now), streams.changes_of(ids))
            });
            let next = match looked? {
                Look::There(found) => return Ok(Some(found)),
                Look::NotBefore(next) => next,
            };
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(None);
            }
            let event = Arc::new(Changed {
                streams: self.streams.clone(),
                ids: ids.to_vec(),
                changes,
                what,
            });
            let pause = Pause::Event {
                event,
                deadline_ns: next.into_iter().chain(deadline).min(),
            };
            self.network.pause(&pause).map_err(|_| libc::EIO)?;
        }
    }

    fn wait(&mut self, call: &mut Call<'_>) -> Result<u64, Errno> {
        let mut ids = Vec::new();
        let mut wanted = Vec::new();
        for entry in call.bytes.chunks_exact(ENTRY) {
            let word = |at: usize| entry[at..at + 8].try_into().map(u64::from_le_bytes);
            ids.push(self.known(word(0).unwrap_or(u64::MAX))?);
            wanted.push(word(8).unwrap_or(0) as i16);
        }
        let time = Some(call.args[0]).filter(|time| *time != u64::MAX);
        let deadline = time.map(|time| self.network.now_ns().saturating_add(time));
        let look = |streams: &mut Streams, now| {
            let each = ids.iter().zip(&wanted);
            let (events, nexts): (Vec<i16>, Vec<Option<u64>>) = each
                .map(|(id, wanted)| streams.events(*id, *wanted, now))
                .unzip();
            Ok(if events.iter().any(|events| *events != 0) {
                Look::There(events)
            } else {
                Look::NotBefore(nexts.into_iter().flatten().min())
            })
        };
        let events = self.look_until(&ids, "events of streams", deadline, look)?;
        let events = events.unwrap_or_else(|| vec![0; ids.len()]);
        for events in &events {
            call.out.extend(u64::from(*events as u16).to_le_bytes());
        }
        Ok(events.iter().filter(|events| **events != 0).count() as u64)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let now = self.network.now_ns();
        with(&self.streams, |streams| {
            for id in core::mem::take(&mut self.mine) {
                streams.close(id, now);
            }
        });
    }
}
