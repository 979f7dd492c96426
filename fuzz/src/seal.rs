//! The opener of sealed packets and the text of key files: nothing opens that was not sealed, what was sealed opens once and is what it
//! was, and a key file that is read is written as it was meant.

use urxe_seal::{Identity, KeyFile, Keys, Mode, Notice, OVERHEAD, Opener, Path, Sealer};

/// Input: a first byte that chooses. Then a datagram, or one to be sealed and changed, or the text of a key file.
pub fn target(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    match choice % 4 {
        0 => datagram(data),
        1 => changed(data, Mode::Seal),
        2 => changed(data, Mode::Auth),
        _ => key_file(data),
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
