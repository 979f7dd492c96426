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

    /// Of a context that has no sockets: only the batch is used.
    pub(crate) fn without_sockets(batch: TxBatch) -> TxPath {
        TxPath {
            batch,
            out: Vec::new(),
            locals: Vec::new(),
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
        let socket = sockets.of(local);
        (socket.expect("what is sent here has sockets"), count)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{PATIENCE, address};
    use urxe_core::qpn_table::QpnChunk;
    use urxe_core::transmit::TxDest;
    use urxe_udp::{RecvBatch, UdpConfig};
    use urxe_wire::{IcrcPolicy, IcrcSeed, IcrcVerdict, PathHeader};

    fn bind() -> ([u8; 4], Sockets) {
        let addr = address();
        let sockets = Sockets::bind(&[addr.into()], &UdpConfig::default());
        (addr.octets(), sockets.expect("the address is free"))
    }

    fn receive(sockets: &Sockets, batch: &mut RecvBatch) -> usize {
        let socket = sockets.only().expect("one address");
        let ready = urxe_udp::wait(&[socket.as_fd()], Some(PATIENCE)).expect("polls");
        assert!(!ready.is_timeout(), "nothing arrives");
        socket.recv(batch).expect("receives")
    }

    /// Packets whose run the kernel refuses arrive one by one, each with the ICRC that a
    /// lone packet has.
    #[test]
    fn a_refused_run_is_sent_singly_with_other_icrcs() {
        let ((a, from), (b, to)) = (bind(), bind());
        let path = PathHeader::V4 {
            src: a,
            dst: b,
            sport: ROCE_PORT,
            dport: ROCE_PORT,
        };
        let seed = IcrcSeed::new(&path);
        let mut tx = TxPath::new(&from, true);
        assert!(tx.batch.is_empty() && !tx.has_backlog());
        // As after the probe of a kernel that can do it.
        tx.batch.set_limits(RunLimits {
            segments_max: 64,
            ..RunLimits::SINGLE
        });
        let dest = TxDest {
            local: a.into(),
            remote: b.into(),
            tos: 0,
            source_port: ROCE_PORT,
            chunk: QpnChunk(0),
        };
        for (len, expected) in [(40, 0), (40, 1), (32, 2), (40, 0)] {
            let slot = tx.batch.reserve(&dest, len).expect("room");
            assert_eq!(slot.ident, expected);
            let (covered, icrc) = slot.bytes.split_at_mut(len - 4);
            covered.fill(len as u8);
            icrc.copy_from_slice(&seed.compute(slot.ident, covered).to_le_bytes());
        }
        tx.out.extend(tx.batch.runs().iter().map(to_transmit));
        tx.split_runs(&from);
        assert_eq!(tx.out.len(), 4);
        let mut counters = EngineCounters::default();
        assert!(tx.send(&from, &mut counters, None));
        assert!(tx.batch.is_empty() && !tx.has_backlog());

        let mut received = RecvBatch::new(8);
        let mut sizes = Vec::new();
        while sizes.len() < 4 {
            receive(&to, &mut received);
            for datagram in received.iter() {
                let verdict = seed.verify_with(IcrcPolicy::Exact, 0, datagram.data);
                assert_eq!(verdict, IcrcVerdict::Ok { ident: 0 });
                sizes.push(datagram.data.len());
            }
        }
        assert_eq!(sizes, [40, 40, 32, 40]);
    }

    /// A destination that cannot be reached costs its own packets and nobody else's.
    #[test]
    fn one_bad_destination_stops_nobody_else() {
        let ((local, from), (good, to)) = (bind(), bind());
        let mut tx = TxPath::new(&from, true);
        let mut counters = EngineCounters::default();
        // From loopback there is no way to 192.0.2.1.
        for remote in [good, [192, 0, 2, 1], good] {
            let dest = TxDest {
                local: local.into(),
                remote: remote.into(),
                tos: 0,
                source_port: ROCE_PORT,
                chunk: QpnChunk(0),
            };
            tx.batch.reserve(&dest, 20).expect("room").bytes.fill(1);
        }
        assert!(tx.send(&from, &mut counters, None));
        assert_eq!(counters.tx_errors, 1);
        let mut received = RecvBatch::new(8);
        let mut count = 0;
        while count < 2 {
            count += receive(&to, &mut received);
        }
    }
}
