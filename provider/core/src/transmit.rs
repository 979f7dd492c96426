//! The batch of packets that one call to `poll_transmit` fills: the caller's
//! bytes, and runs of equal-sized packets that can leave in one system call.
//!
//! A run is what UDP segmentation offload (GSO) takes: packets to one address, all
//! of one size but the last, which may be shorter. The kernel gives segment `k` of
//! a run the IPv4 Identification `k` (a lone packet gets 0), and the ICRC covers
//! that field: so a packet's place in its run must be known when it is built.

use core::net::IpAddr;
use core::num::NonZeroU16;
use core::ops::Range;

use urxe_wire::{IcrcSeed, Qpn, ROCE_V2_PORT};

use crate::loan::{LentMemory, Loan};
use crate::path::icrc_seed;
use crate::qpn_table::QpnChunk;

mod row;
pub use row::TxRow;

/// Where packets of one QP go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxDest {
    /// Source address: one of the port's; its socket sends the packet.
    pub local: IpAddr,
    /// Destination address; the port is 4791 always.
    pub remote: IpAddr,
    /// Traffic class byte: DSCP and ECN.
    pub tos: u8,
    /// UDP source port: 4791, unless [`SourcePorts`] says otherwise.
    pub source_port: u16,
    /// Chunk of the destination QPN. Where several processes share the destination
    /// address, a train is steered whole, by its first packet: so all of a train go to
    /// the QPs of one owner.
    pub chunk: QpnChunk,
    /// The receiver is probably on this host, and takes packets through memory, or they will be sealed: they are built without an ICRC. If they
    /// leave by a socket as they are after all, or are captured, the carrier adds it ([`TxDest::icrc_seed`]).
    pub in_memory: bool,
    /// It is the peer of a connection, known to be on this host, and this is the port that its lone packets may come from, under any Identification
    /// ([`Shard::set_near`](crate::Shard::set_near)). Lone packets to it may leave so, too.
    pub near_port: Option<NonZeroU16>,
}

impl TxDest {
    /// What packets are built with that go there.
    pub(crate) fn usual_seed(&self) -> IcrcSeed {
        if self.in_memory {
            IcrcSeed::IN_MEMORY
        } else {
            self.icrc_seed()
        }
    }

    /// What the ICRCs of packets have in common that go there over a network.
    pub fn icrc_seed(&self) -> IcrcSeed {
        icrc_seed(self.local, self.source_port, self.remote)
    }
}

/// Which UDP source port packets leave from. Networks choose among equal paths by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SourcePorts {
    /// 4791: that of the socket, which is bound to the port that it receives on.
    #[default]
    Roce,
    /// One for each connection, from 0xc000 up, by the numbers of its two QPs, as adapters do. For senders that
    /// can send from any port.
    PerQp,
}

impl SourcePorts {
    /// The port of packets from one QP to another; of datagrams that go to many, `dest` is
    /// 0.
    pub fn port(self, own: Qpn, dest: Qpn) -> u16 {
        match self {
            SourcePorts::Roce => ROCE_V2_PORT,
            SourcePorts::PerQp => {
                // As Linux makes a flow label of two QPNs, and a port of that.
                let product = u64::from(own.get()) * u64::from(dest.get().max(1));
                let folded = product ^ (product >> 20);
                let label = (folded ^ (folded >> 40)) as u32 & 0xf_ffff;
                ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
            }
        }
    }
}

/// One run: a range of the batch's bytes, in which there are packets of `segment_size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of the batch, from the first packet's first one to the last packet's last one.
    pub range: Range<usize>,
    /// Size of every packet but the last, which may be shorter.
    pub segment_size: usize,
    /// Bytes between two packets: the room behind one ([`Room`]), and that before the next.
    pub gap: usize,
    /// The destination.
    pub dest: TxDest,
}

impl Transmit {
    /// Number of packets.
    #[inline]
    pub fn segments(&self) -> usize {
        self.range.len().div_ceil(self.stride())
    }

    /// The packets, in its bytes.
    #[inline]
    pub fn packets<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let size = self.segment_size;
        let strides = bytes.chunks(self.stride());
        strides.map(move |bytes| &bytes[..size.min(bytes.len())])
    }

    /// From a packet's first byte to that of the next one.
    #[inline]
    fn stride(&self) -> usize {
        self.segment_size + self.gap
    }
}

/// Limits of a run: what the socket's offload takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Packets in a run; 1 turns runs off.
    pub segments_max: usize,
    /// Bytes in a run: a UDP payload of at most 65,507.
    pub bytes_max: usize,
}

impl RunLimits {
    /// Longest UDP payload over IPv4: 65,535 - 20 - 8.
    pub const UDP_PAYLOAD_MAX: usize = 65_507;
    /// No offload: every packet by itself.
    pub const SINGLE: RunLimits = RunLimits {
        segments_max: 1,
        bytes_max: RunLimits::UDP_PAYLOAD_MAX,
    };
}

/// Bytes around each packet of a batch that are left to the one that sends it, for an envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Before its first byte.
    pub before: usize,
    /// Behind its last one.
    pub after: usize,
}

/// Bytes of a batch that are not used. Large allocations begin with a page, and so does what programs send: then the payload would be
/// copied to a place that is a few bytes further in its page than the source, and processors take loads for dependent on
/// earlier stores at such a distance. `urxe bench write` over shared memory has 85 Gbit/s, and 45 without this.
const LEAD: usize = 2048;

/// Runs in a batch, at most.
pub const RUNS_MAX: usize = 64;

/// Packets to send, being gathered. Reusable: [`TxBatch::clear`] keeps the memory.
#[derive(Debug)]
pub struct TxBatch {
    /// Those of packets begin at [`LEAD`].
    bytes: Box<[u8]>,
    /// How many of them are used, at most.
    bytes_max: usize,
    loan: Option<Loan>,
    /// The packets are in the memory that is lent.
    is_away: bool,
    used: usize,
    runs: Vec<Transmit>,
    /// Packets of the last run.
    in_run: usize,
    limits: RunLimits,
    room: Room,
    packets: usize,
}

/// A place for one packet, and the IPv4 Identification that it will travel under.
#[derive(Debug)]
pub struct TxSlot<'a> {
    /// Exactly the packet's bytes.
    pub bytes: &'a mut [u8],
    /// IPv4 Identification; the ICRC must be computed with it.
    pub ident: u16,
}

impl TxBatch {
    /// A batch over `capacity` bytes.
    pub fn new(capacity: usize, limits: RunLimits) -> TxBatch {
        TxBatch {
            bytes: vec![0; LEAD + capacity].into(),
            bytes_max: capacity,
            loan: None,
            is_away: false,
            used: 0,
            runs: Vec::with_capacity(RUNS_MAX),
            in_run: 0,
            limits,
            room: Room::default(),
            packets: 0,
        }
    }

    /// The same with room around each packet. It counts among the bytes of the batch and of a run.
    #[must_use]
    pub fn with_room(self, room: Room) -> TxBatch {
        TxBatch { room, ..self }
    }

    /// Takes room for one packet: at the end of the last run if it may join that,
    /// else in a new run. `None` when the batch is full.
    #[inline]
    pub fn reserve(&mut self, dest: &TxDest, len: usize) -> Option<TxSlot<'_>> {
        let joins = self.joins(dest, len);
        let mut start = self.place(joins);
        if self.is_away && !self.fits_away(dest, joins, start + len) {
            if !self.is_empty() {
                return None;
            }
            // What is not for the memory that is lent is made here.
            self.is_away = false;
            start = self.place(joins);
        }
        let used = start + len + self.room.after;
        if used > self.capacity() {
            return None;
        }
        let ident = if joins {
            let run = self.runs.last_mut().expect("joins() found a run");
            run.range.end = start + len;
            self.in_run += 1;
            self.in_run as u16 - 1
        } else {
            if self.runs.len() == RUNS_MAX {
                return None;
            }
            self.runs.push(Transmit {
                range: start..start + len,
                segment_size: len,
                gap: self.room.before + self.room.after,
                dest: *dest,
            });
            self.in_run = 1;
            0
        };
        self.used = used;
        self.packets += 1;
        let bytes = match &mut self.loan {
            Some(loan) if self.is_away => loan.memory.part_mut(start..start + len),
            _ => &mut self.bytes[LEAD..][start..start + len],
        };
        Some(TxSlot { bytes, ident })
    }

    /// Takes the last packet, of `len` bytes, back: it could not be built.
    pub fn retract(&mut self, len: usize) {
        let run = self.runs.last_mut().expect("a packet was reserved");
        self.in_run -= 1;
        if self.in_run == 0 {
            self.runs.pop();
            self.in_run = self.runs.last().map_or(0, Transmit::segments);
        } else {
            run.range.end -= run.gap + len;
        }
        let end = self.runs.last().map(|run| run.range.end + self.room.after);
        self.used = end.unwrap_or(0);
        self.packets -= 1;
        if self.is_empty() {
            self.is_away = self.loan.is_some();
        }
    }

    /// Has the next packets made in other memory, as far as they are for it; the others, if there are any, leave with an own batch. The batch
    /// is empty, has no [`Room`], and has lent nothing yet.
    pub fn lend(&mut self, loan: Loan) {
        debug_assert!(self.is_empty() && self.loan.is_none(), "there are packets");
        debug_assert!(loan.align.is_power_of_two() && self.room == Room::default());
        // There must be room for it at home.
        let len = loan.len.min(self.bytes.len() - LEAD);
        self.loan = Some(Loan { len, ..loan });
        self.is_away = true;
        self.used = 0;
    }

    /// True if memory is lent.
    #[inline]
    pub fn has_loan(&self) -> bool {
        self.loan.is_some()
    }

    /// True if the packets are in memory that is lent, or will be.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.is_away
    }

    /// Ends the loan; the runs stay, and name bytes of what was lent.
    pub fn end_loan(&mut self) -> Option<Box<dyn LentMemory>> {
        self.is_away = false;
        self.loan.take().map(|loan| loan.memory)
    }

    /// Ends the loan, and brings the packets that were made there here.
    #[cold]
    pub fn take_home(&mut self) -> Option<Box<dyn LentMemory>> {
        let mut loan = self.loan.take()?;
        if self.is_away {
            self.is_away = false;
            for run in &self.runs {
                let from = loan.memory.part_mut(run.range.clone());
                self.bytes[LEAD..][run.range.clone()].copy_from_slice(from);
            }
        }
        Some(loan.memory)
    }

    /// The runs, in order.
    #[inline]
    pub fn runs(&self) -> &[Transmit] {
        &self.runs
    }

    /// The bytes that the runs' ranges name.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        assert!(self.is_here(), "the bytes are in memory that is lent");
        &self.bytes[LEAD..][..self.used]
    }

    /// The bytes, to patch packets that must travel under another Identification.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_here(), "the bytes are in memory that is lent");
        &mut self.bytes[LEAD..][..self.used]
    }

    /// The runs, and the bytes that their ranges name, with the room around the packets: to make envelopes.
    pub fn parts_mut(&mut self) -> (&[Transmit], &mut [u8]) {
        assert!(self.is_here(), "the bytes are in memory that is lent");
        (&self.runs, &mut self.bytes[LEAD..][..self.used])
    }

    /// The packet that was reserved last, if that was after so much was used.
    pub(crate) fn last_from(&mut self, used: usize) -> &[u8] {
        let Some(run) = self.runs.last().filter(|_| self.used > used) else {
            return &[];
        };
        let packet = run.range.start + (self.in_run - 1) * run.stride()..run.range.end;
        match &mut self.loan {
            Some(loan) if self.is_away => loan.memory.part_mut(packet),
            _ => &self.bytes[LEAD..][packet],
        }
    }

    /// Number of packets.
    #[inline]
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Bytes that an empty one has room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        match &self.loan {
            Some(loan) if self.is_away => loan.len,
            _ => self.bytes_max,
        }
    }

    /// How many of them are used.
    #[inline]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Leaves a part of the room unused from now on, or gives it back. The batch is empty.
    pub fn set_capacity(&mut self, bytes: usize) {
        debug_assert!(self.is_empty(), "packets may lie beyond");
        self.bytes_max = bytes.min(self.bytes.len() - LEAD);
    }

    /// True if packets may leave as a train.
    #[inline]
    pub fn makes_runs(&self) -> bool {
        self.limits.segments_max > 1
    }

    /// True if nothing was gathered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Takes out the runs that `keep`, which is given their bytes, says no to. The bytes stay until the batch is cleared.
    pub fn retain_runs(&mut self, mut keep: impl FnMut(&Transmit, &[u8]) -> bool) {
        assert!(self.is_here(), "the bytes are in memory that is lent");
        let bytes = &self.bytes[LEAD..];
        (self.packets, self.in_run) = (0, 0);
        self.runs.retain(|run| {
            let stays = keep(run, &bytes[run.range.clone()]);
            if stays {
                self.in_run = run.segments();
                self.packets += self.in_run;
            }
            stays
        });
    }

    /// Gives every packet of the runs that were built without an ICRC the one that it needs on a network.
    pub fn seal(&mut self) {
        assert!(self.is_here(), "the bytes are in memory that is lent");
        for run in self.runs.iter_mut().filter(|run| run.dest.in_memory) {
            let seed = run.dest.icrc_seed();
            let strides = self.bytes[LEAD..][run.range.clone()].chunks_mut(run.stride());
            for (place, bytes) in strides.enumerate() {
                let len = run.segment_size.min(bytes.len());
                seed.seal(place as u16, &mut bytes[..len]);
            }
            run.dest.in_memory = false;
        }
    }

    /// Forgets the packets.
    #[inline]
    pub fn clear(&mut self) {
        self.used = 0;
        self.packets = 0;
        self.is_away = self.loan.is_some();
        self.runs.clear();
    }

    /// Changes what a run may be, from the next packet on.
    pub fn set_limits(&mut self, limits: RunLimits) {
        self.limits = limits;
    }

    /// The bytes of the runs are this batch's own.
    #[inline]
    fn is_here(&self) -> bool {
        !self.is_away || self.is_empty()
    }

    /// Where the next packet begins, in the last run or in a new one.
    #[inline]
    fn place(&self, joins: bool) -> usize {
        match &self.loan {
            Some(loan) if self.is_away && !joins => loan.start(self.used),
            _ => self.used + self.room.before,
        }
    }

    /// A packet may lie in the memory that is lent, which its end does not exceed. One that joins others is for where they are for.
    #[inline]
    fn fits_away(&self, dest: &TxDest, joins: bool, end: usize) -> bool {
        let loan = self.loan.as_ref();
        let is_for = |loan: &Loan| dest.in_memory && loan.to == (dest.remote, dest.chunk);
        loan.is_some_and(|loan| end <= loan.len && (joins || is_for(loan)))
    }

    /// Bytes of a run, at most.
    #[inline]
    fn run_max(&self) -> usize {
        match &self.loan {
            Some(loan) if self.is_away => loan.run_max,
            _ => self.limits.bytes_max,
        }
    }

    #[inline]
    fn joins(&self, dest: &TxDest, len: usize) -> bool {
        let Some(run) = self.runs.last() else {
            return false;
        };
        let run_len = run.range.len() + run.gap;
        // A run that ended with a shorter packet is closed.
        len <= run.segment_size
            && run_len == self.in_run * run.stride()
            && run_len + len + run.gap <= self.run_max()
            && self.in_run < self.limits.segments_max
            && run.dest == *dest
    }
}

#[cfg(test)]
mod loan_tests;
#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn dest(n: u8) -> TxDest {
        TxDest {
            local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            remote: IpAddr::V4(Ipv4Addr::new(127, 0, 0, n)),
            tos: 0,
            source_port: ROCE_V2_PORT,
            chunk: QpnChunk(0),
            in_memory: false,
            near_port: None,
        }
    }

    proptest! {
        /// Whatever is gathered: every run is legal for GSO, order is kept, and each
        /// packet got the Identification of its place.
        #[test]
        fn runs_are_what_gso_takes(
            packets in proptest::collection::vec((0u8..3, prop_oneof![Just(16usize), Just(1040), Just(4112), 16usize..4200]), 0..300),
            segments_max in 1usize..=128,
            room in prop_oneof![Just(Room::default()), Just(Room { before: 16, after: 12 })],
        ) {
            let limits = RunLimits { segments_max, bytes_max: RunLimits::UDP_PAYLOAD_MAX };
            let mut batch = TxBatch::new(256 << 10, limits).with_room(room);
            let mut sent = Vec::new();
            for (to, len) in packets {
                match batch.reserve(&dest(to), len) {
                    Some(slot) => {
                        prop_assert_eq!(slot.bytes.len(), len);
                        slot.bytes.fill(sent.len() as u8);
                        sent.push((to, len, slot.ident));
                    }
                    None => {
                        let taken = room.before + len + room.after;
                        prop_assert!(batch.used() + taken > batch.capacity() || batch.runs().len() == RUNS_MAX);
                        break;
                    }
                }
            }
            let mut expected = sent.iter();
            let mut at = 0;
            for run in batch.runs() {
                prop_assert_eq!(run.range.start, at + room.before);
                at = run.range.end + room.after;
                prop_assert!(run.segments() <= segments_max);
                prop_assert!(room.before + run.range.len() + room.after <= limits.bytes_max);
                for (k, packet) in run.packets(&batch.bytes()[run.range.clone()]).enumerate() {
                    let number = sent.len() - expected.len();
                    let &(to, len, ident) = expected.next().expect("as many as sent");
                    prop_assert_eq!((dest(to), len, ident as usize), (run.dest, packet.len(), k));
                    prop_assert!(packet.iter().all(|&byte| byte == number as u8));
                }
            }
            prop_assert!(expected.next().is_none());
            prop_assert_eq!(batch.packets(), sent.len());
        }
    }

    #[test]
    fn connections_have_ports_of_their_own_and_keep_them() {
        let port = |a, b| SourcePorts::PerQp.port(Qpn::new(a), Qpn::new(b));
        assert_eq!(SourcePorts::Roce.port(Qpn::new(7), Qpn::new(9)), 4791);
        assert_eq!(port(0x1234, 0x5678), port(0x1234, 0x5678));
        let mut ports: Vec<u16> = (2..1002).map(|n| port(n, 0x35_1234)).collect();
        assert!(ports.iter().all(|&port| port >= 0xc000));
        ports.sort_unstable();
        ports.dedup();
        assert!(ports.len() > 900, "{} of 1000", ports.len());
    }

    #[test]
    fn a_packet_can_be_taken_back() {
        let limits = RunLimits {
            segments_max: 64,
            bytes_max: 65_507,
        };
        let (before, after) = (16, 12);
        for room in [Room::default(), Room { before, after }] {
            let mut batch = TxBatch::new(4096, limits).with_room(room);
            assert!(batch.reserve(&dest(1), 100).is_some());
            assert!(batch.reserve(&dest(1), 60).is_some());
            batch.retract(60);
            assert_eq!(batch.reserve(&dest(1), 100).expect("room").ident, 1);
            batch.retract(100);
            batch.retract(100);
            assert!(batch.is_empty() && batch.runs().is_empty());
            assert!(batch.bytes().is_empty());
        }
    }
}
