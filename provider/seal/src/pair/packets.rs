//! Packets of a pair: what each end keeps for those that it sends, and for those that it receives.

use zeroize::Zeroizing;

use super::Pair;
use crate::aead::Key;
use crate::derive::{self, SECRET};
use crate::envelope::Mode;
use crate::refusal::Refusal;
use crate::window::Window;
use crate::{Hide, Path};

/// So many packets are sealed under one key, as under those of the cluster. The counter says under which, as it goes on.
const PACKETS_BITS: u32 = 28;

type Secret = Box<Zeroizing<[u8; SECRET]>>;

fn copy(secret: &Secret, hide: Hide) -> Secret {
    let secret = secret.clone();
    hide(secret.as_ptr(), SECRET);
    secret
}

/// Packets to the peer of a pair. The secret is of one handshake, so counters begin at 0 and never come twice.
pub(crate) struct Outgoing {
    secret: Secret,
    path: Path,
    mode: Mode,
    pub(crate) number: u32,
    next: u64,
    key: Key,
}

impl Outgoing {
    pub(crate) fn new(pair: &Pair, path: Path, mode: Mode, hide: Hide) -> Outgoing {
        let (secret, number) = (copy(&pair.sends, hide), pair.peer);
        Outgoing {
            key: derive::pair_key(&secret, &path, mode, number, 0),
            secret,
            path,
            mode,
            number,
            next: 0,
        }
    }

    /// The counter of the next packet, and its key.
    #[inline]
    pub(crate) fn take(&mut self) -> (u64, &Key) {
        let counter = self.next;
        self.next += 1;
        if counter.trailing_zeros() >= PACKETS_BITS && counter > 0 {
            self.change_key(counter);
        }
        (counter, &self.key)
    }

    #[cold]
    fn change_key(&mut self, counter: u64) {
        let (mode, turn) = (self.mode, counter >> PACKETS_BITS);
        self.key = derive::pair_key(&self.secret, &self.path, mode, self.number, turn);
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, counter: u64) {
        self.next = counter;
        self.change_key(counter);
    }
}

/// Packets from the peer of a pair, to one QP.
pub(crate) struct Incoming {
    secret: Secret,
    path: Path,
    number: u32,
    pub(crate) qpn: u32,
    pub(crate) window: Window,
    /// The one that was used last, and the one before: packets overtake each other.
    keys: [Option<Turn>; 2],
}

/// A key, and which of the packets it is for.
struct Turn {
    mode: Mode,
    turn: u64,
    key: Key,
}

/// A key that a packet is to be opened with.
pub(crate) enum Candidate {
    Known(usize),
    /// It is kept if the packet opens: what is forged leaves nothing.
    New(Box<New>),
}

pub(crate) struct New(Turn);

impl Incoming {
    /// `path` is that of the packets.
    pub(crate) fn new(pair: &Pair, path: Path, qpn: u32, hide: Hide) -> Incoming {
        Incoming {
            secret: copy(&pair.receives, hide),
            path,
            number: pair.own,
            qpn,
            window: Window::new(),
            keys: [None, None],
        }
    }

    /// The key of a packet that came on a path.
    #[inline]
    pub(crate) fn candidate(
        &self,
        path: &Path,
        mode: Mode,
        counter: u64,
    ) -> Result<Candidate, Refusal> {
        if *path != self.path {
            return Err(Refusal::Forged);
        }
        self.window.check(counter)?;
        let turn = counter >> PACKETS_BITS;
        let is_it = |key: &Option<Turn>| {
            key.as_ref()
                .is_some_and(|key| (key.mode, key.turn) == (mode, turn))
        };
        Ok(match self.keys.iter().position(is_it) {
            Some(place) => Candidate::Known(place),
            None => self.derive(mode, turn),
        })
    }

    #[cold]
    fn derive(&self, mode: Mode, turn: u64) -> Candidate {
        let key = derive::pair_key(&self.secret, &self.path, mode, self.number, turn);
        Candidate::New(Box::new(New(Turn { mode, turn, key })))
    }

    #[inline]
    pub(crate) fn key<'a>(&'a self, candidate: &'a Candidate) -> &'a Key {
        match candidate {
            Candidate::Known(place) => {
                let known = self.keys[*place].as_ref();
                &known.expect("it was found there").key
            }
            Candidate::New(new) => &new.0.key,
        }
    }

    /// A packet opened with it.
    #[inline]
    pub(crate) fn keep(&mut self, candidate: Candidate) {
        if let Candidate::New(new) = candidate {
            let [first, second] = &mut self.keys;
            *second = first.replace(new.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Outgoing, Incoming) {
        let secret = || Box::new(Zeroizing::new([7; SECRET]));
        let pair = Pair {
            own: 5,
            peer: 5,
            sends: secret(),
            receives: secret(),
        };
        let path = Path {
            source: [10, 0, 0, 1].into(),
            dest: [10, 0, 0, 2].into(),
        };
        let hide: Hide = |_, _| {};
        let out = Outgoing::new(&pair, path, Mode::Seal, hide);
        (out, Incoming::new(&pair, path, 9, hide))
    }

    fn tag(out: &mut Outgoing) -> (u64, [u8; 16]) {
        let (counter, key) = out.take();
        (counter, key.tag(counter, b"clear"))
    }

    fn takes(incoming: &mut Incoming, (counter, tag): (u64, [u8; 16])) -> Result<(), Refusal> {
        let path = incoming.path;
        let candidate = incoming.candidate(&path, Mode::Seal, counter)?;
        let key = incoming.key(&candidate);
        if !key.fits(counter, b"clear", &tag) {
            return Err(Refusal::Forged);
        }
        incoming.window.note(counter);
        incoming.keep(candidate);
        Ok(())
    }

    #[test]
    fn keys_change_with_the_counter_and_what_was_overtaken_still_opens() {
        let (mut out, mut incoming) = ends();
        assert_eq!(out.next, 0);
        for _ in 0..3 {
            takes(&mut incoming, tag(&mut out)).expect("genuine");
        }
        let each = 1 << PACKETS_BITS;
        for turn in 1..5 {
            out.skip_to(turn * each - 2);
            let around = [(); 4].map(|()| tag(&mut out));
            assert_eq!(around[2].0, turn * each);
            for place in [2, 0, 3, 1] {
                let (counter, _) = around[place];
                takes(&mut incoming, around[place]).expect("genuine");
                assert_eq!(takes(&mut incoming, around[place]), Err(Refusal::Replayed));
                assert_eq!(out.next, turn * each + 2, "{counter}");
            }
        }
    }

    #[test]
    fn each_key_is_another_one() {
        let (mut out, _) = ends();
        let mut tags = Vec::new();
        for turn in 0..4 {
            out.skip_to(turn << PACKETS_BITS);
            tags.push(out.key.tag(0, &[]));
        }
        for (place, tag) in tags.iter().enumerate() {
            assert!(!tags[..place].contains(tag), "{place}");
        }
    }

    /// Forged packets of turns that are far away are tried, and leave the keys that are in use.
    #[test]
    fn what_is_forged_changes_no_key() {
        let (mut out, mut incoming) = ends();
        takes(&mut incoming, tag(&mut out)).expect("genuine");
        for turn in 1..100 {
            let forged = (turn << PACKETS_BITS, [0; 16]);
            assert_eq!(takes(&mut incoming, forged), Err(Refusal::Forged));
        }
        let path = incoming.path;
        let candidate = incoming.candidate(&path, Mode::Seal, 1);
        assert!(matches!(candidate, Ok(Candidate::Known(0))));
        takes(&mut incoming, tag(&mut out)).expect("genuine");
    }
}
