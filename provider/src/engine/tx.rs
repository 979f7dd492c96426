//! From the core's batches to the sockets: nothing is sent twice, nothing waits for a
//! full socket, and one bad destination stops nobody else.

use core::net::{IpAddr, SocketAddr};

use urxe_core::transmit::{RunLimits, Transmit as Run, TxBatch};
use urxe_udp::{Dest, SendBatch, SendOutcome, Transmit, UdpSocket};

use super::ROCE_PORT;
use super::counters::EngineCounters;
use super::sockets::Sockets;
use super::tap::Tap;

/// Bytes in a batch. Two full trains: more would leave the second-level cache between
/// being written here and read by the kernel.
const BATCH_BYTES: usize = 128 << 10;

/// The batch, and how much of it was sent.
#[derive(Debug)]
pub(crate) struct TxPath {
    pub(crate) batch: TxBatch,
    /// The batch's runs as the sockets take them.
    out: Vec<Transmit>,
    /// Where each of them comes from, if there are several sockets.
    locals: Vec<IpAddr>,
    /// The first of `out` that was not sent. Below `out.len()` only while a socket is full.
    next: usize,
}

impl TxPath {
    pub(crate) fn new(sockets: &Sockets, offload: bool) -> TxPath {
        let limits = if offload {
            run_limits(sockets)
        } else {
            RunLimits::SINGLE
        };
        TxPath {
            batch: TxBatch::new(BATCH_BYTES, limits),
            out: Vec::with_capacity(urxe_core::transmit::RUNS_MAX),
            locals: Vec::with_capacity(urxe_core::transmit::RUNS_MAX),
            next: 0,
        }
    }

    /// True while a full socket holds packets back.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.next < self.out.len()
    }

    /// Sends the batch, or what is left of it. Returns false if a socket is full: the
    /// batch stays as it is, and the core must not fill it again.
    #[inline]
    pub(crate) fn send(
        &mut self,
        sockets: &Sockets,
        counters: &mut EngineCounters,
        tap: Option<&mut Tap>,
    ) -> bool {
        if !self.has_backlog() {
            if self.batch.is_empty() {
                return true;
            }
            self.out.clear();
            self.next = 0;
            self.out.extend(self.batch.runs().iter().map(to_transmit));
            if sockets.only().is_none() {
                self.locals.clear();
                self.locals
                    .extend(self.batch.runs().iter().map(|run| run.dest.local));
            }
            if let Some(tap) = tap {
                tap.sent(&self.batch);
            }
        }
        if !self.send_rest(sockets, counters) {
            return false;
        }
        self.batch.clear();
        self.out.clear();
        self.next = 0;
        true
    }

    fn send_rest(&mut self, sockets: &Sockets, counters: &mut EngineCounters) -> bool {
        while self.next < self.out.len() {
            let (socket, count) = self.next_group(sockets);
            let transmits = &self.out[self.next..self.next + count];
            counters.tx_calls += 1;
            let outcome = socket.send(SendBatch {
                bytes: self.batch.bytes(),
                transmits,
            });
            self.next += outcome.sent();
            match outcome {
                SendOutcome::All { .. } => {}
                SendOutcome::WouldBlock { .. } => {
                    counters.tx_blocked += 1;
                    return false;
                }
                SendOutcome::GsoRefused { .. } => {
                    counters.tx_gso_refused += 1;
                    self.split_runs(sockets);
                }
                SendOutcome::Failed { .. } => {
                    // Lost, as if on the way: the transport sends again, and gives up in
                    // the end. Others must not suffer.
                    counters.tx_errors += 1;
                    self.next += 1;
                }
            }
        }
        true
    }

    /// The socket of the next run, and the number of runs in a row that are its.
    #[inline]
    fn next_group<'s>(&self, sockets: &'s Sockets) -> (&'s UdpSocket, usize) {
        let rest = self.out.len() - self.next;
        if let Some(only) = sockets.only() {
            return (only, rest);
        }
        let locals = &self.locals[self.next..];
        let local = locals[0];
        let count = locals.iter().take_while(|&&other| other == local).count();
        (sockets.of(local), count)
    }

    /// The kernel takes no such runs: sends the packets of this one, and of all that
    /// follow, one by one. Alone, an IPv4 packet travels under Identification 0 and
    /// not under its place in the run, so its ICRC changes.
    #[cold]
    fn split_runs(&mut self, sockets: &Sockets) {
        let (mut singles, mut locals) = (Vec::new(), Vec::new());
        for (index, transmit) in self.out.iter().enumerate().skip(self.next) {
            for (place, single) in transmit.singles().enumerate() {
                if place > 0 && transmit.dest.addr().is_ipv4() {
                    let packet = &mut self.batch.bytes_mut()[single.range()];
                    urxe_wire::reident(packet, place as u16, 0);
                }
                singles.push(single);
                locals.extend(self.locals.get(index));
            }
        }
        (self.out, self.locals) = (singles, locals);
        self.next = 0;
        self.batch.set_limits(run_limits(sockets));
    }
}

/// What the kernel takes, by what is known now.
fn run_limits(sockets: &Sockets) -> RunLimits {
    RunLimits {
        segments_max: sockets.run_segments_max(),
        ..RunLimits::SINGLE
    }
}

#[inline]
fn to_transmit(run: &Run) -> Transmit {
    let dest = Dest::new(SocketAddr::new(run.dest.remote, ROCE_PORT));
    let segment = if run.segments() > 1 {
        run.segment_size
    } else {
        0
    };
    Transmit::run(run.range.clone(), segment, dest).with_tos(run.dest.tos)
}
