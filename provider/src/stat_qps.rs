//! The QPs of running processes, for others of the same user to look at.
//!
//! Nothing is written until it is asked for. Beside its file of counters a context has a
//! socket; a process that connects to it asks for the QPs, and the context's background thread
//! writes them to a file and closes the connection. Ten thousand QPs are gone through a
//! few at a time, so that packets need not wait for the list.

use core::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use urxe_core::{PathReport, QpReport};

use crate::share::{create_own, printable, read_own};
use crate::stat_file::ContextCounters;

/// More than a million QPs take.
const LEN_MAX: u64 = 1 << 28;

/// How long a process may take to answer: it is busy, or stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// A QP of some process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QpStatus {
    /// Its number.
    pub qpn: u32,
    /// Its service: `Rc`, `Uc`, `Ud`, ...
    pub qp_type: String,
    /// Its state: `RTS`, ...
    pub state: String,
    /// Address and QPN of its peer, once it has one.
    pub peer: Option<String>,
    /// What packets to that peer leave through: `memory` or `sockets` ([`crate::Wire`]).
    pub wire: Option<String>,
    /// Requests in its send queue, of how many.
    pub sq: (u32, u32),
    /// Receives in its receive queue, of how many.
    pub rq: (u32, u32),
    /// PSN of the next packet to send, the oldest that is not acknowledged, and the one
    /// that is expected from the peer.
    pub psns: [u32; 3],
    /// The path to its peer, for services that acknowledge, once it has one.
    pub path: Option<PathStatus>,
    /// What went wrong on its way, under the names of the device's counters.
    pub counters: Vec<(String, u64)>,
    /// Why it failed, if it did.
    pub last_error: Option<String>,
}

/// What a QP knows of the path to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathStatus {
    /// The smoothed round trip, in nanoseconds; 0 while none was measured.
    pub srtt_ns: u64,
    /// The shortest.
    pub min_rtt_ns: u64,
    /// Packets that may be under way.
    pub window: u32,
    /// Packets under way.
    pub under_way: u32,
    /// The rate at which packets leave, in bits per second, if one is kept.
    pub rate_bps: Option<u64>,
    /// Window and rate follow a model of the path ([`crate::congestion::CongestionControl::Path`]).
    pub has_model: bool,
    /// The two sides tell each other which packets are lost ([`crate::Recovery::Selective`]).
    pub is_selective: bool,
}

impl ContextCounters {
    /// Asks the process for the context's QPs.
    ///
    /// # Errors
    /// If the process does not answer, or ended.
    pub fn qps(&self) -> io::Result<Vec<QpStatus>> {
        let asking = ask(&beside(&self.path, "ask"))?;
        asking.set_read_timeout(Some(PATIENCE))?;
        // The answer is the end of the connection: the file is written.
        io::copy(&mut asking.take(1), &mut io::sink())?;
        let text = read_own(&beside(&self.path, "qps"), LEN_MAX)?;
        Ok(text.lines().filter_map(parse).collect())
    }
}

/// Connects to a process, which may be stopped, and have more askers than the kernel keeps for it: that is not waited for.
fn ask(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let asking = UnixStream::from(socket);
    asking.set_nonblocking(false)?;
    Ok(asking)
}

/// The side of the process that is asked.
#[derive(Debug)]
pub(crate) struct Asked {
    listener: UnixListener,
    socket: PathBuf,
    answer: PathBuf,
}

impl Asked {
    /// Where the QPs of the context with this file of counters are asked for; `None`
    /// where there can be no socket.
    pub(crate) fn new(counters: &Path) -> Option<Asked> {
        let socket = beside(counters, "ask");
        let answer = beside(counters, "qps");
        // Those of a dead process that had our id.
        let _ = fs::remove_file(&socket);
        let _ = fs::remove_file(&answer);
        let listener = UnixListener::bind(&socket).ok()?;
        let asked = Asked {
            listener,
            socket,
            answer,
        };
        asked.listener.set_nonblocking(true).ok()?;
        let mine_alone = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&asked.socket, mine_alone).ok()?;
        Some(asked)
    }

    /// Readable when a process asks.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers all connections. `gather` puts lines into the text.
    pub(crate) fn answer(&self, gather: impl FnOnce(&mut String)) {
        let asking: Vec<UnixStream> =
            std::iter::from_fn(|| Some(self.listener.accept().ok()?.0)).collect();
        if asking.is_empty() {
            return;
        }
        let mut text = String::new();
        gather(&mut text);
        // In one step, so that no reader sees half of it. If there is no room, the answer
        // is the old one, or none.
        let new = self.answer.with_extension("new");
        if write_private(&new, &text).is_ok() {
            let _ = fs::rename(&new, &self.answer);
        }
        drop(asking);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(&self.answer);
    }
}

/// One QP's line; `in_memory` if packets to its peer leave through memory.
pub(crate) fn line(text: &mut String, qp: &QpReport<'_>, in_memory: bool) {
    let mut put = |part: core::fmt::Arguments<'_>| {
        text.write_fmt(part).expect("a string takes everything");
    };
    put(format_args!(
        "qpn={:#x} type={:?} state={}",
        qp.qpn.get(),
        qp.qp_type,
        qp.state
    ));
    if let Some((addr, qpn)) = qp.peer {
        let wire = if in_memory { "memory" } else { "sockets" };
        put(format_args!(" peer={addr}/{:#x} wire={wire}", qpn.get()));
    }
    let (sq, rq) = (qp.sq, qp.rq);
    put(format_args!(" sq={}/{} rq={}/{}", sq.0, sq.1, rq.0, rq.1));
    let psns = [qp.next_psn, qp.una_psn, qp.expected_psn].map(|psn| psn.get());
    put(format_args!(" psns={}/{}/{}", psns[0], psns[1], psns[2]));
    if let Some(path) = qp.path {
        let PathReport {
            srtt_ns,
            min_rtt_ns,
            window,
            under_way,
            rate_bps,
            has_model,
            is_selective,
            ..
        } = path;
        put(format_args!(
            " path={srtt_ns}/{min_rtt_ns}/{window}/{under_way}/{}/{}/{}",
            rate_bps.unwrap_or(0),
            u8::from(has_model),
            u8::from(is_selective)
        ));
    }
    let counts = qp.requester.iter().chain(qp.responder.iter());
    for (name, value) in counts.filter(|(_, value)| *value > 0) {
        put(format_args!(" {name}={value}"));
    }
    if let Some(error) = qp.last_error {
        // Last, as it has spaces; and it is one line.
        put(format_args!(
            " error={}",
            error.to_string().replace('\n', " ")
        ));
    }
    put(format_args!("\n"));
}

fn parse(line: &str) -> Option<QpStatus> {
    let mut qp = QpStatus::default();
    let (line, error) = match line.split_once(" error=") {
        Some((line, error)) => (line, Some(error)),
        None => (line, None),
    };
    qp.last_error = error.map(printable);
    for part in line.split(' ') {
        let (name, value) = part.split_once('=')?;
        match name {
            "qpn" => qp.qpn = u32::from_str_radix(value.strip_prefix("0x")?, 16).ok()?,
            "type" => qp.qp_type = printable(value),
            "state" => qp.state = printable(value),
            "peer" => qp.peer = Some(printable(value)),
            "wire" => qp.wire = Some(printable(value)),
            "sq" => qp.sq = of(value)?,
            "rq" => qp.rq = of(value)?,
            "psns" => {
                let mut numbers = value.split('/').map(str::parse);
                for psn in &mut qp.psns {
                    *psn = numbers.next()?.ok()?;
                }
            }
            "path" => qp.path = Some(path_of(value)?),
            _ => qp.counters.push((printable(name), value.parse().ok()?)),
        }
    }
    Some(qp)
}

/// The parts of a path, in the order of [`PathStatus`].
fn path_of(text: &str) -> Option<PathStatus> {
    let parts: Vec<u64> = text
        .split('/')
        .map_while(|part| part.parse().ok())
        .collect();
    let [
        srtt_ns,
        min_rtt_ns,
        window,
        under_way,
        rate,
        has_model,
        is_selective,
    ] = parts[..]
    else {
        return None;
    };
    Some(PathStatus {
        srtt_ns,
        min_rtt_ns,
        window: window.try_into().ok()?,
        under_way: under_way.try_into().ok()?,
        rate_bps: (rate > 0).then_some(rate),
        has_model: has_model == 1,
        is_selective: is_selective == 1,
    })
}

/// `3/128`
fn of(text: &str) -> Option<(u32, u32)> {
    let (some, all) = text.split_once('/')?;
    Some((some.parse().ok()?, all.parse().ok()?))
}

fn beside(counters: &Path, what: &str) -> PathBuf {
    let mut name = counters.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    // One that is there was not finished.
    let _ = fs::remove_file(path);
    create_own(path)?.write_all(text.as_bytes())
}
