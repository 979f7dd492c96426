//! The program's side: a network that asks its proxy.

use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock};

use nix::sys::signal::{Signal, raise};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, stdin};

use super::line::{
    ARM, CLOCK, EVENT, Fields, Kind, LOOK, Line, MEMORY, Message, POLL, POST, RETURN, SLEEP,
    STOPPED, nonsense,
};
use crate::lock::lock;
use crate::network::{Adapter, Groups, Network, Packet, Pause, Ready, Shelf, Stopped, set_default};

/// Descriptors below are for the program, by the numbers that they would have without us.
const FD_MIN: i32 = 100;
/// A program that looks at the clock so often, and does nothing else, waits for the time to pass: so it must.
const LOOKS_MAX: u32 = 16;
/// So much passes then at least, and at most; between them it is this part of the time for which it did nothing else.
const LOOKS_NS: u64 = 500;
const LOOKS_NS_MAX: u64 = 10_000;
const LOOKS_PART: u64 = 16;

static JOINED: OnceLock<Arc<Guest>> = OnceLock::new();

/// Has all contexts of this process opened on the network of a simulation: its proxy is at the other end of standard
/// input, which becomes empty.
///
/// # Errors
/// If standard input is no socket, or this process has joined already.
pub fn join() -> io::Result<()> {
    let fd = fcntl_dupfd_cloexec(stdin(), FD_MIN)?;
    let stream = UnixStream::from(fd);
    stream.local_addr()?;
    dup2_stdin(File::open("/dev/null")?)?;
    let guest = Guest::over(stream);
    lock(&guest.line).flush()?;
    if JOINED.set(guest.clone()).is_err() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    set_default(guest);
    Ok(())
}

/// Asks the simulation for something that is not about verbs. What comes back is the answer, 0 or more, or an error number
/// as `-errno`; bytes that belong to it go to the beginning of `out`.
pub fn call(number: u32, args: [u64; 3], bytes: &[u8], out: &mut [u8]) -> i64 {
    match JOINED.get() {
        Some(guest) if number == CLOCK => guest.clock() as i64,
        Some(guest) => guest.call(number, args, bytes, out),
        None => -i64::from(libc::ENOSYS),
    }
}

/// A network with its proxy at the other end of a socket, for one thread.
#[derive(Debug)]
pub struct Guest {
    line: Mutex<Line>,
    now_ns: AtomicU64,
    is_stopped: AtomicBool,
    /// How often the clock was looked at since time passed.
    looks: AtomicU32,
    /// When it did something else last.
    since_ns: AtomicU64,
    adapters: Mutex<Vec<(u64, Adapter)>>,
    next_adapter: AtomicU64,
    shelf: Shelf,
}

impl Guest {
    /// On this socket.
    pub fn over(stream: UnixStream) -> Arc<Guest> {
        let mut line = Line::new(stream);
        line.put(Kind::Hello, |to| {
            to.bytes(env!("CARGO_PKG_VERSION").as_bytes());
        });
        Arc::new(Guest {
            line: Mutex::new(line),
            now_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            since_ns: AtomicU64::new(0),
            adapters: Mutex::default(),
            next_adapter: AtomicU64::new(0),
            shelf: Shelf::default(),
        })
    }

    fn clock(&self) -> u64 {
        if self.looks.fetch_add(1, Ordering::Relaxed) >= LOOKS_MAX {
            let since = self.since_ns.load(Ordering::Relaxed);
            let idle = self.now_ns().saturating_sub(since);
            let sleep_ns = (idle / LOOKS_PART).clamp(LOOKS_NS, LOOKS_NS_MAX);
            self.call(SLEEP, [sleep_ns, 0, 0], &[], &mut []);
            self.since_ns.store(since, Ordering::Relaxed);
        }
        self.now_ns()
    }

    /// As [`call`], for a thread.
    pub fn call(&self, number: u32, args: [u64; 3], bytes: &[u8], out: &mut [u8]) -> i64 {
        let done = self.give_turn(Kind::Call, None, |to| {
            to.number(number.into());
            args.into_iter().for_each(|arg| to.number(arg));
            to.bytes(bytes);
        });
        let result = done.and_then(|mut message| {
            let result = message.number()? as i64;
            let bytes = message.bytes()?;
            let len = bytes.len().min(out.len());
            out[..len].copy_from_slice(&bytes[..len]);
            Ok(result)
        });
        result.unwrap_or_else(|error| self.ended(&error))
    }

    /// Gives the turn up until it is back, and meanwhile does what the simulation asks for. `event` is what the program waits for.
    fn give_turn(
        &self,
        kind: Kind,
        event: Option<&dyn Ready>,
        fields: impl FnOnce(&mut Fields<'_>),
    ) -> io::Result<Message> {
        let state = self.state(event);
        lock(&self.line).put(kind, |to| {
            fields(to);
            state.put(to);
        });
        loop {
            let mut message = self.next()?;
            let now_ns = message.number()?;
            self.now_ns.store(now_ns, Ordering::Relaxed);
            self.looks.store(0, Ordering::Relaxed);
            if matches!(message.kind, Kind::Go | Kind::Result) {
                self.since_ns.store(now_ns, Ordering::Relaxed);
                return Ok(message);
            }
            let (taken, counters) = self.serve(&mut message)?;
            let state = self.state(event);
            lock(&self.line).put(Kind::Done, |to| {
                to.number(taken.into());
                to.counters(&counters);
                state.put(to);
            });
        }
    }

    /// What the simulation does to a context.
    fn serve(&self, message: &mut Message) -> io::Result<(bool, Vec<(&'static str, u64)>)> {
        let id = message.number()?;
        let find = |(known, adapter): &(u64, Adapter)| (*known == id).then(|| adapter.clone());
        let found = lock(&self.adapters).iter().find_map(find);
        let Some(adapter) = found else {
            return Ok((false, Vec::new()));
        };
        let mut counters = Vec::new();
        let mut taken = false;
        match message.kind {
            Kind::Receive => taken = adapter.receive(&message.packet()?),
            Kind::Unowned => adapter.receive_unowned(&message.packet()?),
            Kind::OnTime => adapter.on_time(),
            Kind::Counters => counters = adapter.counters(),
            _ => return Err(nonsense()),
        }
        Ok((taken, counters))
    }

    /// What the simulation must know to go on. Looking whether an event is there may send packets: no lock is held.
    fn state(&self, event: Option<&dyn Ready>) -> State {
        let is_ready = event.is_some_and(Ready::is_ready);
        let mut adapters = lock(&self.adapters);
        adapters.retain(|(_, adapter)| !adapter.is_gone());
        let adapters = adapters.clone();
        let dues = adapters.iter().map(|(id, it)| (*id, it.due_ns()));
        State {
            is_ready,
            dues: dues.collect(),
        }
    }

    fn next(&self) -> io::Result<Message> {
        let next = lock(&self.line).next()?;
        next.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// A question that takes no time.
    fn ask(&self, kind: Kind, fields: impl FnOnce(&mut Fields<'_>)) -> Message {
        let mut line = lock(&self.line);
        line.put(kind, fields);
        match line.next() {
            Ok(Some(answer)) if answer.kind == Kind::Value => answer,
            Ok(Some(_)) => self.ended(&nonsense()),
            Ok(None) => self.ended(&io::ErrorKind::UnexpectedEof.into()),
            Err(error) => self.ended(&error),
        }
    }

    fn ask_number(&self, kind: Kind, fields: impl FnOnce(&mut Fields<'_>)) -> Option<u64> {
        let answer = self.ask(kind, fields).option();
        answer.unwrap_or_else(|error| self.ended(&error))
    }

    /// There is nothing that the program could do without the simulation.
    #[cold]
    fn ended(&self, error: &io::Error) -> ! {
        let is_process = JOINED.get().is_some_and(|it| core::ptr::eq(&**it, self));
        assert!(is_process, "the simulation is gone: {error}");
        if error.kind() != io::ErrorKind::UnexpectedEof {
            eprintln!("urxe: the simulation is gone: {error}");
        }
        // What runs at an exit would wait for it, too.
        let _ = raise(Signal::SIGKILL);
        std::process::abort();
    }

    fn say(&self, kind: Kind, fields: impl FnOnce(&mut Fields<'_>)) {
        lock(&self.line).put(kind, fields);
    }
}

/// What a program tells when it gives its turn up.
struct State {
    /// What it waits for is there.
    is_ready: bool,
    /// The contexts that there are, and when each must be called.
    dues: Vec<(u64, Option<u64>)>,
}

impl State {
    fn put(&self, to: &mut Fields<'_>) {
        to.number(self.is_ready.into());
        to.number(self.dues.len() as u64);
        for (id, due) in &self.dues {
            to.number(*id);
            to.option(*due);
        }
    }
}

impl Network for Guest {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        let answer = self.ask(Kind::Random, |_| ()).number();
        answer.unwrap_or_else(|error| self.ended(&error))
    }

    fn interface_mtu(&self, addr: IpAddr) -> Option<u32> {
        let mtu = self.ask_number(Kind::Mtu, |to| to.addr(addr))?;
        u32::try_from(mtu).ok()
    }

    fn attach(&self, adapter: Adapter) {
        let id = self.next_adapter.fetch_add(1, Ordering::Relaxed);
        lock(&self.adapters).push((id, adapter));
        self.say(Kind::Attach, |to| to.number(id));
    }

    fn detached(&self, counters: &[(&'static str, u64)]) {
        let mut line = lock(&self.line);
        line.put(Kind::Detached, |to| to.counters(counters));
        // It may be the last thing that the program does.
        if let Err(error) = line.flush() {
            self.ended(&error);
        }
    }

    fn route_to(&self, dest: IpAddr) -> Option<IpAddr> {
        let mut answer = self.ask(Kind::Route, |to| to.addr(dest));
        let route = answer.option().and_then(|known| match known {
            Some(_) => answer.addr().map(Some),
            None => Ok(None),
        });
        route.unwrap_or_else(|error| self.ended(&error))
    }

    fn shelf(&self) -> Option<&Shelf> {
        Some(&self.shelf)
    }

    fn groups(&self) -> Option<&dyn Groups> {
        Some(self)
    }

    fn grant_qpns(&self) -> Option<u16> {
        self.ask_number(Kind::Grant, |_| ())
            .and_then(|chunk| u16::try_from(chunk).ok())
    }

    fn has_room(&self) -> bool {
        self.ask_number(Kind::HasRoom, |_| ()).is_some()
    }

    fn send(&self, packet: &Packet<'_>) {
        self.say(Kind::Send, |to| to.packet(packet));
    }

    fn pause(&self, why: &Pause) -> Result<(), Stopped> {
        let mut event = None;
        let (number, deadline) = match why {
            Pause::Poll => (POLL, None),
            Pause::Look => (LOOK, None),
            Pause::Post => (POST, None),
            Pause::Arm => (ARM, None),
            Pause::Return => (RETURN, None),
            Pause::Memory => (MEMORY, None),
            Pause::Event {
                event: it,
                deadline_ns,
            } => {
                event = Some(&**it);
                (EVENT, *deadline_ns)
            }
        };
        let what = event.map_or(String::new(), Ready::what);
        let go = self.give_turn(Kind::Pause, event, |to| {
            to.number(number);
            to.option(deadline);
            to.bytes(what.as_bytes());
        });
        let go = go.and_then(|mut message| message.number());
        if go.unwrap_or_else(|error| self.ended(&error)) == STOPPED {
            self.is_stopped.store(true, Ordering::Relaxed);
            return Err(Stopped);
        }
        Ok(())
    }
}

impl Groups for Guest {
    fn join(&self, group: IpAddr) -> bool {
        self.ask_number(Kind::Join, |to| to.addr(group)).is_some()
    }

    fn leave(&self, group: IpAddr) {
        self.say(Kind::Leave, |to| to.addr(group));
    }
}
