//! What the packet tap writes.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses some of it"
)]

use std::path::{Path, PathBuf};

/// A file name of our own, removed at the end.
pub struct Capture(pub PathBuf);

impl Capture {
    pub fn new(name: &str) -> Capture {
        let pid = std::process::id();
        Capture(std::env::temp_dir().join(format!("urxe-capture-{pid}-{name}.pcapng")))
    }

    pub fn packets(&self) -> Vec<(u32, Vec<u8>)> {
        packets(&self.0)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The packets of a pcapng file, enhanced packet blocks of a raw IP interface, with their flags: 1 for a packet that came,
/// 2 for one that left.
pub fn packets(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("the file is there");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let (mut at, mut found, mut last_time) = (0, Vec::new(), 0);
    while at < bytes.len() {
        let (kind, len) = (word(at), word(at + 4) as usize);
        assert_eq!(
            word(at + len - 4) as usize,
            len,
            "a block has its length at both ends"
        );
        match kind {
            0x0a0d_0d0a => assert_eq!(word(at + 8), 0x1a2b_3c4d),
            1 => assert_eq!(word(at + 8) & 0xffff, 101, "raw IP"),
            6 => {
                let time = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
                assert!(time >= last_time, "times go forward");
                last_time = time;
                let size = word(at + 20) as usize;
                assert_eq!(word(at + 24) as usize, size, "nothing is cut off");
                let options = at + 28 + size.next_multiple_of(4);
                // `epb_flags`, of 4 bytes.
                assert_eq!(word(options), 2 | 4 << 16, "there is no other option");
                let packet = bytes[at + 28..at + 28 + size].to_vec();
                found.push((word(options + 4), packet));
            }
            _ => panic!("a block of type {kind}"),
        }
        at += len;
    }
    found
}
