//! What is sealed opens once, at the receiver that it is for; nothing else opens.

use core::net::IpAddr;

use proptest::prelude::*;
use urxe_seal::{
    Envelope, GRACE_S, Identity, KeyFile, Keys, Mode, OVERHEAD, Opener, Path, RIDER_MAX, Refusal,
    Sealer, sealed_len,
};

const MODES: [Mode; 2] = [Mode::Auth, Mode::Seal];

fn path() -> Path {
    Path {
        source: IpAddr::from([10, 0, 0, 1]),
        dest: IpAddr::from([10, 0, 0, 2]),
    }
}

fn file() -> KeyFile {
    KeyFile::new(0x3fa2, [7; 32], 0)
}

fn sealer(file: &KeyFile, mode: Mode) -> Sealer {
    Sealer::new(Keys::new(file), mode, Identity::new([9; 12]), 0)
}

fn opener(file: &KeyFile) -> Opener {
    Opener::new(Keys::new(file), Mode::Auth)
}

/// A packet with so many bytes after its BTH, which tells it from others.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..12 + len).map(|n| (n * 31 + number) as u8).collect();
    packet.extend([0xee; 4]);
    packet
}

fn sealed(sealer: &mut Sealer, path: Path, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; packet.len() + OVERHEAD];
    sealer.on(path).seal(packet, &mut bytes);
    bytes
}

fn open(opener: &mut Opener, path: &Path, now: u64, sealed: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut bytes = sealed.to_vec();
    let opened = opener.open(path, now, &mut bytes, 0..sealed.len(), 0)?;
    bytes.truncate(opened.len);
    Ok(bytes)
}

#[test]
fn a_packet_opens_once() {
    for mode in MODES {
        let (mut sealer, mut opener) = (sealer(&file(), mode), opener(&file()));
        for len in [0, 1, 15, 16, 17, 4096] {
            let plain = packet(len, len);
            let bytes = sealed(&mut sealer, path(), &plain);
            assert_eq!(bytes[..12], plain[..12], "the BTH is in the clear");
            let body = &plain[12..plain.len() - 4];
            let is_clear = bytes.windows(len.max(1)).any(|part| part == body);
            assert!(len < 15 || is_clear == (mode == Mode::Auth), "{mode} {len}");
            let opened = open(&mut opener, &path(), 0, &bytes).expect("genuine");
            assert_eq!(opened[..opened.len() - 4], plain[..plain.len() - 4]);
            assert_eq!(opened[opened.len() - 4..], [0; 4]);
            let again = open(&mut opener, &path(), 0, &bytes);
            assert_eq!(again, Err(Refusal::Replayed));
        }
    }
}

#[test]
fn no_bit_can_be_changed() {
    for mode in MODES {
        let (mut sealer, mut opener) = (sealer(&file(), mode), opener(&file()));
        let bytes = sealed(&mut sealer, path(), &packet(1, 40));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let refused = open(&mut opener, &path(), 0, &changed).expect_err("changed");
            let expected = match bit / 8 {
                12 => vec![
                    Refusal::NoEnvelope,
                    Refusal::OtherVersion(changed[12] >> 4),
                    Refusal::Forged,
                ],
                // Epoch 0 is that of pairs.
                13 => vec![Refusal::UnknownEpoch(changed[13]), Refusal::UnknownPair],
                14 | 15 => vec![Refusal::OtherKey(u16::from_be_bytes([
                    changed[14],
                    changed[15],
                ]))],
                _ => vec![Refusal::Forged],
            };
            assert!(expected.contains(&refused), "bit {bit}: {refused:?}");
        }
        for len in 0..bytes.len() {
            assert!(
                open(&mut opener, &path(), 0, &bytes[..len]).is_err(),
                "{len}"
            );
        }
        assert!(open(&mut opener, &path(), 0, &[&bytes[..], &[0]].concat()).is_err());
        open(&mut opener, &path(), 0, &bytes).expect("the genuine one still opens");
    }
}

fn sealed_with(sealer: &mut Sealer, packet: &[u8], rider: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; sealed_len(packet.len(), rider.len())];
    sealer.on(path()).seal_with(packet, rider, &mut bytes);
    bytes
}

/// One for the same QP as another.
fn rider(of: &[u8], len: usize) -> Vec<u8> {
    let mut rider = packet(99, len);
    rider[5..8].copy_from_slice(&of[5..8]);
    rider
}

#[test]
fn a_rider_comes_out_before_its_packet_and_has_the_next_counter() {
    for mode in MODES {
        let (mut sealer, mut opener) = (sealer(&file(), mode), opener(&file()));
        for (len, riders) in [(0, 0), (12, 4), (240, RIDER_MAX - 16)] {
            let plain = packet(len, len);
            let rider = rider(&plain, riders);
            let mut bytes = sealed_with(&mut sealer, &plain, &rider);
            assert_eq!(bytes[..12], plain[..12], "the BTH is in the clear");
            let copy = bytes.clone();
            let in_clear = bytes.windows(12).any(|part| part == &rider[..12]);
            assert_eq!(in_clear, mode == Mode::Auth);
            let at = 0..bytes.len();
            let opened = opener.open(&path(), 0, &mut bytes, at, 0);
            let opened = opened.expect("genuine");
            let (first, second) = bytes[..opened.len].split_at(opened.rider);
            for (opened, plain) in [(first, &rider), (second, &plain)] {
                let icrc = plain.len() - 4;
                assert_eq!(opened[..icrc], plain[..icrc]);
                assert_eq!(opened[icrc..], [0; 4]);
            }
            assert_eq!(opened.riders().counter, opened.envelope.counter + 1);
            let again = open(&mut opener, &path(), 0, &copy);
            assert_eq!(again, Err(Refusal::Replayed));
            // Both counters are used up, and no more.
            let riders = opened.riders();
            let noted = opener.note(&path(), &riders, &rider, 0);
            assert_eq!(noted, Err(Refusal::Replayed));
            let next = sealed(&mut sealer, path(), &plain);
            let next = Envelope::of(&next).expect("sealed");
            assert_eq!(next.counter, riders.counter + 1);
        }
    }
}

#[test]
fn no_bit_of_a_packet_with_a_rider_can_be_changed() {
    for mode in MODES {
        let (mut sealer, mut opener) = (sealer(&file(), mode), opener(&file()));
        let plain = packet(1, 8);
        let bytes = sealed_with(&mut sealer, &plain, &rider(&plain, 4));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            open(&mut opener, &path(), 0, &changed).expect_err("changed");
        }
        for len in 0..bytes.len() {
            open(&mut opener, &path(), 0, &bytes[..len]).expect_err("cut");
        }
        open(&mut opener, &path(), 0, &bytes).expect("the genuine one still opens");
    }
}

#[test]
#[should_panic = "no rider"]
fn a_rider_is_for_the_same_qp() {
    let plain = packet(1, 8);
    let mut other = rider(&plain, 4);
    other[7] ^= 1;
    sealed_with(&mut sealer(&file(), Mode::Seal), &plain, &other);
}

#[test]
fn a_packet_is_for_its_path_and_its_cluster() {
    let (mut sealer, mut opener) = (sealer(&file(), Mode::Seal), opener(&file()));
    let bytes = sealed(&mut sealer, path(), &packet(1, 40));
    let [a, b, c] = [1, 2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
    for (source, dest) in [(b, a), (a, c), (c, b), (a, a)] {
        let refused = open(&mut opener, &Path { source, dest }, 0, &bytes);
        assert_eq!(refused, Err(Refusal::Forged));
    }
    let mut other = Opener::new(Keys::new(&KeyFile::new(0x3fa3, [7; 32], 0)), Mode::Auth);
    assert_eq!(
        open(&mut other, &path(), 0, &bytes),
        Err(Refusal::OtherKey(0x3fa2))
    );
    let mut same_id = Opener::new(Keys::new(&KeyFile::new(0x3fa2, [8; 32], 0)), Mode::Auth);
    assert_eq!(open(&mut same_id, &path(), 0, &bytes), Err(Refusal::Forged));
    open(&mut opener, &path(), 0, &bytes).expect("genuine");
}

#[test]
fn what_is_only_authenticated_is_not_enough_where_sealing_is_required() {
    let mut strict = Opener::new(Keys::new(&file()), Mode::Seal);
    let auth = sealed(&mut sealer(&file(), Mode::Auth), path(), &packet(1, 8));
    let seal = sealed(&mut sealer(&file(), Mode::Seal), path(), &packet(1, 8));
    assert_eq!(
        open(&mut strict, &path(), 0, &auth),
        Err(Refusal::TooWeak(Mode::Auth))
    );
    open(&mut strict, &path(), 0, &seal).expect("genuine");
}

#[test]
fn old_epochs_end_and_their_replays_stay_known() {
    let old = file();
    let mut new = file();
    new.rotate([8; 32], 1000, 1060);
    let (mut sealer, mut opener) = (sealer(&old, Mode::Seal), opener(&old));
    let [first, second, third] = [1, 2, 3].map(|n| sealed(&mut sealer, path(), &packet(n, 8)));
    open(&mut opener, &path(), 1000, &first).expect("genuine");
    opener.set_keys(Keys::new(&new));
    assert_eq!(
        open(&mut opener, &path(), 1061, &first),
        Err(Refusal::Replayed)
    );
    open(&mut opener, &path(), 1061, &second).expect("on its way when the epoch changed");
    sealer.set_keys(Keys::new(&new), Identity::new([3; 12]), 1000);
    let before = sealed(&mut sealer, path(), &packet(4, 8));
    assert_eq!(Envelope::of(&before).expect("sealed").epoch, 1);
    assert!(!sealer.is_due(1059) && sealer.is_due(1060));
    sealer.renew(Identity::new([4; 12]), 1060);
    assert!(!sealer.is_due(u64::MAX / 4));
    let after = sealed(&mut sealer, path(), &packet(5, 8));
    assert_eq!(Envelope::of(&after).expect("sealed").epoch, 2);
    open(&mut opener, &path(), 1030, &after).expect("a clock that is behind");
    let now = 1060 + GRACE_S;
    assert_eq!(
        open(&mut opener, &path(), now, &third),
        Err(Refusal::OldEpoch(1))
    );
    // A file from which the epoch is gone, and one that was made anew under its number.
    new.rotate([9; 32], now, now + 60);
    opener.set_keys(Keys::new(&new));
    assert_eq!(
        open(&mut opener, &path(), now, &third),
        Err(Refusal::UnknownEpoch(1))
    );
}

#[test]
fn what_another_process_of_the_address_opened_is_not_taken_again() {
    let (mut sealer, mut one, mut other) = (
        sealer(&file(), Mode::Seal),
        opener(&file()),
        opener(&file()),
    );
    let bytes = sealed(&mut sealer, path(), &packet(1, 8));
    let mut buffer = bytes.clone();
    let opened = one
        .open(&path(), 0, &mut buffer, 0..bytes.len(), 0)
        .expect("genuine");
    assert_eq!(other.note(&path(), &opened.envelope, &buffer, 0), Ok(()));
    assert_eq!(open(&mut other, &path(), 0, &bytes), Err(Refusal::Replayed));
    assert_eq!(
        other.note(&path(), &opened.envelope, &buffer, 0),
        Err(Refusal::Replayed)
    );
}

#[test]
fn what_quotes_a_packet_must_have_seen_it() {
    let mut sealer = sealer(&file(), Mode::Seal);
    let bytes = sealed(&mut sealer, path(), &packet(1, 8));
    let sent = Envelope::of(&bytes).expect("sealed");
    assert!(sealer.has_sent(&path(), &sent));
    let reverse = Path {
        source: path().dest,
        dest: path().source,
    };
    assert!(!sealer.has_sent(&reverse, &sent));
    for forged in [
        Envelope {
            counter: sent.counter + 1,
            ..sent
        },
        Envelope {
            counter: sent.counter - 1,
            ..sent
        },
        Envelope {
            sender: sent.sender + 1,
            ..sent
        },
        Envelope { epoch: 2, ..sent },
    ] {
        assert!(!sealer.has_sent(&path(), &forged));
    }
}

proptest! {
    /// A received train is opened where it lies, packet by packet, to where its packets lie close together, whatever is lost of it.
    #[test]
    fn trains_are_opened_where_they_lie(
        len in 0_usize..300,
        last in 0_usize..300,
        count in 1_usize..20,
        bad in proptest::collection::vec(any::<bool>(), 20),
        is_sealed in any::<bool>(),
    ) {
        let mode = MODES[usize::from(is_sealed)];
        let (mut sealer, mut opener) = (sealer(&file(), mode), opener(&file()));
        let packets: Vec<_> = (0..count)
            .map(|n| packet(n, if n + 1 == count { last.min(len) } else { len }))
            .collect();
        let mut train = Vec::new();
        for packet in &packets {
            train.extend(sealed(&mut sealer, path(), packet));
        }
        let size = len + 16 + OVERHEAD;
        for (n, _) in bad.iter().take(count).enumerate().filter(|(_, bad)| **bad) {
            train[n * size + 27] ^= 1;
        }
        let (mut to, total) = (0, train.len());
        for from in (0..total).step_by(size) {
            let at = from..(from + size).min(total);
            if let Ok(opened) = opener.open(&path(), 0, &mut train, at, to) {
                to += opened.len;
            }
        }
        let mut expected = Vec::new();
        for (_, packet) in bad.iter().zip(&packets).filter(|(bad, _)| !**bad) {
            expected.extend(&packet[..packet.len() - 4]);
            expected.extend([0; 4]);
        }
        prop_assert_eq!(&train[..to], &expected[..]);
    }

    /// Bytes of anything open nothing, and no length is a panic.
    #[test]
    fn junk_opens_nothing(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), is_close in any::<bool>()) {
        let mut opener = opener(&file());
        if is_close && bytes.len() > 16 {
            bytes[12..16].copy_from_slice(&[0x42, 1, 0x3f, 0xa2]);
        }
        prop_assert!(open(&mut opener, &path(), 0, &bytes).is_err());
    }
}

/// More senders than are kept: the table stays within its bounds, and those that are heard keep their windows.
#[test]
fn a_sender_that_is_heard_is_not_forgotten_for_others() {
    let mut opener = opener(&file());
    let mut sealer = sealer(&file(), Mode::Seal);
    let first = sealed(&mut sealer, path(), &packet(0, 0));
    open(&mut opener, &path(), 0, &first).expect("genuine");
    for n in 0..20_000_u32 {
        let mut random = [0x55; 12];
        random[..4].copy_from_slice(&n.to_be_bytes());
        sealer.renew(Identity::new(random), 0);
        let bytes = sealed(&mut sealer, path(), &packet(1, 0));
        open(&mut opener, &path(), 0, &bytes).expect("genuine");
        if n % 64 == 0 {
            // The first one goes on under its own number.
            sealer.renew(Identity::new([9; 12]), 0);
            for _ in 0..=n / 64 + 1 {
                let bytes = sealed(&mut sealer, path(), &packet(2, 0));
                let _ = open(&mut opener, &path(), 0, &bytes);
            }
        }
    }
    assert_eq!(
        open(&mut opener, &path(), 0, &first),
        Err(Refusal::Replayed)
    );
}
