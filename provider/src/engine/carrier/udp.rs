//! UDP sockets as what carries packets: nothing is sent twice, nothing waits for a
//! full socket, and one bad destination stops no other. Received trains are walked where they lie.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;
use core::slice;
use std::sync::Arc;

use urxe_core::transmit::{RunLimits, Transmit as Run, TxBatch, TxDest};
use urxe_core::{RxPath, Time};
use urxe_udp::{Datagram, Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpSocket};
use urxe_wire::ROCE_V2_PORT;

use super::direct::Direct;
use super::intake::Intake;
use super::keeper::Keeper;
use super::pairs::Joining;
use super::sealed::{Envelopes, ROOM};
use super::seam::{Carrier, Sending, Sent};
use super::sockets::{Port, Sockets, Which};
use crate::engine::upkeep::counters::EngineCounters;
use crate::error::Error;

/// Bytes in a batch. Two full trains: more would leave the second-level cache between
/// being written here and read by the kernel.
const BATCH_BYTES: usize = 128 << 10;

/// The sockets, and how much of the batch was sent.
#[derive(Debug)]
pub(crate) struct SocketCarrier {
    sockets: Arc<Sockets>,
    /// The batch's runs as the sockets take them.
    out: Vec<Transmit>,
    /// Where each of them comes from, if there are several sockets.
    locals: Vec<IpAddr>,
    /// The first of `out` that was not sent. Below `out.len()` only while a socket is full.
    next: usize,
    rx: RecvBatch,
    /// The path of the last datagram, as its sender is likely to send the next.
    last_path: Option<(SocketAddr, RxPath)>,
    joining: Joining,
    /// For lone packets to a neighbour.
    direct: Option<Direct>,
    /// What packets are in on their way, if they are.
    envelopes: Option<Box<Envelopes>>,
    /// The sockets of the groups that QPs are attached to.
    groups: Vec<Port>,
}

impl Carrier for SocketCarrier {
    fn batch(&self) -> TxBatch {
        let limits = if self.sockets.config.gso {
            self.run_limits()
        } else {
            RunLimits::SINGLE
        };
        let room = self.envelopes.as_ref().map(|_| ROOM);
        TxBatch::new(BATCH_BYTES, limits).with_room(room.unwrap_or_default())
    }

    /// Sends the batch, or what is left of it.
    fn send(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Sent {
        self.joining.look(cx.expects_pairs, &self.sockets);
        if self.next == self.out.len() {
            if let (Some(direct), None, None) = (&mut self.direct, &cx.tap, &self.envelopes)
                && direct.send(batch, &self.sockets, cx.now)
            {
                cx.counters.tx_calls += 1;
                cx.counters.tx_direct += 1;
                batch.clear();
                return Sent::All;
            }
            self.out.clear();
            self.next = 0;
            if let Some(tap) = &mut cx.tap {
                // A capture shows what leaves without an envelope.
                batch.seal();
                tap.sent(batch);
            }
            match &mut self.envelopes {
                Some(envelopes) => envelopes.seal(batch, cx.now, &mut self.out),
                None => self.out.extend(batch.runs().iter().map(to_transmit)),
            }
            if self.sockets.only().is_none() {
                self.locals.clear();
                self.locals
                    .extend(batch.runs().iter().map(|run| run.dest.local));
            }
        }
        if !self.send_rest(batch, cx.counters) {
            return Sent::Full;
        }
        batch.clear();
        Sent::All
    }

    fn receive(&mut self, which: Which, calls_max: u32, intake: &mut Intake<'_>) -> bool {
        self.receive_after(which, calls_max, intake, |_| {})
    }

    fn upkeep(&mut self, now: Time) -> Option<Time> {
        let envelopes = self.envelopes.as_mut()?;
        envelopes.look_at_silent(now)
    }

    fn is_sealed(&self) -> bool {
        self.envelopes.is_some()
    }

    fn keeper(&mut self) -> Option<&mut dyn Keeper> {
        Some(&mut **self.envelopes.as_mut()?)
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        let port = self.sockets.join(group)?;
        self.groups.push(port);
        Ok(())
    }

    fn leave(&mut self, has_members: &dyn Fn(IpAddr) -> bool) {
        self.groups.retain(|port| {
            let stays = has_members(port.addr);
            if !stays {
                self.sockets.groups.remove(&port.socket);
            }
            stays
        });
    }
}

/// The path of a datagram, which is that of the one before if it can be.
#[inline]
fn path_of<'p>(
    last: &'p mut Option<(SocketAddr, RxPath)>,
    local: IpAddr,
    datagram: &Datagram<'_>,
    is_opened: bool,
) -> &'p RxPath {
    let same = last.as_ref().is_some_and(|(source, path)| {
        *source == datagram.source && path.local == local && path.tos == datagram.tos
    });
    if !same {
        let (ip, port) = (datagram.source.ip(), datagram.source.port());
        let path = if is_opened {
            // The tag was in the place of an ICRC.
            RxPath::in_memory(ip, local, datagram.tos)
        } else {
            RxPath::new(ip, port, local, datagram.tos)
        };
        *last = Some((datagram.source, path));
    }
    let (_, path) = last.as_ref().expect("just set");
    path
}

impl SocketCarrier {
    /// Fetches packets, and lets `first` do what must be done before they are handled.
    #[inline]
    pub(super) fn receive_after(
        &mut self,
        which: Which,
        calls_max: u32,
        intake: &mut Intake<'_>,
        mut first: impl FnMut(&mut Intake<'_>),
    ) -> bool {
        let mut any = false;
        for port in self.sockets.which(which).chain(self.groups.iter()) {
            for _ in 0..calls_max {
                match port.socket.recv(&mut self.rx) {
                    Ok(0) => {
                        intake.counters.rx_empty += 1;
                        break;
                    }
                    Ok(count) => {
                        intake.counters.rx_calls += 1;
                        any = true;
                        first(intake);
                        if let Some(envelopes) = &mut self.envelopes {
                            let (now, icrcs) = (intake.parts.now, intake.tap.is_some());
                            let (local, rx) = (port.addr, &mut self.rx);
                            envelopes.open_all(local, rx, now, icrcs, intake.counters);
                            envelopes.act(&self.sockets, intake);
                        }
                        if intake.has_many() {
                            for datagram in self.rx.iter() {
                                let packets = datagram.segments();
                                packets.for_each(|(_, packet)| intake.prefetch(packet));
                            }
                        }
                        let envelopes = self.envelopes.as_deref();
                        let is_opened = envelopes.is_some();
                        for (place, datagram) in self.rx.iter().enumerate() {
                            let last = &mut self.last_path;
                            let path = path_of(last, port.addr, &datagram, is_opened);
                            let headers = envelopes.map_or(&[][..], |of| of.headers(place));
                            intake.datagram(path, &datagram, headers);
                            let behind = envelopes.map(|of| of.behind(place, datagram));
                            for (datagram, header) in behind.into_iter().flatten() {
                                intake.datagram(path, &datagram, slice::from_ref(header));
                            }
                        }
                        // A batch that is not full was all there was.
                        if count < self.rx.slots() {
                            break;
                        }
                    }
                    Err(_) => {
                        intake.counters.rx_errors += 1;
                        break;
                    }
                }
            }
        }
        any
    }

    /// Sends one datagram now. False if it did not leave.
    pub(super) fn send_single(&self, dest: &TxDest, bytes: &[u8]) -> bool {
        let to = Dest::new(SocketAddr::new(dest.remote, self.sockets.port));
        let sent = self.sockets.of(dest.local).map(|socket| {
            socket.send(SendBatch {
                bytes,
                transmits: &[Transmit::single(0..bytes.len(), to)],
            })
        });
        matches!(sent, Some(SendOutcome::All { .. }))
    }

    pub(super) fn new(sockets: Arc<Sockets>, envelopes: Option<Envelopes>) -> SocketCarrier {
        SocketCarrier {
            sockets,
            envelopes: envelopes.map(Box::new),
            out: Vec::with_capacity(urxe_core::transmit::RUNS_MAX),
            locals: Vec::with_capacity(urxe_core::transmit::RUNS_MAX),
            next: 0,
            rx: RecvBatch::new(RecvBatch::DEFAULT_SLOTS),
            last_path: None,
            joining: Joining::default(),
            direct: None,
            groups: Vec::new(),
        }
    }

    /// Lone packets to neighbours may leave by a socket of their own, from this port.
    pub(super) fn with_direct(self, port: NonZeroU16) -> SocketCarrier {
        let direct = Some(Direct::new(port));
        SocketCarrier { direct, ..self }
    }

    /// False if a socket is full.
    fn send_rest(&mut self, batch: &mut TxBatch, counters: &mut EngineCounters) -> bool {
        while self.next < self.out.len() {
            let (socket, count) = self.next_group();
            let transmits = &self.out[self.next..self.next + count];
            counters.tx_calls += 1;
            let bytes = batch.bytes();
            let outcome = socket.send(SendBatch { bytes, transmits });
            self.next += outcome.sent();
            match outcome {
                SendOutcome::All { .. } => {}
                SendOutcome::WouldBlock { .. } => {
                    counters.tx_blocked += 1;
                    return false;
                }
                SendOutcome::GsoRefused { .. } => {
                    counters.tx_gso_refused += 1;
                    self.split_runs(batch);
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
    fn next_group(&self) -> (&UdpSocket, usize) {
        let rest = self.out.len() - self.next;
        if let Some(only) = self.sockets.only() {
            return (only, rest);
        }
        let locals = &self.locals[self.next..];
        let local = locals[0];
        let count = locals.iter().take_while(|&&other| other == local).count();
        let socket = self.sockets.of(local);
        (socket.expect("what is sent here has sockets"), count)
    }

    /// The kernel takes no such runs: sends the packets of this one, and of all that
    /// follow, one by one. Alone, an IPv4 packet travels under Identification 0 and
    /// not under its place in the run, so its ICRC changes.
    #[cold]
    fn split_runs(&mut self, batch: &mut TxBatch) {
        let (mut singles, mut locals) = (Vec::new(), Vec::new());
        for (index, transmit) in self.out.iter().enumerate().skip(self.next) {
            for (place, single) in transmit.singles().enumerate() {
                if place > 0 && transmit.dest.addr().is_ipv4() && self.envelopes.is_none() {
                    let packet = &mut batch.bytes_mut()[single.range()];
                    urxe_wire::reident(packet, place as u16, 0);
                }
                singles.push(single);
                locals.extend(self.locals.get(index));
            }
        }
        (self.out, self.locals) = (singles, locals);
        self.next = 0;
        batch.set_limits(self.run_limits());
    }

    /// What the kernel takes, by what is known now.
    fn run_limits(&self) -> RunLimits {
        RunLimits {
            segments_max: self.sockets.run_segments_max(),
            bytes_max: RunLimits::UDP_PAYLOAD_MAX,
        }
    }
}

#[inline]
fn to_transmit(run: &Run) -> Transmit {
    let dest = Dest::new(SocketAddr::new(run.dest.remote, ROCE_V2_PORT));
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
    use urxe_udp::UdpConfig;
    use urxe_wire::{IcrcPolicy, IcrcSeed, IcrcVerdict, PathHeader};

    fn bind() -> ([u8; 4], Sockets) {
        let addr = address();
        let sockets = Sockets::bind(&[addr.into()], ROCE_V2_PORT, &UdpConfig::default());
        (addr.octets(), sockets.expect("the address is free"))
    }

    fn carrier(sockets: Sockets) -> SocketCarrier {
        SocketCarrier::new(Arc::new(sockets), None)
    }

    fn send(carrier: &mut SocketCarrier, batch: &mut TxBatch, counters: &mut EngineCounters) {
        let mut cx = Sending {
            now: Time::ZERO,
            counters,
            tap: None,
            expects_pairs: false,
            may_lend: false,
        };
        assert_eq!(carrier.send(batch, &mut cx), Sent::All);
        assert!(batch.is_empty());
    }

    fn receive(sockets: &Sockets, batch: &mut RecvBatch) -> usize {
        let socket = sockets.only().expect("one address");
        let ready = urxe_udp::wait(&[socket.as_fd()], Some(PATIENCE)).expect("polls");
        assert!(!ready.is_timeout(), "nothing arrives");
        socket.recv(batch).expect("receives")
    }

    /// Packets of a run that the kernel refuses arrive one by one, each with the ICRC that a
    /// lone packet has.
    #[test]
    fn a_refused_run_is_sent_singly_with_other_icrcs() {
        let ((a, from), (b, to)) = (bind(), bind());
        let path = PathHeader::V4 {
            src: a,
            dst: b,
            sport: ROCE_V2_PORT,
            dport: ROCE_V2_PORT,
        };
        let seed = IcrcSeed::new(&path);
        let mut tx = carrier(from);
        let mut batch = tx.batch();
        // As after the probe of a kernel that can do it.
        batch.set_limits(RunLimits {
            segments_max: 64,
            ..RunLimits::SINGLE
        });
        let dest = TxDest {
            local: a.into(),
            remote: b.into(),
            tos: 0,
            source_port: ROCE_V2_PORT,
            chunk: QpnChunk(0),
            in_memory: false,
            near_port: None,
        };
        for (len, expected) in [(40, 0), (40, 1), (32, 2), (40, 0)] {
            let slot = batch.reserve(&dest, len).expect("room");
            assert_eq!(slot.ident, expected);
            let (covered, icrc) = slot.bytes.split_at_mut(len - 4);
            covered.fill(len as u8);
            icrc.copy_from_slice(&seed.compute(slot.ident, covered).to_le_bytes());
        }
        tx.out.extend(batch.runs().iter().map(to_transmit));
        tx.split_runs(&mut batch);
        assert_eq!(tx.out.len(), 4);
        let mut counters = EngineCounters::default();
        send(&mut tx, &mut batch, &mut counters);

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

    /// A destination that cannot be reached costs its own packets and no others.
    #[test]
    fn one_bad_destination_stops_nobody_else() {
        let ((local, from), (good, to)) = (bind(), bind());
        let mut tx = carrier(from);
        let mut batch = tx.batch();
        let mut counters = EngineCounters::default();
        // From loopback there is no way to 192.0.2.1.
        for remote in [good, [192, 0, 2, 1], good] {
            let dest = TxDest {
                local: local.into(),
                remote: remote.into(),
                tos: 0,
                source_port: ROCE_V2_PORT,
                chunk: QpnChunk(0),
                in_memory: false,
                near_port: None,
            };
            batch.reserve(&dest, 20).expect("room").bytes.fill(1);
        }
        send(&mut tx, &mut batch, &mut counters);
        assert_eq!(counters.tx_errors, 1);
        let mut received = RecvBatch::new(8);
        let mut count = 0;
        while count < 2 {
            count += receive(&to, &mut received);
        }
    }
}
