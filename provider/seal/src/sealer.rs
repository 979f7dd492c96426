//! Seals packets.

use core::fmt;

use crate::aead::Key;
use crate::derive;
use crate::envelope::{
    BTH, CLEAR, Envelope, HEADER, ICRC, Mode, OVERHEAD, PAIR, RIDER_LEN, RIDER_MAX, TAG, dest_qp,
};
use crate::keys::Keys;
use crate::pair::{self, Pair};
use crate::senders::Table;
use crate::{Hide, Path};

/// Destinations that have keys; with more, all are forgotten.
const PATHS_MAX: usize = 1 << 14;

/// Packets under one key: of 4 KiB, a terabyte, which leaves an attacker a chance of less than 2^-55 to learn anything.
const PACKETS_MAX: u64 = 1 << 28;

/// What a sender is known by. It follows from twelve random bytes; with the same ones twice under one secret, sealing protects nothing.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    sender: u32,
    /// Counters begin here: two that drew the same number use the same counters with a chance of one in millions.
    start: u64,
}

impl Identity {
    /// From random bytes of the system.
    pub fn new(random: [u8; 12]) -> Identity {
        let [s0, s1, s2, s3, start @ ..] = random;
        Identity {
            sender: u32::from_be_bytes([s0, s1, s2, s3]),
            // Counters never reach the end.
            start: u64::from_be_bytes(start) >> 2,
        }
    }
}

/// Seals the packets of one sender.
pub struct Sealer {
    keys: Keys,
    mode: Mode,
    identity: Identity,
    epoch: u8,
    change_at: u64,
    is_worn: bool,
    paths: Table<Path, Option<Outgoing>>,
    /// By the way of their packets, and the QP that they are for.
    pairs: Table<(Path, u32), Option<pair::Outgoing>>,
    hide: Hide,
}

struct Outgoing {
    key: Key,
    next: u64,
}

impl Sealer {
    /// One that begins now.
    pub fn new(keys: Keys, mode: Mode, identity: Identity, now: u64) -> Sealer {
        Sealer::hidden(keys, mode, identity, now, |_, _| {})
    }

    /// One that tells where its keys lie.
    pub fn hidden(keys: Keys, mode: Mode, identity: Identity, now: u64, hide: Hide) -> Sealer {
        keys.hide(hide);
        Sealer {
            epoch: keys.sending(now).number,
            change_at: keys.change_at(now),
            keys,
            mode,
            identity,
            is_worn: false,
            paths: Table::new(hide),
            pairs: Table::new(hide),
            hide,
        }
    }

    /// From now on packets to a QP are sealed under the keys of its pair. Those of another pair to the same QP are over. Returns the number by which
    /// [`Sealer::unbind`] knows it.
    pub fn bind(&mut self, pair: &Pair, path: Path, dest_qp: u32) -> u32 {
        self.pairs.remove(&(path, dest_qp));
        let out = pair::Outgoing::new(pair, path, self.mode, self.hide);
        self.pairs.insert((path, dest_qp), out);
        pair.peer
    }

    /// The pair with this number is over: its keys are overwritten. Nothing happens if another has its place by now.
    pub fn unbind(&mut self, path: Path, dest_qp: u32, number: u32) {
        if let Some(place) = self.pairs.find(&(path, dest_qp))
            && self.pairs.at(place).number == number
        {
            self.pairs.remove(&(path, dest_qp));
        }
    }

    /// Gives back the memory of keys of pairs that are over.
    pub fn shrink(&mut self) {
        self.pairs.shrink();
    }

    /// True if it has pairs: which keys a packet is sealed under depends on its QP ([`Sealer::seal`]), and not on its way alone
    /// ([`Sealer::on`]).
    #[inline]
    pub fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Seals a packet as [`PathSealer::seal`] does, or under the keys of its QP's pair.
    ///
    /// # Panics
    /// As [`PathSealer::seal`].
    #[inline]
    pub fn seal(&mut self, path: Path, packet: &[u8], to: &mut [u8]) {
        lay(packet, to);
        self.seal_here(path, to, packet.len(), None);
    }

    /// Seals a packet with a rider as [`PathSealer::seal_with`] does, or under the keys of its QP's pair.
    ///
    /// # Panics
    /// As [`PathSealer::seal_with`].
    #[inline]
    pub fn seal_with(&mut self, path: Path, packet: &[u8], rider: &[u8], to: &mut [u8]) {
        lay(packet, to);
        self.seal_here(path, to, packet.len(), Some(rider));
    }

    /// Seals a packet, perhaps with a rider, as [`PathSealer::seal_here`] does, or under the keys of its QP's pair.
    ///
    /// # Panics
    /// As [`PathSealer::seal_with`].
    #[inline]
    pub fn seal_here(&mut self, path: Path, bytes: &mut [u8], len: usize, rider: Option<&[u8]>) {
        let Some(place) = self.pairs.find(&(path, dest_qp(&bytes[HEADER..]))) else {
            return self.on(path).seal_here(bytes, len, rider);
        };
        let out = self.pairs.at(place);
        let sender = out.number;
        let (counter, key) = out.take();
        let envelope = Envelope {
            mode: self.mode,
            has_rider: rider.is_some(),
            epoch: PAIR,
            key_id: self.keys.id(),
            sender,
            counter,
        };
        seal(key, &envelope, bytes, len, rider);
        if rider.is_some() {
            out.take();
        }
    }

    /// How much it does for each packet.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// True if it is time for another identity: the epoch changes, or a key was used for long.
    #[inline]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.change_at || self.is_worn || self.paths.len() > PATHS_MAX
    }

    /// Goes on under another identity, and in the epoch of this time.
    pub fn renew(&mut self, identity: Identity, now: u64) {
        self.paths.retain(|_| false);
        self.identity = identity;
        self.is_worn = false;
        let epoch = self.keys.sending_after(self.epoch, now);
        self.epoch = epoch.number;
        self.change_at = self.keys.change_at(now.max(epoch.since));
    }

    /// Goes on with other keys.
    pub fn set_keys(&mut self, keys: Keys, identity: Identity, now: u64) {
        keys.hide(self.hide);
        self.keys = keys;
        self.renew(identity, now);
    }

    /// Ready to seal packets of a path.
    #[inline]
    pub fn on(&mut self, path: Path) -> PathSealer<'_> {
        let found = self.paths.find(&path);
        let place = found.unwrap_or_else(|| self.add(path));
        let envelope = Envelope {
            mode: self.mode,
            has_rider: false,
            epoch: self.epoch,
            key_id: self.keys.id(),
            sender: self.identity.sender,
            counter: 0,
        };
        PathSealer {
            out: self.paths.at(place),
            envelope,
            is_worn: &mut self.is_worn,
            start: self.identity.start,
        }
    }

    #[cold]
    fn add(&mut self, path: Path) -> usize {
        let epoch = self.keys.accepted(self.epoch, 0);
        let epoch = epoch.expect("the epoch that is used is one of the file");
        let sender = self.identity.sender;
        let key = derive::key(&epoch.secret, &path, self.mode, sender);
        let next = self.identity.start;
        self.paths.insert(path, Outgoing { key, next })
    }

    /// True if it sends to a path.
    pub fn sends_on(&mut self, path: &Path) -> bool {
        self.paths.find(path).is_some()
    }

    /// True if it sealed a packet with this header on this path: what quotes one comes from where packets pass.
    pub fn has_sent(&mut self, path: &Path, envelope: &Envelope) -> bool {
        let start = self.identity.start;
        let Some(place) = self.paths.find(path) else {
            return false;
        };
        let next = self.paths.at(place).next;
        envelope.sender == self.identity.sender
            && envelope.epoch == self.epoch
            && envelope.mode == self.mode
            && (start..next).contains(&envelope.counter)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("mode", &self.mode)
            .field("epoch", &self.epoch)
            .field("paths", &self.paths.len())
            .finish_non_exhaustive()
    }
}

/// Seals packets of one path ([`Sealer::on`]).
pub struct PathSealer<'a> {
    out: &'a mut Outgoing,
    envelope: Envelope,
    is_worn: &'a mut bool,
    start: u64,
}

impl PathSealer<'_> {
    /// Seals a packet, of which the last four bytes (its ICRC) are left out, to a place that is [`OVERHEAD`] bytes longer.
    ///
    /// # Panics
    /// If the place is not, or the packet is shorter than a BTH and an ICRC.
    #[inline]
    pub fn seal(&mut self, packet: &[u8], to: &mut [u8]) {
        lay(packet, to);
        self.seal_here(to, packet.len(), None);
    }

    /// Seals a packet together with a short one to the same QP, its *rider*, which costs one envelope in place of two. The receiver takes the
    /// rider first. The place has [`sealed_len`] bytes.
    ///
    /// # Panics
    /// If the place has not, one of the two is shorter than a BTH and an ICRC, or the rider is for another QP or longer than [`RIDER_MAX`].
    #[inline]
    pub fn seal_with(&mut self, packet: &[u8], rider: &[u8], to: &mut [u8]) {
        lay(packet, to);
        self.seal_here(to, packet.len(), Some(rider));
    }

    /// Seals a packet of `len` bytes where it lies, [`HEADER`] bytes behind the beginning of the place: all but its BTH stays there.
    ///
    /// # Panics
    /// As [`PathSealer::seal_with`].
    #[inline]
    pub fn seal_here(&mut self, bytes: &mut [u8], len: usize, rider: Option<&[u8]>) {
        let counter = self.out.next;
        self.out.next += 1 + u64::from(rider.is_some());
        *self.is_worn |= self.out.next - self.start >= PACKETS_MAX;
        let envelope = Envelope {
            counter,
            has_rider: rider.is_some(),
            ..self.envelope
        };
        seal(&self.out.key, &envelope, bytes, len, rider);
    }
}

/// Bytes of a sealed packet with a rider, of the lengths of both.
pub const fn sealed_len(packet: usize, rider: usize) -> usize {
    packet + OVERHEAD + rider - ICRC + RIDER_LEN
}

/// Puts a packet where it will be sealed.
#[inline]
fn lay(packet: &[u8], to: &mut [u8]) {
    to[HEADER..][..packet.len()].copy_from_slice(packet);
}

/// Seals the packet in the middle of the bytes under a key.
#[inline]
fn seal(key: &Key, envelope: &Envelope, bytes: &mut [u8], packet: usize, rider: Option<&[u8]>) {
    let len = rider.map_or(packet + OVERHEAD, |rider| sealed_len(packet, rider.len()));
    assert_eq!(len, bytes.len(), "the place has another size");
    let (sealed, tag) = bytes.split_at_mut(len - TAG);
    sealed.copy_within(HEADER..CLEAR, 0);
    sealed[BTH..CLEAR].copy_from_slice(&envelope.emit());
    if let Some(rider) = rider {
        let fits = (BTH + ICRC..=RIDER_MAX).contains(&rider.len());
        assert!(fits && dest_qp(rider) == dest_qp(sealed), "no rider");
        let rider = &rider[..rider.len() - ICRC];
        let (place, len) = sealed[HEADER + packet - ICRC..].split_at_mut(rider.len());
        place.copy_from_slice(rider);
        len[0] = rider.len() as u8;
    }
    tag.copy_from_slice(&match envelope.mode {
        Mode::Seal => {
            let (clear, body) = sealed.split_at_mut(CLEAR);
            key.seal(envelope.counter, clear, body)
        }
        Mode::Auth => key.tag(envelope.counter, sealed),
    });
}

impl fmt::Debug for PathSealer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.envelope.fmt(f)
    }
}
