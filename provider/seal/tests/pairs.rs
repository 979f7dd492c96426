//! Packets of a pair open at its other end, for its QP, and nowhere else; and its QP takes no others.

use core::net::IpAddr;

use proptest::prelude::*;
use urxe_seal::{
    Envelope, Identity, Initiator, KeyFile, Keys, Mode, OVERHEAD, Opener, Pair, PairEnds, Path,
    Refusal, Sealer, respond, sealed_len,
};

const MODES: [Mode; 2] = [Mode::Auth, Mode::Seal];
const QPN: [u32; 2] = [0x11_2233, 0x44_5566];

fn keys() -> Keys {
    Keys::new(&KeyFile::new(0x3fa2, [7; 32], 0))
}

fn addrs() -> [IpAddr; 2] {
    [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]
}

/// The way of packets from one of the two ends.
fn path(from: usize) -> Path {
    Path {
        source: addrs()[from],
        dest: addrs()[1 - from],
    }
}

fn agree(seed: u8) -> [Pair; 2] {
    let [initiator, responder] = addrs();
    let ends = PairEnds {
        initiator,
        responder,
        service_id: 1,
    };
    let (mut own, hello) = Initiator::new(&keys(), 0, &ends, [seed; 36]);
    let random = [seed + 100; 36];
    let (theirs, answer) = respond(&keys(), 0, &ends, &hello, random).expect("genuine");
    [own.finish(&answer).expect("genuine"), theirs]
}

/// One end: what seals its packets, and what opens those that it gets.
struct End {
    place: usize,
    sealer: Sealer,
    opener: Opener,
}

impl End {
    fn new(place: usize, mode: Mode) -> End {
        let identity = Identity::new([place as u8 + 9; 12]);
        End {
            place,
            sealer: Sealer::new(keys(), mode, identity, 0),
            opener: Opener::new(keys(), Mode::Auth),
        }
    }

    fn bind(&mut self, pair: &Pair) {
        let (here, there) = (self.place, 1 - self.place);
        self.sealer.bind(pair, path(here), QPN[there]);
        assert!(self.opener.bind(pair, path(there), QPN[here]));
    }

    fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; packet.len() + OVERHEAD];
        self.sealer.seal(path(self.place), packet, &mut bytes);
        bytes
    }

    fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut bytes = sealed.to_vec();
        let path = path(1 - self.place);
        let opened = self.opener.open(&path, 0, &mut bytes, 0..sealed.len(), 0)?;
        bytes.truncate(opened.len);
        Ok(bytes)
    }
}

fn ends(mode: Mode) -> [End; 2] {
    let mut ends = [0, 1].map(|place| End::new(place, mode));
    for (end, pair) in ends.iter_mut().zip(&agree(1)) {
        end.bind(pair);
    }
    ends
}

/// A packet to a QP, with so many bytes after its BTH.
fn packet(qpn: u32, len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..12 + len).map(|n| n as u8).collect();
    packet[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    packet.extend([0; 4]);
    packet
}

#[test]
fn both_ways_each_packet_opens_once_at_the_other_end() {
    for mode in MODES {
        let [mut a, mut b] = ends(mode);
        for len in [0, 1, 40, 4096] {
            let to_b = packet(QPN[1], len);
            let sealed = a.seal(&to_b);
            let envelope = Envelope::of(&sealed).expect("sealed");
            assert_eq!((envelope.epoch, envelope.key_id), (0, 0x3fa2));
            assert_eq!(a.open(&sealed), Err(Refusal::UnknownPair), "its own");
            assert_eq!(b.open(&sealed), Ok(to_b));
            assert_eq!(b.open(&sealed), Err(Refusal::Replayed));
            let to_a = packet(QPN[0], len);
            let sealed = b.seal(&to_a);
            assert_eq!(a.open(&sealed), Ok(to_a));
        }
    }
}

#[test]
fn a_rider_is_under_the_keys_of_the_pair_too() {
    for mode in MODES {
        let [mut a, mut b] = ends(mode);
        let (plain, rider) = (packet(QPN[1], 8), packet(QPN[1], 4));
        let mut sealed = vec![0; sealed_len(plain.len(), rider.len())];
        a.sealer.seal_with(path(0), &plain, &rider, &mut sealed);
        assert_eq!(Envelope::of(&sealed).expect("sealed").counter, 0);
        let mut member = End::new(1, mode);
        assert_eq!(member.open(&sealed), Err(Refusal::UnknownPair));
        assert_eq!(b.open(&sealed), Ok([rider, plain.clone()].concat()));
        assert_eq!(b.open(&sealed), Err(Refusal::Replayed));
        let next = a.seal(&plain);
        assert_eq!(Envelope::of(&next).expect("sealed").counter, 2);
        assert_eq!(b.open(&next), Ok(plain));
    }
}

#[test]
fn another_member_of_the_cluster_can_neither_read_nor_forge_packets_of_a_pair() {
    for mode in MODES {
        let [mut a, mut b] = ends(mode);
        let sealed = a.seal(&packet(QPN[1], 40));
        // It has the secret of the cluster, and a pair with another handshake under the same numbers.
        let mut member = End::new(1, mode);
        assert_eq!(member.open(&sealed), Err(Refusal::UnknownPair));
        member.bind(&agree(1)[1]);
        assert!(member.open(&sealed).is_ok(), "the same random numbers");
        let mut forger = End::new(0, mode);
        let under_the_cluster = forger.seal(&packet(QPN[1], 40));
        assert_eq!(b.open(&under_the_cluster), Err(Refusal::NotOfPair));
        forger.bind(&agree(2)[0]);
        let under_another_pair = forger.seal(&packet(QPN[1], 40));
        assert_eq!(b.open(&under_another_pair), Err(Refusal::UnknownPair));
        // With the number of the right one, as it is in the clear.
        let mut renumbered = under_another_pair.clone();
        renumbered[16..20].copy_from_slice(&sealed[16..20]);
        assert_eq!(b.open(&renumbered), Err(Refusal::Forged));
        assert!(b.open(&sealed).is_ok());
    }
}

#[test]
fn a_pair_is_for_its_qp_and_for_its_way() {
    let [mut a, mut b] = ends(Mode::Seal);
    let other = packet(0x99, 8);
    let under_the_cluster = a.seal(&other);
    assert_eq!(Envelope::of(&under_the_cluster).expect("sealed").epoch, 1);
    assert_eq!(b.open(&under_the_cluster), Ok(other), "no pair's QP");
    // One end that sends packets to other QPs under the pair's keys.
    let [pair, _] = agree(1);
    a.sealer.bind(&pair, path(0), 0x99);
    let sealed = a.seal(&packet(0x99, 8));
    assert_eq!(b.open(&sealed), Err(Refusal::OtherQp));
    let sealed = a.seal(&packet(QPN[1], 8));
    let mut elsewhere = sealed.clone();
    let len = elsewhere.len();
    let other = Path {
        source: [10, 0, 0, 3].into(),
        ..path(0)
    };
    let refused = b.opener.open(&other, 0, &mut elsewhere, 0..len, 0);
    assert_eq!(refused, Err(Refusal::Forged));
    // What another process opened is never a pair's, and its QP takes none from there.
    let envelope = Envelope::of(&sealed).expect("sealed");
    let of_the_cluster = Envelope {
        epoch: 1,
        ..envelope
    };
    for envelope in [envelope, of_the_cluster] {
        let noted = b.opener.note(&path(0), &envelope, &sealed, 0);
        assert_eq!(noted, Err(Refusal::NotOfPair));
    }
}

#[test]
fn what_requires_more_than_authentication_says_so_of_pairs_too() {
    let [mut a, mut b] = ends(Mode::Auth);
    b.opener = Opener::new(keys(), Mode::Seal);
    assert!(b.opener.bind(&agree(1)[1], path(0), QPN[1]));
    let sealed = a.seal(&packet(QPN[1], 8));
    assert_eq!(b.open(&sealed), Err(Refusal::TooWeak(Mode::Auth)));
}

#[test]
fn a_pair_that_is_over_opens_nothing_and_its_qp_is_free() {
    let [mut a, mut b] = ends(Mode::Seal);
    let sealed = a.seal(&packet(QPN[1], 8));
    b.opener.unbind(QPN[1]);
    assert_eq!(b.open(&sealed), Err(Refusal::UnknownPair));
    a.sealer.unbind(path(0), QPN[1], 0);
    assert!(a.sealer.has_pairs(), "another pair");
    a.sealer.unbind(path(0), QPN[1], 0x6565_6565);
    assert!(!a.sealer.has_pairs());
    let sealed = a.seal(&packet(QPN[1], 8));
    assert!(b.open(&sealed).is_ok(), "under the cluster's keys");
    // The next pair of the same QPs takes the place of one that was not given up.
    let [mut a, mut b] = ends(Mode::Seal);
    let old = a.seal(&packet(QPN[1], 8));
    let [own, theirs] = agree(2);
    a.bind(&own);
    b.bind(&theirs);
    let new = a.seal(&packet(QPN[1], 8));
    assert!(b.open(&new).is_ok());
    assert_eq!(b.open(&old), Err(Refusal::UnknownPair));
}

#[test]
fn a_number_that_is_taken_binds_nothing() {
    let [_, mut b] = ends(Mode::Seal);
    let [_, again] = agree(1);
    assert!(!b.opener.bind(&again, path(0), 0x99));
    let mut sealer = End::new(0, Mode::Seal);
    let sealed = sealer.seal(&packet(0x99, 8));
    assert!(b.open(&sealed).is_ok(), "that QP is no pair's");
}

#[test]
fn a_rotated_key_file_changes_nothing_for_pairs() {
    let [mut a, mut b] = ends(Mode::Seal);
    let mut file = KeyFile::new(0x3fa2, [9; 32], 0);
    file.rotate([8; 32], 0, 0);
    a.sealer
        .set_keys(Keys::new(&file), Identity::new([3; 12]), 100);
    b.opener.set_keys(Keys::new(&file));
    let sealed = a.seal(&packet(QPN[1], 8));
    assert!(b.open(&sealed).is_ok());
    assert_eq!(b.open(&sealed), Err(Refusal::Replayed));
}

proptest! {
    /// No bit of a packet of a pair can be changed, and what was tried leaves nothing: the genuine one opens after it.
    #[test]
    fn no_bit_can_be_changed(len in 0_usize..60, bit in any::<prop::sample::Index>(), is_sealed in any::<bool>()) {
        let [mut a, mut b] = ends(MODES[usize::from(is_sealed)]);
        let plain = packet(QPN[1], len);
        let sealed = a.seal(&plain);
        let bit = bit.index(sealed.len() * 8);
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(b.open(&changed).is_err(), "bit {}", bit);
        prop_assert_eq!(b.open(&sealed), Ok(plain));
    }
}
