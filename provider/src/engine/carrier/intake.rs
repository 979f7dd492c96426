//! Hands received packets to the core, or to another owner of the address.

use core::sync::atomic::AtomicU32;
use std::net::SocketAddr;

use urxe_core::qpn_table::QpnChunk;
use urxe_core::{Foreign, Handled, LateReceives, MiddlePackets, RxBytes, RxPath};
use urxe_seal::Envelope;
use urxe_udp::Datagram;
use urxe_wire::Qpn;

use super::memory::wake;
use super::pairs::InOrder;
use crate::engine::ahead::fetch_for_packet;
use crate::engine::drive::parts::Parts;
use crate::engine::drive::progress_shared::ProgressShared;
use crate::engine::upkeep::counters::EngineCounters;
use crate::engine::upkeep::tap::Tap;
use crate::share::{Handed, Membership, Shared, is_probe};

/// Takes packets: a carrier that receives is given one.
pub(in crate::engine) struct Intake<'a> {
    pub(in crate::engine) parts: &'a mut Parts,
    pub(in crate::engine) late: &'a dyn LateReceives,
    pub(in crate::engine) counters: &'a mut EngineCounters,
    pub(in crate::engine) tap: Option<&'a mut Tap>,
    pub(in crate::engine) others: Option<&'a Membership>,
    pub(in crate::engine) progress: &'a ProgressShared,
    /// The carrier leaves something lying that a thread which sleeps is not woken for: the next look is this thread's, or another's
    /// that does not sleep.
    pub(in crate::engine) left_lying: bool,
}

impl Intake<'_> {
    /// There are too many QPs for the cache.
    #[inline]
    pub(in crate::engine) fn has_many(&self) -> bool {
        self.parts.shard.has_many()
    }

    /// Fetches the QP that a packet is for, of which the first bytes are here, into the cache, ahead of its turn: where there are [too
    /// many](Intake::has_many) for it.
    #[inline]
    pub(in crate::engine) fn prefetch(&self, packet: &[u8]) {
        fetch_for_packet(&self.parts.shard, packet);
    }

    /// Takes each packet of a datagram, with the place that it has in its train; a packet of another owner is handed over, with what is
    /// told of the envelopes that the packets were in.
    #[inline]
    pub(in crate::engine) fn datagram(
        &mut self,
        path: &RxPath,
        datagram: &Datagram<'_>,
        envelopes: &[Envelope],
    ) {
        if datagram.truncated {
            self.counters.rx_truncated += 1;
            return;
        }
        if let Some(chunk) = wake::parse(datagram.data) {
            return self.wake(path, datagram, chunk);
        }
        let mut packets = InOrder::of(datagram);
        while let Some((at, packet, foreign)) = self.take_own(path, &mut packets) {
            let handed = Handed {
                place: at as u16,
                envelope: envelopes.get(at).copied(),
                ..handed(path, datagram.source, datagram.tos, packet)
            };
            self.pass_on(path, &handed, foreign);
        }
        self.parts.shard.settle_rest();
        if let Some(tap) = &mut self.tap
            && !(self.others.is_some() && is_probe(datagram.data))
        {
            tap.received(path, datagram);
        }
    }

    /// Takes packets up to the first one that is not for this owner, which it returns with its place.
    #[inline(always)]
    fn take_own<'p>(
        &mut self,
        path: &RxPath,
        packets: &mut InOrder<'p>,
    ) -> Option<(usize, &'p [u8], Foreign)> {
        if self.parts.watching.is_some() {
            return self.take_watched(path, packets);
        }
        self.parts.with_late(Some(self.late), |shard, env| {
            loop {
                let rest = packets.rest();
                if rest.is_likely() {
                    packets.skip_handled(shard.handle_middle(path, rest, env));
                }
                let (at, packet) = packets.next()?;
                let handled = shard.handle_one_of(path, at as u16, packet, env);
                if let Handled::OfAnother(foreign) = handled {
                    return Some((at, packet, foreign));
                }
            }
        })
    }

    /// The same where something looks at each of them.
    #[cold]
    fn take_watched<'p>(
        &mut self,
        path: &RxPath,
        packets: &mut InOrder<'p>,
    ) -> Option<(usize, &'p [u8], Foreign)> {
        loop {
            let (at, packet) = packets.next()?;
            let handled = self.parts.handle_one_of(self.late, path, at as u16, packet);
            if let Handled::OfAnother(foreign) = handled {
                return Some((at, packet, foreign));
            }
        }
    }

    /// Takes the packets of a train that its sender may change at any time, in order. Those in the middle of a message are placed from where they
    /// lie; each of the others is copied, by `copy`, which is given its place, before anything looks at it.
    #[inline]
    pub(in crate::engine) fn train_in_place(
        &mut self,
        path: &RxPath,
        source: SocketAddr,
        (words, len, size): (&[AtomicU32], usize, usize),
        buffer: &mut [u8],
        copy: impl Fn(usize, &mut [u8]),
    ) {
        let mut place = 0;
        loop {
            let rest = MiddlePackets {
                bytes: RxBytes::Shared(words.get(place * size / 4..).unwrap_or_default()),
                size,
                stride: size,
                place: place as u16,
            };
            if rest.is_likely() {
                place += self.parts.handle_middle(path, rest);
            }
            if place * size >= len {
                break;
            }
            let start = place * size;
            let packet = &mut buffer[..size.min(len - start)];
            copy(start, packet);
            let handled = self
                .parts
                .handle_one_of(self.late, path, place as u16, packet);
            if let Handled::OfAnother(foreign) = handled {
                let handed = Handed {
                    place: place as u16,
                    ..handed(path, source, path.tos, packet)
                };
                self.pass_on(path, &handed, foreign);
            }
            place += 1;
        }
        self.parts.shard.settle_rest();
    }

    /// Hands a packet of another owner over as it came: only the owner has the keys of its pair. False if there is no other.
    #[cold]
    pub(in crate::engine) fn pass_on_sealed(&mut self, handed: &Handed<'_>) -> bool {
        let Some(&[_, high, middle, low]) = handed.packet.get(4..8).and_then(<[u8]>::first_chunk)
        else {
            return false;
        };
        let chunk = QpnChunk::of(Qpn::new(u32::from_be_bytes([0, high, middle, low])));
        if self.others.is_none() || self.parts.shard.has_chunk(chunk) {
            return false;
        }
        let path = RxPath::in_memory(handed.source, handed.local, handed.tos);
        self.pass_on(&path, handed, Foreign::Qp(chunk));
        true
    }

    /// A datagram to wake this context, which is awake, or another owner of the address.
    #[cold]
    fn wake(&mut self, path: &RxPath, datagram: &Datagram<'_>, chunk: QpnChunk) {
        if !self.parts.shard.has_chunk(chunk) {
            let handed = handed(path, datagram.source, datagram.tos, datagram.data);
            self.pass_on(path, &handed, Foreign::Qp(chunk));
        }
    }

    /// Hands a packet that is not for this context to its owner.
    #[cold]
    fn pass_on(&mut self, path: &RxPath, handed: &Handed<'_>, foreign: Foreign) {
        let now = self.parts.now;
        let shared = match self.others {
            Some(others) => others.take_foreign(handed, foreign, now),
            None => Shared::NoOwner,
        };
        match shared {
            Shared::HandedOver => self.counters.handed_over += 1,
            Shared::Lost => self.counters.hand_over_lost += 1,
            Shared::Waits => self.progress.kick(),
            Shared::Probe => {}
            // A message to QP 1 is answered: the peer learns that it has no receiver.
            Shared::NoOwner if matches!(foreign, Foreign::Message(_)) => {
                let shard = &mut self.parts.shard;
                shard.handle_unowned_mad(path, handed.packet, now);
            }
            Shared::NoOwner => self.parts.shard.count_unowned(),
        }
    }
}

/// A packet that came alone, for its owner.
fn handed<'a>(path: &RxPath, source: SocketAddr, tos: u8, packet: &'a [u8]) -> Handed<'a> {
    Handed {
        source: source.ip(),
        source_port: source.port(),
        local: path.local,
        place: 0,
        tos,
        envelope: None,
        is_sealed: false,
        packet,
    }
}
