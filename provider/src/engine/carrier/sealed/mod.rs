//! Envelopes around what goes through sockets (docs/SEALED.md): packets are sealed when the sockets' datagrams are made, and opened
//! when they come in, before anything looks at them. What goes through memory is not sealed.

mod acts;
mod keyed;
mod peers;
mod row;
mod strays;

use core::net::IpAddr;
use core::ops::Range;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use urxe_core::ends_pair;
use urxe_core::transmit::{Room, Transmit as Run, TxBatch};
use urxe_core::{RxPath, Time};
use urxe_seal::{
    Envelope, HEADER, Hide, Identity, Keys, Mode, Notice, OVERHEAD, Opener, Path, RIDER_MAX,
    Refusal, Sealer, sealed_len,
};
use urxe_udp::{Datagram, Dest, Left, RecvBatch, Transmit};
use urxe_wire::IcrcVerdict;

use self::peers::{Head, News, Peers};
use self::row::{Apart, Row};
use self::strays::Strays;
use super::memory::wake;
use crate::engine::upkeep::counters::EngineCounters;
use crate::error::Error;
use crate::host::random::random;
use crate::mem::keep_out_of_dumps;
use crate::security::{Sealing, Seen, read_key_file};
use crate::share::{PROBE_LEN, is_probe};

/// How often it is looked whether the key file has changed.
const LOOK_NS: u64 = 1_000_000_000;

/// Keys stay out of core dumps.
const HIDE: Hide = keep_out_of_dumps;

/// What a packet's envelope takes around it in a batch.
pub(super) const ROOM: Room = Room {
    before: HEADER,
    after: OVERHEAD - HEADER,
};

/// A packet of so many bytes at most takes its ACK along. Longer ones have room in their datagram for one packet only, and less to gain.
const WITH_RIDER_MAX: usize = 256;

/// Seals and opens for the sockets of one engine.
#[derive(Debug)]
pub(in crate::engine) struct Envelopes {
    sealer: Sealer,
    opener: Opener,
    sealing: Sealing,
    clock: Wall,
    /// The key file as it was read, and when it is looked at again.
    seen: Option<Seen>,
    look_at: Time,
    /// Headers of the packets that were received last, in order, but for those that are apart; and where each datagram's end.
    opened: Vec<Envelope>,
    apart: Apart,
    ends: Vec<Ends>,
    /// Packets may have been damaged on purpose: those leave damaged.
    damages: bool,
    peers: Peers,
    /// By QP: the way of its packets, the QP that they are for, and the number of their pair, where they are under keys of their own.
    bound: HashMap<u32, (Path, u32, u32)>,
    strays: Strays,
}

/// Where the headers of a datagram's packets end, and its packets that are apart.
#[derive(Clone, Copy, Default, Debug)]
struct Ends {
    opened: usize,
    apart: usize,
}

/// The time of day: that of the last look at it, and what has passed since.
#[derive(Clone, Copy, Debug)]
struct Wall {
    seconds: u64,
    at: Time,
}

impl Wall {
    fn look(at: Time) -> Wall {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Wall {
            seconds: since.map_or(0, |since| since.as_secs()),
            at,
        }
    }

    #[inline]
    fn seconds(&self, now: Time) -> u64 {
        self.seconds + now.since_ns(self.at) / 1_000_000_000
    }
}

fn identity() -> Result<Identity, Error> {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&random()?.to_ne_bytes());
    bytes[8..].copy_from_slice(&random()?.to_ne_bytes()[..4]);
    Ok(Identity::new(bytes))
}

impl Envelopes {
    /// Reads the key file. `damages`: packets meet damage on purpose before they come here.
    pub(super) fn open(sealing: &Sealing, damages: bool) -> Result<Envelopes, Error> {
        let seen = Seen::at(&sealing.key_file);
        let keys = Keys::new(&read_key_file(&sealing.key_file)?);
        let clock = Wall::look(Time::ZERO);
        let mode_min = sealing.mode_min;
        Ok(Envelopes {
            sealer: Sealer::hidden(keys.clone(), sealing.mode, identity()?, clock.seconds, HIDE),
            opener: Opener::hidden(keys, mode_min, HIDE),
            sealing: sealing.clone(),
            clock,
            seen,
            // The first call has the engine's time.
            look_at: Time::ZERO,
            opened: Vec::new(),
            apart: Apart::default(),
            ends: Vec::new(),
            damages,
            peers: Peers::default(),
            bound: HashMap::new(),
            strays: Strays::default(),
        })
    }

    /// The key file's number.
    pub(super) fn key_id(&self) -> u16 {
        self.opener.key_id()
    }

    /// What captures say of themselves.
    pub(super) fn note_of_captures(&self) -> String {
        let (mode, key) = (self.sealing.mode, self.key_id());
        format!(
            "Packets that passed a socket were sealed (mode {mode}, key {key:04x}); they are here as they were inside of their envelopes"
        )
    }

    /// Seals all packets of a batch where they lie, and makes the descriptors of what leaves.
    pub(super) fn seal(&mut self, batch: &mut TxBatch, now: Time, out: &mut Vec<Transmit>) {
        self.keep_up(now);
        let (runs, all) = batch.parts_mut();
        for run in runs {
            let path = Path {
                source: run.dest.local,
                dest: run.dest.remote,
            };
            if !self.sealer.sends_on(&path) {
                self.peers.expect(path, now);
            }
            let has_pairs = self.sealer.has_pairs();
            let start = run.range.start - ROOM.before;
            let bytes = &mut all[start..run.range.end + ROOM.after];
            let is_damaged = |place: usize, packet: &[u8]| {
                self.damages
                    && run.dest.icrc_seed().verify(place as u16, packet) == IcrcVerdict::Bad
            };
            let dest = Dest::new((run.dest.remote, urxe_seal::PORT).into());
            if let Some((packet, rider)) = with_rider(run, &bytes[ROOM.before..]) {
                let (len, rider_len) = (packet.len(), rider.len());
                let is_damaged = is_damaged(0, packet) || is_damaged(1, rider);
                let mut copy = [0; RIDER_MAX];
                copy[..rider_len].copy_from_slice(rider);
                let bytes = &mut bytes[..sealed_len(len, rider_len)];
                let rider = Some(&copy[..rider_len]);
                self.sealer.seal_here(path, bytes, len, rider);
                damage(bytes, is_damaged);
                let range = start..start + bytes.len();
                out.push(Transmit::run(range, 0, dest).with_tos(run.dest.tos));
                continue;
            }
            let size = run.segment_size + OVERHEAD;
            for (place, bytes) in bytes.chunks_mut(size).enumerate() {
                let len = bytes.len() - OVERHEAD;
                let is_damaged = is_damaged(place, &bytes[ROOM.before..][..len]);
                match has_pairs {
                    true => self.sealer.seal_here(path, bytes, len, None),
                    false => self.sealer.on(path).seal_here(bytes, len, None),
                }
                damage(bytes, is_damaged);
            }
            let segment = if run.segments() > 1 { size } else { 0 };
            let range = start..start + bytes.len();
            out.push(Transmit::run(range, segment, dest).with_tos(run.dest.tos));
        }
    }

    /// Opens what was received at an address, where it lies. With `icrcs` the packets get one each, as they would have on a network.
    pub(super) fn open_all(
        &mut self,
        local: IpAddr,
        batch: &mut RecvBatch,
        now: Time,
        icrcs: bool,
        counters: &mut EngineCounters,
    ) {
        if now >= self.look_at {
            self.look(now);
        }
        self.opened.clear();
        self.ends.clear();
        self.apart.clear();
        batch.rewrite(|about, bytes| {
            let before = (self.opened.len(), self.apart.len());
            let left = if is_plain(&about, bytes) {
                Left {
                    range: 0..bytes.len(),
                    segment_size: about.segment_size,
                    gap: 0,
                }
            } else {
                self.open_datagram(local, &about, bytes, now, counters)
            };
            if !left.range.is_empty() {
                let (opened, apart) = (self.opened.len(), self.apart.len());
                self.ends.push(Ends { opened, apart });
            }
            if icrcs && self.opened.len() > before.0 {
                let path = RxPath::new(about.source.ip(), about.source.port(), local, about.tos);
                for (place, packet) in left.packets_mut(bytes).enumerate() {
                    path.seed.seal(place as u16, packet);
                }
                self.apart.add_icrcs(before.1, &path);
            }
            left
        });
    }

    /// Headers of the packets of a datagram that [`Envelopes::open_all`] left, by its place among those; none if it was not sealed.
    pub(super) fn headers(&self, datagram: usize) -> &[Envelope] {
        let (start, end) = self.ends_of(datagram);
        &self.opened[start.opened..end.opened]
    }

    /// Packets that come behind such a datagram, each with its header.
    #[inline]
    pub(super) fn behind<'a>(
        &'a self,
        place: usize,
        datagram: Datagram<'a>,
    ) -> impl Iterator<Item = (Datagram<'a>, &'a Envelope)> {
        let (start, end) = self.ends_of(place);
        self.apart.datagrams(start.apart..end.apart, datagram)
    }

    #[inline]
    fn ends_of(&self, datagram: usize) -> (Ends, Ends) {
        let before = datagram.checked_sub(1);
        let start = before.and_then(|before| self.ends.get(before));
        let start = start.copied().unwrap_or_default();
        let end = self.ends.get(datagram);
        (start, end.copied().unwrap_or(start))
    }

    #[inline]
    fn open_datagram(
        &mut self,
        local: IpAddr,
        about: &Datagram<'_>,
        bytes: &mut [u8],
        now: Time,
        counters: &mut EngineCounters,
    ) -> Left {
        let path = Path {
            source: about.source.ip(),
            dest: local,
        };
        if let Some(notice) = Notice::parse(bytes) {
            self.peers.hear(News::Notice {
                path,
                notice,
                is_genuine: false,
            });
            return Left::default();
        }
        let (total, size) = (bytes.len(), about.segment_size.max(1));
        let seconds = self.clock.seconds(now);
        let (mut row, mut from) = (Row::new(size), 0);
        while from < total {
            let end = total.min(from + size);
            let to = row.next(from);
            match self.opener.open(&path, seconds, bytes, from..end, to) {
                Ok(opened) => {
                    counters.seal_opened += 1;
                    let (rider, packet) =
                        (to..to + opened.rider, to + opened.rider..to + opened.len);
                    if peers::is_control(&bytes[packet.clone()]) {
                        self.peers.hear_control(path, &bytes[packet]);
                    } else {
                        let has_rider = !rider.is_empty();
                        if has_rider {
                            self.lay(&mut row, bytes, rider, true, opened.riders());
                        }
                        self.lay(&mut row, bytes, packet, has_rider, opened.envelope);
                    }
                }
                Err(Refusal::UnknownPair) => self.strays.keep(path, about, &bytes[from..end]),
                Err(refusal) => {
                    // What is in the clear is as it was.
                    let head = Head::of(&bytes[from..end]);
                    self.refuse(&path, refusal, head, now, counters);
                }
            }
            from = end;
        }
        row.left()
    }

    /// Puts an opened packet behind those of its datagram: into the row, if it lies where the next one belongs, or apart.
    #[inline]
    fn lay(
        &mut self,
        row: &mut Row,
        bytes: &[u8],
        packet: Range<usize>,
        has_rider: bool,
        envelope: Envelope,
    ) {
        if row.takes(&packet, has_rider) {
            self.opened.push(envelope);
        } else {
            self.apart.keep(&bytes[packet], envelope);
        }
    }

    #[cold]
    fn refuse(
        &mut self,
        path: &Path,
        refusal: Refusal,
        head: Option<Head>,
        now: Time,
        counters: &mut EngineCounters,
    ) {
        counters.count_refusal(refusal);
        if let Refusal::UnknownEpoch(_) = refusal {
            // Other hosts may have a newer file, and this one, too.
            self.look_at = self.look_at.min(now + LOOK_NS / 10);
        }
        if let Some(head) = head {
            self.peers.refuse(*path, refusal, head, now);
        }
    }

    /// Once a second, and in time for another epoch.
    #[inline]
    fn keep_up(&mut self, now: Time) {
        if now >= self.look_at {
            self.look(now);
        }
        if self.sealer.is_due(self.clock.seconds(now)) {
            self.renew(now);
        }
    }

    #[cold]
    fn renew(&mut self, now: Time) {
        // Without random numbers the old identity goes on: under the old key, of which counters are left.
        if let Ok(identity) = identity() {
            self.sealer.renew(identity, self.clock.seconds(now));
        }
    }

    /// Looks at the clock, and whether the key file has changed. One that cannot be used is not used: packets are sealed as they were.
    #[cold]
    pub(super) fn look(&mut self, now: Time) {
        self.look_at = now + LOOK_NS;
        self.clock = Wall::look(now);
        let seen = Seen::at(&self.sealing.key_file);
        if seen.is_none() || seen == self.seen {
            return;
        }
        self.seen = seen;
        let file = read_key_file(&self.sealing.key_file);
        match file.and_then(|file| Ok((file, identity()?))) {
            Ok((file, _)) if file.id() != self.key_id() => eprintln!(
                "urxe: {} is now another key ({:04x}), which this process does not use: it has begun with {:04x}",
                self.sealing.key_file.display(),
                file.id(),
                self.key_id()
            ),
            Ok((file, identity)) => {
                let keys = Keys::new(&file);
                self.opener.set_keys(keys.clone());
                let seconds = self.clock.seconds(now);
                self.sealer.set_keys(keys, identity, seconds);
            }
            Err(error) => eprintln!("urxe: {error}; the key that was read before is used on"),
        }
    }

    /// How packets are sealed.
    fn mode(&self) -> Mode {
        self.sealing.mode
    }
}

/// What was damaged on purpose leaves damaged.
#[inline]
fn damage(sealed: &mut [u8], is_damaged: bool) {
    if let Some(last) = sealed.last_mut() {
        *last ^= u8::from(is_damaged);
    }
}

/// A packet and the ACK behind it, if the two are all of a run, and may share an envelope.
#[inline]
fn with_rider<'a>(run: &Run, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    if run.segments() != 2 || run.segment_size > WITH_RIDER_MAX {
        return None;
    }
    let mut packets = run.packets(&bytes[..run.range.len()]);
    let (packet, rider) = (packets.next()?, packets.next()?);
    let fits = rider.len() <= RIDER_MAX && packet[5..8] == rider[5..8];
    (fits && ends_pair(rider, [packet].into_iter())).then_some((packet, rider))
}

/// What owners of one address send each other: it says nothing of packets, and is not sealed.
fn is_plain(about: &Datagram<'_>, bytes: &[u8]) -> bool {
    about.truncated || wake::parse(bytes).is_some() || (is_probe(bytes) && bytes.len() == PROBE_LEN)
}
