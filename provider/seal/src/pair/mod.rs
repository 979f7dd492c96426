//! Keys of a pair: a handshake of two messages between the ends of a connection, and what it leaves.
//!
//! What the two agree on follows from random numbers that both forget, so that no file tells it later, and no other member of the cluster knows it. The
//! secret of the cluster goes in as well: without it there is no handshake. It does not tell members apart, so one that stands in the middle of the
//! handshake, and answers each end in the other's name, is not found out.
//!
//! ```
//! use urxe_seal::{HELLO_LEN, Initiator, KeyFile, Keys, PairEnds, respond};
//!
//! let keys = Keys::new(&KeyFile::new(0x3fa2, [7; 32], 0));
//! let ends = PairEnds { initiator: [10, 0, 0, 1].into(), responder: [10, 0, 0, 2].into(), service_id: 0x0106_0050 };
//! let (mut initiator, hello) = Initiator::new(&keys, 0, &ends, [1; 36]);
//! let (_responders, answer) = respond(&keys, 0, &ends, &hello, [2; 36])?;
//! let _initiators = initiator.finish(&answer)?;
//! assert_eq!(hello.len(), HELLO_LEN);
//! # Ok::<(), urxe_seal::Refusal>(())
//! ```

#[cfg(feature = "ciphers")]
mod noise;
mod packets;

use core::fmt;
use core::net::IpAddr;

use zeroize::Zeroizing;

use self::noise::{Handshake, MESSAGE, Split};
pub(crate) use self::packets::{Incoming, Outgoing};
use crate::Hide;
#[cfg(not(feature = "ciphers"))]
use crate::absent::noise;
use crate::derive::{SECRET, octets};
use crate::keys::Keys;
use crate::refusal::Refusal;

/// Bytes of each of the two messages: what the private data of a request has room for.
pub const HELLO_LEN: usize = HEAD + MESSAGE + NUMBER;

/// What is in the clear: version, epoch and key number.
const HEAD: usize = 4;
const NUMBER: usize = 4;
/// The version: the pattern, its ciphers, and all that follows from what it leaves.
const VERSION: u8 = 1;
const PROLOGUE: &[u8] = b"urxe pair 1";

/// The connection that a handshake is for. A message for another is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PairEnds {
    /// The address of the end that asks for the connection.
    pub initiator: IpAddr,
    /// The address of the end that is asked.
    pub responder: IpAddr,
    /// What it is asked for.
    pub service_id: u64,
}

/// Random bytes that are used for one message and never again: a private key, and the number that this side wants to be found by.
pub type PairRandom = [u8; SECRET + NUMBER];

/// What a handshake leaves at one end: secrets of both directions, which are overwritten when it is dropped.
pub struct Pair {
    /// The number that packets have which this end receives.
    pub(crate) own: u32,
    /// The number that those have which it sends.
    pub(crate) peer: u32,
    pub(crate) sends: Box<Zeroizing<[u8; SECRET]>>,
    pub(crate) receives: Box<Zeroizing<[u8; SECRET]>>,
}

impl Pair {
    fn new(own: u32, peer: u32, [sends, receives]: Split) -> Pair {
        Pair {
            own,
            peer,
            sends: Box::new(sends),
            receives: Box::new(receives),
        }
    }

    /// Tells where the secrets are.
    pub fn hide(&self, hide: Hide) {
        hide(self.sends.as_ptr(), SECRET);
        hide(self.receives.as_ptr(), SECRET);
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, peer) = (self.own, self.peer);
        write!(f, "Pair({own:08x} {peer:08x})")
    }
}

/// The end that began a handshake, and waits for the answer.
#[derive(Debug)]
pub struct Initiator {
    handshake: Option<Handshake>,
    own: u32,
    head: [u8; HEAD],
}

impl Initiator {
    /// Begins, in the epoch that senders use at this time; also returns the first message.
    pub fn new(
        keys: &Keys,
        now: u64,
        ends: &PairEnds,
        random: PairRandom,
    ) -> (Initiator, [u8; HELLO_LEN]) {
        let (ephemeral, own) = parts(random);
        let epoch = keys.sending(now);
        let head = head(epoch.number, keys.id());
        let psk = epoch.psk();
        let mut handshake = Handshake::new(true, &psk, &prologue(head, ends), &ephemeral);
        let first: [u8; HELLO_LEN - HEAD] = handshake.write(&own.to_be_bytes());
        let initiator = Initiator {
            handshake: Some(handshake),
            own,
            head,
        };
        (initiator, message(head, &first))
    }

    /// Reads the second message. One that is refused changes nothing: another may come.
    ///
    /// # Errors
    /// [`Refusal::Forged`]: it does not answer the first, or was made without the secret of the cluster; or came a second time.
    pub fn finish(&mut self, answer: &[u8]) -> Result<Pair, Refusal> {
        let (head, second) = answer
            .split_first_chunk::<HEAD>()
            .ok_or(Refusal::NoEnvelope)?;
        if *head != self.head {
            return Err(Refusal::Forged);
        }
        let mut handshake = self.handshake.take().ok_or(Refusal::Forged)?;
        let Some(number) = handshake.read(second) else {
            self.handshake = Some(handshake);
            return Err(Refusal::Forged);
        };
        let peer = u32::from_be_bytes(number);
        Ok(Pair::new(self.own, peer, handshake.split()))
    }
}

/// Answers a first message: returns what the handshake leaves here, and the second message. Nothing need be kept for it before that.
///
/// # Errors
/// [`Refusal::NoEnvelope`] of another version, [`Refusal::OtherKey`], [`Refusal::UnknownEpoch`], [`Refusal::OldEpoch`];
/// [`Refusal::Forged`]: it was made without the secret of the cluster, or for another connection.
pub fn respond(
    keys: &Keys,
    now: u64,
    ends: &PairEnds,
    hello: &[u8],
    random: PairRandom,
) -> Result<(Pair, [u8; HELLO_LEN]), Refusal> {
    let (ephemeral, own) = parts(random);
    let (head, first) = hello
        .split_first_chunk::<HEAD>()
        .ok_or(Refusal::NoEnvelope)?;
    let [version, number, k0, k1] = *head;
    if version != VERSION {
        return Err(Refusal::NoEnvelope);
    }
    let key_id = u16::from_be_bytes([k0, k1]);
    if key_id != keys.id() {
        return Err(Refusal::OtherKey(key_id));
    }
    let psk = keys.accepted(number, now)?.psk();
    let mut handshake = Handshake::new(false, &psk, &prologue(*head, ends), &ephemeral);
    let peer = handshake.read(first).ok_or(Refusal::Forged)?;
    let second: [u8; HELLO_LEN - HEAD] = handshake.write(&own.to_be_bytes());
    // The first secret is the initiator's.
    let [receives, sends] = handshake.split();
    let pair = Pair::new(own, u32::from_be_bytes(peer), [sends, receives]);
    Ok((pair, message(*head, &second)))
}

fn parts(random: PairRandom) -> (Zeroizing<[u8; SECRET]>, u32) {
    let random = Zeroizing::new(random);
    let (ephemeral, number) = random.split_first_chunk().expect("it is longer");
    let number = number.first_chunk().expect("four are left");
    (Zeroizing::new(*ephemeral), u32::from_be_bytes(*number))
}

fn head(epoch: u8, key_id: u16) -> [u8; HEAD] {
    let [k0, k1] = key_id.to_be_bytes();
    [VERSION, epoch, k0, k1]
}

fn prologue(head: [u8; HEAD], ends: &PairEnds) -> Vec<u8> {
    let service_id = ends.service_id.to_be_bytes();
    let [initiator, responder] = [ends.initiator, ends.responder].map(octets);
    [PROLOGUE, &head, &initiator, &responder, &service_id].concat()
}

fn message(head: [u8; HEAD], noise: &[u8; HELLO_LEN - HEAD]) -> [u8; HELLO_LEN] {
    let mut message = [0; HELLO_LEN];
    message[..HEAD].copy_from_slice(&head);
    message[HEAD..].copy_from_slice(noise);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyFile;
    use proptest::prelude::*;

    fn keys() -> Keys {
        Keys::new(&KeyFile::new(0x3fa2, [7; 32], 0))
    }

    fn ends() -> PairEnds {
        PairEnds {
            initiator: [10, 0, 0, 1].into(),
            responder: [10, 0, 0, 2].into(),
            service_id: 0x0106_0050,
        }
    }

    fn agree(keys: &Keys, randoms: [PairRandom; 2]) -> (Pair, Pair) {
        let (mut initiator, hello) = Initiator::new(keys, 0, &ends(), randoms[0]);
        let (theirs, answer) = respond(keys, 0, &ends(), &hello, randoms[1]).expect("genuine");
        (initiator.finish(&answer).expect("genuine"), theirs)
    }

    #[test]
    fn both_ends_have_the_same_secrets_and_no_other_handshake_has() {
        let (a, b) = agree(&keys(), [[1; 36], [2; 36]]);
        assert_eq!((a.own, a.peer), (b.peer, b.own));
        assert_eq!((&a.sends, &a.receives), (&b.receives, &b.sends));
        assert_ne!(a.sends, a.receives);
        let (again, _) = agree(&keys(), [[1; 36], [2; 36]]);
        assert_eq!(again.sends, a.sends, "nothing else is drawn");
        let others =
            [[[3; 36], [2; 36]], [[1; 36], [3; 36]]].map(|randoms| agree(&keys(), randoms));
        let other = Keys::new(&KeyFile::new(0x3fa2, [8; 32], 0));
        for (other, _) in others
            .into_iter()
            .chain([agree(&other, [[1; 36], [2; 36]])])
        {
            assert_ne!(other.sends, a.sends);
            assert_ne!(other.receives, a.receives);
        }
        assert_eq!(format!("{a:?}"), "Pair(01010101 02020202)", "and no secret");
    }

    #[test]
    fn what_was_made_without_the_secret_or_for_another_connection_is_refused() {
        let (_, hello) = Initiator::new(&keys(), 0, &ends(), [1; 36]);
        let refused = |keys: &Keys, ends: &PairEnds, hello: &[u8]| {
            respond(keys, 0, ends, hello, [2; 36]).expect_err("not for this end")
        };
        let same_id = Keys::new(&KeyFile::new(0x3fa2, [8; 32], 0));
        assert_eq!(refused(&same_id, &ends(), &hello), Refusal::Forged);
        let other = Keys::new(&KeyFile::new(0x3fa3, [7; 32], 0));
        assert_eq!(refused(&other, &ends(), &hello), Refusal::OtherKey(0x3fa2));
        let [a, b] = [ends().responder, ends().initiator];
        for other in [
            PairEnds {
                initiator: a,
                ..ends()
            },
            PairEnds {
                responder: b,
                ..ends()
            },
            PairEnds {
                service_id: 1,
                ..ends()
            },
        ] {
            assert_eq!(refused(&keys(), &other, &hello), Refusal::Forged);
        }
        for len in 0..HELLO_LEN {
            refused(&keys(), &ends(), &hello[..len]);
        }
        refused(&keys(), &ends(), &[&hello[..], &[0]].concat());
    }

    #[test]
    fn epochs_are_those_of_the_file() {
        let mut file = KeyFile::new(1, [1; 32], 0);
        file.rotate([2; 32], 100, 160);
        let keys = Keys::new(&file);
        let (_, old) = Initiator::new(&keys, 159, &ends(), [1; 36]);
        let (_, new) = Initiator::new(&keys, 160, &ends(), [1; 36]);
        assert!(respond(&keys, 160, &ends(), &old, [2; 36]).is_ok());
        assert!(respond(&keys, 100, &ends(), &new, [2; 36]).is_ok());
        let late = respond(&keys, 160 + crate::GRACE_S, &ends(), &old, [2; 36]);
        assert_eq!(late.err(), Some(Refusal::OldEpoch(1)));
    }

    #[test]
    fn an_answer_counts_once() {
        let (mut initiator, hello) = Initiator::new(&keys(), 0, &ends(), [1; 36]);
        let (_, answer) = respond(&keys(), 0, &ends(), &hello, [2; 36]).expect("genuine");
        // Another end with the secret, which did not see the hello.
        let (_, stray) = Initiator::new(&keys(), 0, &ends(), [4; 36]);
        let (_, other) = respond(&keys(), 0, &ends(), &stray, [2; 36]).expect("genuine");
        assert_eq!(initiator.finish(&other).err(), Some(Refusal::Forged));
        assert_eq!(
            initiator.finish(&hello).err(),
            Some(Refusal::Forged),
            "mirrored"
        );
        assert!(initiator.finish(&answer).is_ok());
        assert_eq!(initiator.finish(&answer).err(), Some(Refusal::Forged));
    }

    proptest! {
        /// No bit of either message can be changed, and after an answer that is wrong the right one still counts.
        #[test]
        fn no_bit_can_be_changed(
            randoms in any::<[[u8; 18]; 4]>(),
            bit in 0..HELLO_LEN * 8,
        ) {
            let random = |at: usize| -> PairRandom {
                [randoms[at], randoms[at + 1]].concat().try_into().expect("36 bytes")
            };
            let changed = |message: &[u8; HELLO_LEN]| {
                let mut changed = *message;
                changed[bit / 8] ^= 1 << (bit % 8);
                changed
            };
            let (mut initiator, hello) = Initiator::new(&keys(), 0, &ends(), random(0));
            prop_assert!(respond(&keys(), 0, &ends(), &changed(&hello), random(2)).is_err());
            let (theirs, answer) = respond(&keys(), 0, &ends(), &hello, random(2)).expect("genuine");
            prop_assert!(initiator.finish(&changed(&answer)).is_err());
            let own = initiator.finish(&answer).expect("genuine");
            prop_assert_eq!(&own.sends, &theirs.receives);
            prop_assert_eq!(&own.receives, &theirs.sends);
        }

        /// Bytes of anything are refused by both ends.
        #[test]
        fn junk_is_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), is_close in any::<bool>()) {
            if is_close && bytes.len() >= HEAD {
                bytes[..HEAD].copy_from_slice(&head(1, 0x3fa2));
            }
            let (mut initiator, _) = Initiator::new(&keys(), 0, &ends(), [1; 36]);
            prop_assert!(respond(&keys(), 0, &ends(), &bytes, [2; 36]).is_err());
            prop_assert!(initiator.finish(&bytes).is_err());
        }
    }
}
