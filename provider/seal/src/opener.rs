//! Opens packets, or says why not.

use core::fmt;
use core::ops::Range;
use std::collections::HashMap;

use crate::aead::Key;
use crate::derive;
use crate::envelope::{BTH, CLEAR, Envelope, ICRC, Mode, PAIR, RIDER_LEN, RIDER_MAX, TAG, dest_qp};
use crate::keys::Keys;
use crate::pair::{self, Pair};
use crate::refusal::Refusal;
use crate::senders::Table;
use crate::window::Window;
use crate::{Hide, Path};

/// Senders that are known, at most: some 20 MiB. The least used of some makes room for another.
const SENDERS_MAX: usize = 1 << 14;

/// A packet that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Bytes of the packet, with four zeros in the place of the ICRC; and of its rider, which lies before it and ends so, too.
    pub len: usize,
    /// Those of the rider, which is to be handled first; 0 if there is none.
    pub rider: usize,
    /// What was in its header, or would have been if it had come without a rider.
    pub envelope: Envelope,
}

impl Opened {
    /// What would have been in the header of its rider.
    #[inline]
    pub fn riders(&self) -> Envelope {
        self.envelope.alone(self.envelope.counter.wrapping_add(1))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Id {
    path: Path,
    mode: Mode,
    epoch: u8,
    sender: u32,
}

struct Incoming {
    key: Key,
    window: Window,
    /// The number of the last packet of all that was its.
    used: u64,
}

/// Opens packets of all senders that have a key of the file.
pub struct Opener {
    keys: Keys,
    /// What is accepted at least.
    mode_min: Mode,
    senders: Table<Id, Option<Incoming>>,
    /// By the number that was drawn here.
    pairs: Table<u32, Option<pair::Incoming>>,
    /// QPs that take packets of their pair only, and its number.
    bound: HashMap<u32, u32>,
    opened: u64,
    evicted: u64,
    hide: Hide,
}

impl Opener {
    /// One that takes packets of this mode, and better ones.
    pub fn new(keys: Keys, mode_min: Mode) -> Opener {
        Opener::hidden(keys, mode_min, |_, _| {})
    }

    /// One that tells where its keys lie.
    pub fn hidden(keys: Keys, mode_min: Mode, hide: Hide) -> Opener {
        keys.hide(hide);
        Opener {
            keys,
            mode_min,
            senders: Table::new(hide),
            pairs: Table::new(hide),
            bound: HashMap::new(),
            opened: 0,
            evicted: 0,
            hide,
        }
    }

    /// The key file's number.
    pub fn key_id(&self) -> u16 {
        self.keys.id()
    }

    /// The secrets of the key file.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What is accepted at least.
    pub fn mode_min(&self) -> Mode {
        self.mode_min
    }

    /// Goes on with other keys. What is known of senders stays, as far as their epoch is the same in both.
    pub fn set_keys(&mut self, keys: Keys) {
        let old = &self.keys;
        self.senders.retain(|id| keys.shares(old, id.epoch));
        keys.hide(self.hide);
        self.keys = keys;
    }

    /// From now on a QP takes packets under the keys of this pair, and no others. `path` is that of the packets. False, and nothing changes, if the
    /// number that was drawn for the pair is another one's: one in millions.
    #[must_use]
    pub fn bind(&mut self, pair: &Pair, path: Path, qpn: u32) -> bool {
        if self.pairs.find(&pair.own).is_some() {
            return false;
        }
        self.unbind(qpn);
        let incoming = pair::Incoming::new(pair, path, qpn, self.hide);
        self.pairs.insert(pair.own, incoming);
        self.bound.insert(qpn, pair.own);
        true
    }

    /// The QP is gone, or another one's: its pair's keys are overwritten, and it takes any packets.
    pub fn unbind(&mut self, qpn: u32) {
        if let Some(number) = self.bound.remove(&qpn) {
            self.pairs.remove(&number);
        }
    }

    /// Gives back the memory of keys of pairs that are over.
    pub fn shrink(&mut self) {
        self.pairs.shrink();
        self.bound.shrink_to_fit();
    }

    /// Opens the packet at a place of the buffer, to a place that begins `to` bytes into the buffer, [`HEADER`](crate::HEADER) bytes behind its
    /// beginning at most: there all but the BTH stays where it is. If it does not open, its bytes are of no use.
    ///
    /// # Errors
    /// [`Refusal`]; nothing has changed.
    ///
    /// # Panics
    /// If the places are not in the buffer and in that order.
    #[inline]
    pub fn open(
        &mut self,
        path: &Path,
        now: u64,
        bytes: &mut [u8],
        at: Range<usize>,
        to: usize,
    ) -> Result<Opened, Refusal> {
        let sealed = &bytes[at.clone()];
        let envelope = Envelope::of(sealed).ok_or_else(|| Refusal::of_unread(sealed))?;
        let id = self.check(path, &envelope, now)?;
        if envelope.epoch == PAIR {
            return self.open_of_pair(path, &envelope, bytes, at, to);
        }
        let qpn = dest_qp(sealed);
        let known = self.senders.find(&id);
        let mut new = None;
        let incoming = match known {
            Some(place) => self.senders.at(place),
            None => new.insert(self.begin(&id, now)?),
        };
        incoming.window.check(envelope.counter)?;
        let is_genuine = unseal(&incoming.key, &envelope, &mut bytes[at.clone()]);
        check_opened(is_genuine, &envelope, self.mode_min)?;
        if self.bound.contains_key(&qpn) {
            return Err(Refusal::NotOfPair);
        }
        let body = lay_out(&envelope, bytes, at, to).ok_or(Refusal::NoEnvelope)?;
        self.opened += 1;
        note(&mut incoming.window, &envelope);
        incoming.used = self.opened;
        if let Some(new) = new {
            self.add(id, new);
        }
        Ok(body.of(envelope))
    }

    #[inline]
    fn open_of_pair(
        &mut self,
        path: &Path,
        envelope: &Envelope,
        bytes: &mut [u8],
        at: Range<usize>,
        to: usize,
    ) -> Result<Opened, Refusal> {
        let qpn = dest_qp(&bytes[at.clone()]);
        let place = self.pairs.find(&envelope.sender);
        let incoming = self.pairs.at(place.ok_or(Refusal::UnknownPair)?);
        let candidate = incoming.candidate(path, envelope.mode, envelope.counter)?;
        let is_genuine = unseal(incoming.key(&candidate), envelope, &mut bytes[at.clone()]);
        check_opened(is_genuine, envelope, self.mode_min)?;
        if qpn != incoming.qpn {
            return Err(Refusal::OtherQp);
        }
        let body = lay_out(envelope, bytes, at, to).ok_or(Refusal::NoEnvelope)?;
        incoming.keep(candidate);
        note(&mut incoming.window, envelope);
        self.opened += 1;
        Ok(body.of(*envelope))
    }

    /// Opens a packet of a capture, any number of times and whatever its epoch's age, to where it lies.
    ///
    /// # Errors
    /// [`Refusal`]
    pub fn look(
        &mut self,
        path: &Path,
        bytes: &mut [u8],
        at: Range<usize>,
    ) -> Result<Opened, Refusal> {
        let to = at.start;
        let sealed = &bytes[at.clone()];
        let envelope = Envelope::of(sealed).ok_or_else(|| Refusal::of_unread(sealed))?;
        // At this time no epoch is old. Each has a window of its own: a copy of what is known of its sender is enough.
        let id = self.check(path, &envelope, 0)?;
        if let Some(place) = self.senders.find(&id) {
            self.senders.at(place).window = Window::new();
        }
        self.open(path, 0, bytes, at, to)
    }

    /// Notes a packet that another process of this address opened, so that it is not taken again.
    ///
    /// # Errors
    /// [`Refusal`] if it was taken before, or is for a QP that takes packets of its pair only: those no other process opens.
    pub fn note(
        &mut self,
        path: &Path,
        envelope: &Envelope,
        packet: &[u8],
        now: u64,
    ) -> Result<(), Refusal> {
        if envelope.epoch == PAIR || self.bound.contains_key(&dest_qp(packet)) {
            return Err(Refusal::NotOfPair);
        }
        let id = self.check(path, envelope, now)?;
        let place = match self.senders.find(&id) {
            Some(place) => place,
            None => {
                let new = self.begin(&id, now)?;
                self.add(id, new)
            }
        };
        self.opened += 1;
        let incoming = self.senders.at(place);
        incoming.window.check(envelope.counter)?;
        incoming.window.note(envelope.counter);
        incoming.used = self.opened;
        Ok(())
    }

    /// True if a packet of this path was opened. Looks at all senders.
    pub fn has_heard(&self, path: &Path) -> bool {
        self.senders.ids().any(|id| id.path == *path)
    }

    /// What can be told without the key.
    #[inline]
    fn check(&self, path: &Path, envelope: &Envelope, now: u64) -> Result<Id, Refusal> {
        if envelope.key_id != self.keys.id() {
            return Err(Refusal::OtherKey(envelope.key_id));
        }
        if envelope.epoch != PAIR {
            self.keys.accepted(envelope.epoch, now)?;
        }
        Ok(Id {
            path: *path,
            mode: envelope.mode,
            epoch: envelope.epoch,
            sender: envelope.sender,
        })
    }

    #[cold]
    fn begin(&self, id: &Id, now: u64) -> Result<Incoming, Refusal> {
        let epoch = self.keys.accepted(id.epoch, now)?;
        Ok(Incoming {
            key: derive::key(&epoch.secret, &id.path, id.mode, id.sender),
            window: Window::new(),
            used: 0,
        })
    }

    /// A sender that has shown that it has the key.
    #[cold]
    fn add(&mut self, id: Id, incoming: Incoming) -> usize {
        if self.senders.len() == SENDERS_MAX {
            self.senders.evict(self.evicted, |incoming| incoming.used);
            self.evicted += 1;
        }
        self.senders.insert(id, incoming)
    }
}

/// Decrypts a packet where it lies, or looks at its tag. False if it was not sealed under this key.
#[inline]
fn unseal(key: &Key, envelope: &Envelope, sealed: &mut [u8]) -> bool {
    let (sealed, tag) = sealed
        .split_last_chunk_mut::<TAG>()
        .expect("what has a header is longer than a tag");
    match envelope.mode {
        Mode::Seal => {
            let (clear, body) = sealed.split_at_mut(CLEAR);
            key.open(envelope.counter, clear, body, tag)
        }
        Mode::Auth => key.fits(envelope.counter, sealed, tag),
    }
}

/// Notes the counters of an envelope: a rider has one of its own.
#[inline]
fn note(window: &mut Window, envelope: &Envelope) {
    window.note(envelope.counter);
    if envelope.has_rider {
        window.note(envelope.counter.wrapping_add(1));
    }
}

/// What was in an envelope: bytes of all, and of the rider.
struct Body {
    len: usize,
    rider: usize,
}

impl Body {
    #[inline]
    fn of(self, envelope: Envelope) -> Opened {
        let Body { len, rider } = self;
        Opened {
            len,
            rider,
            envelope: envelope.alone(envelope.counter),
        }
    }
}

/// Moves what was opened to where it is to lie, without header and tag. `None` if what is said to be a rider is none.
#[inline]
fn lay_out(envelope: &Envelope, bytes: &mut [u8], at: Range<usize>, to: usize) -> Option<Body> {
    let mut rest = at.start + CLEAR..at.end - TAG;
    let bth: Option<&[u8; BTH]> = bytes[at.start..].first_chunk();
    let bth = *bth.expect("what has a header is longer than a BTH");
    let mut rider = [0; RIDER_MAX];
    let mut rider_len = 0;
    if envelope.has_rider {
        let riders = rider_in(&bytes[rest.clone()])?;
        if dest_qp(riders) != dest_qp(&bth) {
            return None;
        }
        rider[..riders.len()].copy_from_slice(riders);
        rest.end -= riders.len() + RIDER_LEN;
        rider_len = riders.len() + ICRC;
    }
    let len = rider_len + BTH + rest.len() + ICRC;
    let place = to + rider_len + BTH;
    if place != rest.start {
        bytes.copy_within(rest, place);
    }
    let place = &mut bytes[to..to + len];
    place[..rider_len].copy_from_slice(&rider[..rider_len]);
    place[rider_len..][..BTH].copy_from_slice(&bth);
    place[len - ICRC..].copy_from_slice(&[0; ICRC]);
    Some(Body {
        len,
        rider: rider_len,
    })
}

/// The rider at the end of what was sealed, without its ICRC.
#[inline]
fn rider_in(body: &[u8]) -> Option<&[u8]> {
    let (len, body) = body.split_last()?;
    let len = usize::from(*len);
    let start = body.len().checked_sub(len)?;
    (BTH..=RIDER_MAX - ICRC)
        .contains(&len)
        .then(|| &body[start..])
}

#[inline]
fn check_opened(is_genuine: bool, envelope: &Envelope, mode_min: Mode) -> Result<(), Refusal> {
    if !is_genuine {
        return Err(Refusal::Forged);
    }
    if envelope.mode < mode_min {
        return Err(Refusal::TooWeak(envelope.mode));
    }
    Ok(())
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener")
            .field("mode_min", &self.mode_min)
            .field("senders", &self.senders.len())
            .field("opened", &self.opened)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 100;

    fn laid_out(riders: &[u8]) -> Option<Body> {
        let mut bytes = vec![1; LEN - TAG - riders.len()];
        bytes.extend_from_slice(riders);
        bytes.extend([0; TAG]);
        let envelope = Envelope {
            mode: Mode::Seal,
            has_rider: true,
            epoch: 1,
            key_id: 1,
            sender: 1,
            counter: u64::MAX,
        };
        lay_out(&envelope, &mut bytes, 0..LEN, 0)
    }

    /// What a member of the cluster sends is genuine, and may be nonsense all the same.
    #[test]
    fn a_rider_that_is_none_is_refused() {
        let qp = [1; 12];
        let ok = laid_out(&[&qp[..], &[12]].concat()).expect("the shortest one");
        assert_eq!((ok.rider, ok.len), (16, 16 + LEN - CLEAR - TAG - 13 + 16));
        for len in (0..=255).filter(|len| !(12..=56).contains(len)) {
            assert!(laid_out(&[&qp[..], &[len]].concat()).is_none(), "{len}");
        }
        let mut other = qp;
        other[6] = 2;
        assert!(laid_out(&[&other[..], &[12]].concat()).is_none());
        let riders = laid_out(&[0; 56]);
        assert!(riders.is_none(), "no length");
    }
}
