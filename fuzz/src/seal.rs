//! The opener of sealed packets and the text of key files: nothing opens that was not sealed, what was sealed opens once and is what it
//! was, and a key file that is read is written as it was meant.

use urxe_seal::{
    HELLO_LEN, Identity, Initiator, KeyFile, Keys, Mode, Notice, OVERHEAD, Opener, Pair, PairEnds,
    Path, RIDER_MAX, Sealer, respond, sealed_len,
};

/// Input: a first byte that chooses. Then a datagram, or one to be sealed and changed, with a rider or without, or the text of a key file, or messages
/// of a handshake.
pub fn target(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    match choice % 8 {
        0 => datagram(data),
        1 => changed(data, Mode::Seal),
        2 => changed(data, Mode::Auth),
        3 => key_file(data),
        4 => hello(data),
        5 => handshake(data),
        6 => of_pair(data),
        _ => with_rider(data),
    }
}

fn file() -> KeyFile {
    KeyFile::new(0x3fa2, [7; 32], 0)
}

fn path() -> Path {
    Path {
        source: [10, 0, 0, 1].into(),
        dest: [10, 0, 0, 2].into(),
    }
}

fn datagram(data: &[u8]) {
    if let Some(notice) = Notice::parse(data) {
        assert_eq!(Notice::parse(&notice.emit()), Some(notice));
    }
    let mut opener = Opener::new(Keys::new(&file()), Mode::Auth);
    let mut bytes = data.to_vec();
    let opened = opener.open(&path(), 0, &mut bytes, 0..data.len(), 0);
    assert!(opened.is_err(), "the fuzzer has no key: {opened:?}");
}

/// Two bytes say which byte is changed, and how; the rest is the packet.
fn changed(data: &[u8], mode: Mode) {
    let Some((&[at, flip], packet)) = data.split_first_chunk() else {
        return;
    };
    if packet.len() < 16 {
        return;
    }
    let mut sealer = Sealer::new(Keys::new(&file()), mode, Identity::new([1; 12]), 0);
    let mut opener = Opener::new(Keys::new(&file()), Mode::Auth);
    let mut sealed = vec![0; packet.len() + OVERHEAD];
    sealer.on(path()).seal(packet, &mut sealed);
    let mut bytes = sealed.clone();
    let at = usize::from(at) % bytes.len();
    bytes[at] ^= flip;
    let opened = opener.open(&path(), 0, &mut bytes, 0..sealed.len(), 0);
    assert_eq!(opened.is_ok(), flip == 0, "byte {at} changed by {flip:#x}");
    for is_first in [flip != 0, false] {
        let mut bytes = sealed.clone();
        let opened = opener.open(&path(), 0, &mut bytes, 0..sealed.len(), 0);
        assert_eq!(opened.is_ok(), is_first);
        if let Ok(opened) = opened {
            let body = packet.len() - 4;
            assert_eq!(bytes[..body], packet[..body]);
            assert_eq!(opened.len, packet.len());
        }
    }
}

/// Three bytes say which byte is changed, how, and how long the rider is; then come the rider and the packet.
fn with_rider(data: &[u8]) {
    let Some((&[at, flip, len], rest)) = data.split_first_chunk() else {
        return;
    };
    let len = 16 + usize::from(len) % (RIDER_MAX - 15);
    let Some((rider, packet)) = rest.split_at_checked(len).filter(|(_, it)| it.len() >= 16) else {
        return;
    };
    let mut rider = rider.to_vec();
    rider[5..8].copy_from_slice(&packet[5..8]);
    let mut sealer = Sealer::new(Keys::new(&file()), Mode::Seal, Identity::new([1; 12]), 0);
    let mut opener = Opener::new(Keys::new(&file()), Mode::Auth);
    let mut sealed = vec![0; sealed_len(packet.len(), rider.len())];
    sealer.on(path()).seal_with(packet, &rider, &mut sealed);
    let mut changed = sealed.clone();
    let at = usize::from(at) % changed.len();
    changed[at] ^= flip;
    let opened = opener.open(&path(), 0, &mut changed, 0..sealed.len(), 0);
    assert_eq!(opened.is_ok(), flip == 0, "byte {at} changed by {flip:#x}");
    let all = 0..sealed.len();
    let opened = opener.open(&path(), 0, &mut sealed, all, 0);
    assert_eq!(opened.is_ok(), flip != 0, "once");
    if let Ok(opened) = opened {
        let (first, second) = sealed[..opened.len].split_at(opened.rider);
        assert_eq!(first[..rider.len() - 4], rider[..rider.len() - 4]);
        assert_eq!(second[..packet.len() - 4], packet[..packet.len() - 4]);
    }
}

fn ends() -> PairEnds {
    PairEnds {
        initiator: path().source,
        responder: path().dest,
        service_id: 1,
    }
}

fn initiator() -> (Initiator, [u8; HELLO_LEN]) {
    Initiator::new(&Keys::new(&file()), 0, &ends(), [3; 36])
}

/// A first message, and an answer, of no end that has the secret. libFuzzer may know the genuine first message, which [`handshake`] compares.
fn hello(data: &[u8]) {
    let keys = Keys::new(&file());
    let (mut initiator, genuine) = initiator();
    let answered = respond(&keys, 0, &ends(), data, [4; 36]);
    assert_eq!(answered.is_ok(), *data == genuine, "{answered:?}");
    assert!(initiator.finish(data).is_err());
}

/// Both messages, each with a byte changed: two bytes say which, and how. They agree only if nothing was, and the genuine ones still count.
fn handshake(data: &[u8]) {
    let Some(&[at, flip, to_answer, ..]) = data.first_chunk::<3>() else {
        return;
    };
    let (mut initiator, mut first) = initiator();
    let keys = Keys::new(&file());
    let genuine = first;
    let at = usize::from(at) % HELLO_LEN;
    if to_answer & 1 == 0 {
        first[at] ^= flip;
    }
    let answered = respond(&keys, 0, &ends(), &first, [4; 36]);
    assert_eq!(answered.is_ok(), first == genuine);
    let (_, answer) = respond(&keys, 0, &ends(), &genuine, [4; 36]).expect("genuine");
    let mut second = answer;
    second[at] ^= flip;
    assert_eq!(initiator.finish(&second).is_ok(), flip == 0);
    assert_eq!(initiator.finish(&answer).is_ok(), flip != 0, "once");
}

fn agree() -> [Pair; 2] {
    let (mut initiator, first) = initiator();
    let keys = Keys::new(&file());
    let (theirs, answer) = respond(&keys, 0, &ends(), &first, [4; 36]).expect("genuine");
    [initiator.finish(&answer).expect("genuine"), theirs]
}

/// A packet to the QP of a pair: two bytes say which byte is changed, and how; the rest is the packet.
fn of_pair(data: &[u8]) {
    let Some((&[at, flip], packet)) = data.split_first_chunk() else {
        return;
    };
    if packet.len() < 16 {
        return;
    }
    let qpn = u32::from_be_bytes([0, packet[5], packet[6], packet[7]]);
    let [own, theirs] = agree();
    let mut sealer = Sealer::new(Keys::new(&file()), Mode::Seal, Identity::new([1; 12]), 0);
    let mut opener = Opener::new(Keys::new(&file()), Mode::Auth);
    sealer.bind(&own, path(), qpn);
    assert!(opener.bind(&theirs, path(), qpn));
    let mut sealed = vec![0; packet.len() + OVERHEAD];
    // The cluster's keys are not enough, whatever comes first.
    sealer.on(path()).seal(packet, &mut sealed);
    let len = sealed.len();
    assert!(opener.open(&path(), 0, &mut sealed, 0..len, 0).is_err());
    sealer.seal(path(), packet, &mut sealed);
    let mut changed = sealed.clone();
    changed[usize::from(at) % len] ^= flip;
    let opened = opener.open(&path(), 0, &mut changed, 0..len, 0);
    assert_eq!(opened.is_ok(), flip == 0);
    let opened = opener.open(&path(), 0, &mut sealed, 0..len, 0);
    assert_eq!(opened.is_ok(), flip != 0, "once");
}

fn key_file(data: &[u8]) {
    let Some(text) = std::str::from_utf8(data).ok() else {
        return;
    };
    let Ok(file) = text.parse::<KeyFile>() else {
        return;
    };
    let written = file.text();
    let again: KeyFile = written.parse().expect("as written");
    assert_eq!(*again.text(), *written);
    assert!(file.epochs().eq(again.epochs()));
}
