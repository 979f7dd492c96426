//! The simulation's side: what a program's process asks for is done on the real network.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use super::line::{
    ARM, EVENT, Fields, Kind, LOOK, Line, MEMORY, Message, POLL, POST, RETURN, STOPPED, nonsense,
};
use crate::lock::lock;
use crate::network::{Adapter, Driven, Network, Packet, Pause, Ready};

/// Something that a program asks the simulation for, beside verbs.
#[derive(Debug)]
pub struct Call<'a> {
    /// What it is.
    pub number: u32,
    /// Numbers that belong to it.
    pub args: [u64; 3],
    /// Bytes that belong to it.
    pub bytes: &'a [u8],
    /// Bytes that go to the program with the answer.
    pub out: Vec<u8>,
}

/// Does what the process at the other end of `stream` asks for on this network, until it has ended (or has become another program). It is called where
/// a program of the network may be, and is that program. `calls` answers what is not about verbs: a number, or `-errno`; it may let
/// time pass.
///
/// # Errors
/// If the process never joins, does not keep to the protocol, or has another version.
pub fn serve(
    stream: UnixStream,
    network: &Arc<dyn Network>,
    calls: &mut dyn FnMut(&mut Call<'_>) -> i64,
) -> io::Result<()> {
    let proxy = Arc::new(Proxy {
        line: Mutex::new(Line::new(stream)),
        network: network.clone(),
        engines: Mutex::default(),
        is_ready: AtomicBool::new(false),
        is_gone: AtomicBool::new(false),
    });
    // However this ends, even by unwinding: the contexts end with it.
    let _end = End(&proxy);
    let first = lock(&proxy.line).next()?;
    let Some(mut hello) = first else {
        let text = "it ended before urxe's libraries were loaded";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    };
    let version = env!("CARGO_PKG_VERSION");
    if hello.kind != Kind::Hello || hello.bytes()? != version.as_bytes() {
        let text = format!("its libibverbs is not that of urxe {version}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    loop {
        let next = lock(&proxy.line).next()?;
        let Some(mut message) = next else {
            return Ok(());
        };
        match message.kind {
            Kind::Pause => proxy.pause(&mut message)?,
            Kind::Call => {
                let number = u32::try_from(message.number()?).map_err(|_| nonsense())?;
                let args = [message.number()?, message.number()?, message.number()?];
                let bytes = message.bytes()?.to_vec();
                proxy.take_state(&mut message)?;
                let mut call = Call {
                    number,
                    args,
                    bytes: &bytes,
                    out: Vec::new(),
                };
                let result = calls(&mut call);
                let now_ns = network.now_ns();
                lock(&proxy.line).put(Kind::Result, |to| {
                    to.number(now_ns);
                    to.number(result as u64);
                    to.bytes(&call.out);
                });
            }
            _ => proxy.answer(&mut message)?,
        }
    }
}

#[derive(Debug)]
struct Proxy {
    line: Mutex<Line>,
    network: Arc<dyn Network>,
    /// The contexts of the process.
    engines: Mutex<BTreeMap<u64, Arc<RemoteEngine>>>,
    /// What the program waits for is there.
    is_ready: AtomicBool,
    /// The process has ended.
    is_gone: AtomicBool,
}

struct End<'a>(&'a Arc<Proxy>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
        let engines = core::mem::take(&mut *lock(&self.0.engines));
        drop(engines);
    }
}

/// A context of the process, as the network drives it.
#[derive(Debug)]
struct RemoteEngine {
    proxy: Arc<Proxy>,
    id: u64,
    /// As the process said last; the greatest number is never.
    due_ns: AtomicU64,
}

/// What the process waits for: only there can be seen whether it has come.
#[derive(Debug)]
struct RemoteEvent {
    proxy: Arc<Proxy>,
    what: String,
}

impl Ready for RemoteEvent {
    fn is_ready(&self) -> bool {
        self.proxy.is_ready.load(Ordering::Relaxed) || self.proxy.is_gone.load(Ordering::Relaxed)
    }

    fn what(&self) -> String {
        self.what.clone()
    }
}

impl Proxy {
    fn pause(self: &Arc<Proxy>, message: &mut Message) -> io::Result<()> {
        let (number, deadline_ns) = (message.number()?, message.option()?);
        let what = String::from_utf8_lossy(message.bytes()?).into_owned();
        self.take_state(message)?;
        let why = match number {
            POLL => Pause::Poll,
            LOOK => Pause::Look,
            POST => Pause::Post,
            ARM => Pause::Arm,
            RETURN => Pause::Return,
            MEMORY => Pause::Memory,
            EVENT => Pause::Event {
                event: Arc::new(RemoteEvent {
                    proxy: self.clone(),
                    what,
                }),
                deadline_ns,
            },
            _ => return Err(nonsense()),
        };
        let stopped = self.network.pause(&why).is_err();
        let now_ns = self.network.now_ns();
        let stopped = if stopped { STOPPED } else { 0 };
        lock(&self.line).put(Kind::Go, |to| {
            to.number(now_ns);
            to.number(stopped);
        });
        Ok(())
    }

    /// What takes no time.
    fn answer(self: &Arc<Proxy>, message: &mut Message) -> io::Result<()> {
        let network = &self.network;
        match message.kind {
            Kind::Mtu => {
                let mtu = network.interface_mtu(message.addr()?);
                self.say(Kind::Value, |to| to.option(mtu.map(u64::from)));
            }
            Kind::Random => {
                let drawn = network.random();
                self.say(Kind::Value, |to| to.number(drawn));
            }
            Kind::Route => {
                let route = network.route_to(message.addr()?);
                self.say(Kind::Value, |to| {
                    to.option(route.map(|_| 0));
                    if let Some(addr) = route {
                        to.addr(addr);
                    }
                });
            }
            Kind::Join => {
                let group = message.addr()?;
                let groups = network.groups();
                let joined = groups.is_some_and(|groups| groups.join(group));
                self.say(Kind::Value, |to| to.option(joined.then_some(1)));
            }
            Kind::Leave => {
                let group = message.addr()?;
                if let Some(groups) = network.groups() {
                    groups.leave(group);
                }
            }
            Kind::Grant => {
                let chunk = network.grant_qpns().map(u64::from);
                self.say(Kind::Value, |to| to.option(chunk));
            }
            Kind::HasRoom => {
                let room = network.has_room().then_some(1);
                self.say(Kind::Value, |to| to.option(room));
            }
            Kind::Send => network.send(&message.packet()?),
            Kind::Detached => network.detached(&named(message.counters()?)),
            Kind::Attach => self.attach(message.number()?),
            _ => return Err(nonsense()),
        }
        Ok(())
    }

    fn attach(self: &Arc<Proxy>, id: u64) {
        let engine = Arc::new(RemoteEngine {
            proxy: self.clone(),
            id,
            due_ns: AtomicU64::new(u64::MAX),
        });
        lock(&self.engines).insert(id, engine.clone());
        let driven: Arc<dyn Driven> = engine;
        self.network.attach(Adapter::new(Arc::downgrade(&driven)));
    }

    /// What the process said of its contexts when it gave the turn up.
    fn take_state(&self, message: &mut Message) -> io::Result<()> {
        let is_ready = message.number()? != 0;
        self.is_ready.store(is_ready, Ordering::Relaxed);
        let mut alive = BTreeMap::new();
        for _ in 0..message.number()? {
            alive.insert(message.number()?, message.option()?);
        }
        let mut gone = Vec::new();
        lock(&self.engines).retain(|id, engine| {
            let Some(due) = alive.get(id) else {
                gone.push(engine.clone());
                return false;
            };
            let due = due.unwrap_or(u64::MAX);
            engine.due_ns.store(due, Ordering::Relaxed);
            true
        });
        // Here, where no lock is held.
        drop(gone);
        Ok(())
    }

    fn say(&self, kind: Kind, fields: impl FnOnce(&mut Fields<'_>)) {
        lock(&self.line).put(kind, fields);
    }

    /// Has the process, which waits, do something with a context. Nothing, if it has ended.
    fn have_done(
        self: &Arc<Proxy>,
        kind: Kind,
        id: u64,
        packet: Option<&Packet<'_>>,
    ) -> Option<(bool, Vec<(String, u64)>)> {
        if self.is_gone.load(Ordering::Relaxed) {
            return None;
        }
        let done = self.try_have_done(kind, id, packet);
        if done.is_err() {
            // Its program will see that when it reads on.
            self.is_gone.store(true, Ordering::Relaxed);
        }
        done.ok()
    }

    fn try_have_done(
        self: &Arc<Proxy>,
        kind: Kind,
        id: u64,
        packet: Option<&Packet<'_>>,
    ) -> io::Result<(bool, Vec<(String, u64)>)> {
        let now_ns = self.network.now_ns();
        self.say(kind, |to| {
            to.number(now_ns);
            to.number(id);
            if let Some(packet) = packet {
                to.packet(packet);
            }
        });
        loop {
            let next = lock(&self.line).next()?;
            let mut message = next.ok_or(io::ErrorKind::UnexpectedEof)?;
            if message.kind == Kind::Done {
                let done = (message.number()? != 0, message.counters()?);
                self.take_state(&mut message)?;
                return Ok(done);
            }
            self.answer(&mut message)?;
        }
    }
}

impl Driven for RemoteEngine {
    fn receive(&self, packet: &Packet<'_>) -> bool {
        let done = self.proxy.have_done(Kind::Receive, self.id, Some(packet));
        done.is_some_and(|(taken, _)| taken)
    }

    fn receive_unowned(&self, packet: &Packet<'_>) {
        self.proxy.have_done(Kind::Unowned, self.id, Some(packet));
    }

    fn due_ns(&self) -> Option<u64> {
        let due = self.due_ns.load(Ordering::Relaxed);
        (due != u64::MAX && !self.proxy.is_gone.load(Ordering::Relaxed)).then_some(due)
    }

    fn drive(&self) {
        self.proxy.have_done(Kind::OnTime, self.id, None);
    }

    fn counted(&self) -> Vec<(&'static str, u64)> {
        let done = self.proxy.have_done(Kind::Counters, self.id, None);
        named(done.map_or(Vec::new(), |(_, counters)| counters))
    }
}

/// Names of counters live as long as the process: there are a few dozen.
fn named(counters: Vec<(String, u64)>) -> Vec<(&'static str, u64)> {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    let mut named = |name: String| match names.get(name.as_str()) {
        Some(known) => *known,
        None => {
            let name: &'static str = name.leak();
            names.insert(name);
            name
        }
    };
    let each = counters
        .into_iter()
        .map(|(name, count)| (named(name), count));
    each.collect()
}
