//! What arrives through memory: a ring that one neighbour writes.

use std::net::{IpAddr, SocketAddr};

use urxe_core::{ACK_LEN, RxPath};
use urxe_ring::{Consumer, Mark, Pop, RECORD_MAX};
use urxe_udp::Datagram;
use urxe_wire::Gid;

use super::manner::{Manner, Taking};
use super::record::{PACKETS, PATH, PATH_LEN, SEALED};
use crate::engine::carrier::intake::Intake;
use crate::share::Neighbour;

/// Bytes that are taken from one ring before others have their turn, for each call that a socket would be asked with. A turn is several
/// calls, and its ACKs leave when it is over: with 128 KiB here the sender waits for them with its window used up.
const BYTES_PER_CALL: usize = 48 << 10;

/// A short packet counts for as many: so a turn ends after some 128 packets, and their ACK leaves while the sender has more under way.
/// `urxe bench write --size 8` has 13.4 M/s, and 10.3 without this.
const PACKET_WORTH: usize = 1536;

/// Packets of so many bytes, at least so many of them, are taken where they lie: there may be some in the middle of a message, with the shortest
/// path MTU. (A train that ends with a packet as long as an ACK may be one of which that is handled first.)
const IN_PLACE_MIN: usize = 256 + 16;
const IN_PLACE_PACKETS: usize = 3;

/// Where records are copied to before anything looks at them: their writer may change the memory at any time.
pub(super) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer(vec![0; RECORD_MAX].into())
    }
}

impl core::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Buffer").field(&self.0.len()).finish()
    }
}

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) from: Neighbour,
    consumer: Consumer,
    paths: Vec<Path>,
    manner: Manner,
    /// The QP of the next record's first packet was fetched into the cache.
    is_fetched: bool,
    /// No more comes, and all that came was taken.
    pub(super) is_over: bool,
    /// The writer is gone; what it wrote is still read.
    pub(super) is_dead: bool,
}

#[derive(Debug)]
struct Path {
    source: SocketAddr,
    /// Of packets without an ICRC, and of those with one.
    plain: RxPath,
    sealed: RxPath,
}

impl Incoming {
    pub(super) fn new(from: Neighbour, consumer: Consumer) -> Incoming {
        Incoming {
            from,
            consumer,
            paths: Vec::new(),
            manner: Manner::default(),
            is_fetched: false,
            is_over: false,
            is_dead: false,
        }
    }

    /// Takes packets out of the ring; true if there were any. If a thread sleeps, the writer is asked anew to wake it: it does so
    /// once each time.
    #[inline]
    pub(super) fn receive(
        &mut self,
        calls_max: u32,
        buffer: &mut Buffer,
        has_sleeper: bool,
        intake: &mut Intake<'_>,
    ) -> bool {
        let mut left = BYTES_PER_CALL * calls_max as usize;
        let mut any = false;
        loop {
            match self.consumer.peek() {
                Pop::Empty => {
                    self.is_over = self.is_dead;
                    if any && has_sleeper && !self.consumer.doze() {
                        continue;
                    }
                    break;
                }
                Pop::Record { len, mark } => {
                    any = true;
                    self.take_found(len, mark, buffer, intake);
                    left = left.saturating_sub(len.max(packets(len, mark.size) * PACKET_WORTH));
                    if left == 0 {
                        // The last one may have been the last there was.
                        intake.left_lying |= has_sleeper && !self.consumer.doze();
                        break;
                    }
                }
                Pop::Closed => {
                    self.is_over = true;
                    break;
                }
                Pop::Broken => {
                    intake.counters.rings_broken += 1;
                    self.is_over = true;
                    break;
                }
            }
        }
        if any {
            self.consumer.release();
        }
        any
    }

    /// Takes the record that was found.
    #[inline]
    fn take_found(
        &mut self,
        len: usize,
        mark: Mark,
        Buffer(buffer): &mut Buffer,
        intake: &mut Intake<'_>,
    ) {
        let size = usize::from(mark.size);
        if size >= IN_PLACE_MIN && len >= IN_PLACE_PACKETS * size {
            return self.take_long(len, mark, buffer, intake);
        }
        self.take_copied(len, mark, buffer, intake);
    }

    /// One that may be a part of a stream: perhaps where it lies.
    #[inline(never)]
    fn take_long(&mut self, len: usize, mark: Mark, buffer: &mut [u8], intake: &mut Intake<'_>) {
        let size = usize::from(mark.size);
        let path = self.paths.get(usize::from(mark.tag));
        let is_plain = mark.kind == PACKETS && len % size != ACK_LEN && intake.tap.is_none();
        let taking = match path {
            Some(_) if is_plain => self.manner.begin(),
            _ => Taking::COPIED,
        };
        match path {
            Some(path) if !taking.is_copied => {
                let consumer = &self.consumer;
                let train = (consumer.words(), len, size);
                intake.counters.rx_records += 1;
                intake.counters.rx_in_place += 1;
                intake.train_in_place(&path.plain, path.source, train, buffer, |at, packet| {
                    consumer.copy(at, packet);
                });
                self.consumer.advance();
            }
            _ => self.take_copied(len, mark, buffer, intake),
        }
        self.manner.end(&taking, len);
    }

    #[inline(always)]
    fn take_copied(&mut self, len: usize, mark: Mark, buffer: &mut [u8], intake: &mut Intake<'_>) {
        let bytes = &mut buffer[..len];
        self.consumer.copy(0, bytes);
        self.consumer.advance();
        if intake.has_many() {
            self.prefetch(mark, bytes, intake);
        }
        self.take(mark, bytes, intake);
    }

    /// Fetches the QPs of this record into the cache, as far as that was not done a record before; and that of the next one's first packet, while this one
    /// is taken.
    fn prefetch(&mut self, mark: Mark, bytes: &[u8], intake: &Intake<'_>) {
        /// A BTH up to the destination QPN.
        const HEAD: usize = 8;
        let size = usize::from(mark.size).max(1);
        let rest = bytes.chunks(size).skip(usize::from(self.is_fetched));
        rest.for_each(|packet| intake.prefetch(packet));
        self.is_fetched = false;
        if let Pop::Record { len: HEAD.., .. } = self.consumer.peek() {
            let mut head = [0; HEAD];
            self.consumer.copy(0, &mut head);
            intake.prefetch(&head);
            self.is_fetched = true;
        }
    }

    #[inline(always)]
    fn take(&mut self, mark: Mark, bytes: &mut [u8], intake: &mut Intake<'_>) {
        if mark.kind == PATH {
            self.learn(mark.tag, bytes, intake);
            return;
        }
        let path = self.paths.get(usize::from(mark.tag));
        let (Some(path), PACKETS | SEALED, 1..) = (path, mark.kind, mark.size) else {
            intake.counters.rx_errors += 1;
            return;
        };
        let segment_size = usize::from(mark.size);
        let mut rx_path = if mark.kind == PACKETS {
            &path.plain
        } else {
            &path.sealed
        };
        if intake.tap.is_some() && mark.kind == PACKETS {
            // A capture shows what an adapter would have sent.
            for (place, packet) in bytes.chunks_mut(segment_size).enumerate() {
                path.sealed.seed.seal(place as u16, packet);
            }
            rx_path = &path.sealed;
        }
        let datagram = Datagram {
            data: bytes,
            segment_size,
            gap: 0,
            source: path.source,
            dst_ip: None,
            tos: rx_path.tos,
            truncated: false,
        };
        intake.counters.rx_records += 1;
        intake.datagram(rx_path, &datagram, &[]);
    }

    /// The writer tells by what way the packets with a tag come.
    #[cold]
    fn learn(&mut self, tag: u16, bytes: &[u8], intake: &mut Intake<'_>) {
        let place = usize::from(tag);
        let Ok(bytes) = <&[u8; PATH_LEN]>::try_from(bytes) else {
            intake.counters.rx_errors += 1;
            return;
        };
        let addr = |at: usize| -> IpAddr {
            let gid: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen bytes");
            Gid(gid).into()
        };
        let (source, local, tos) = (addr(0), addr(16), bytes[34]);
        let port = u16::from_be_bytes([bytes[32], bytes[33]]);
        let path = Path {
            source: SocketAddr::new(source, port),
            plain: RxPath::in_memory(source, local, tos),
            sealed: RxPath::new(source, port, local, tos),
        };
        // Paths are told in order: a gap is damage.
        if place > self.paths.len() {
            intake.counters.rx_errors += 1;
        } else if place == self.paths.len() {
            self.paths.push(path);
        } else {
            self.paths[place] = path;
        }
    }

    /// There is nothing to take.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Has the writer wake this side from now on. False if there is something to read.
    pub(super) fn doze(&mut self) -> bool {
        self.consumer.doze()
    }

    /// The writer has woken this side, maybe for what was read already, and would not do so again.
    pub(super) fn is_roused(&self) -> bool {
        self.consumer.is_roused()
    }

    /// The writer need not wake this side.
    pub(super) fn rouse(&mut self) {
        self.consumer.rouse();
    }
}

/// Packets of a record; what tells a path counts as one.
#[inline]
fn packets(len: usize, segment_size: u16) -> usize {
    match usize::from(segment_size) {
        0 => 1,
        size => len.div_ceil(size),
    }
}
