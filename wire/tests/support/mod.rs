//! Reads classic pcap files, little-endian with microseconds, as all of ours are.

use std::fs;
use std::path::{Path, PathBuf};

use urxe_wire::LinkType;

/// The frames of a capture, with their link type.
pub(crate) fn frames(path: &Path) -> (LinkType, Vec<Vec<u8>>) {
    let data = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("4 bytes"));
    assert_eq!(word(0), 0xa1b2_c3d4, "{}: not a pcap file", path.display());
    let link_type = LinkType::from_pcap(word(20) as u16).expect("a known link type");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < data.len() {
        let len = word(at + 8) as usize;
        frames.push(data[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    (link_type, frames)
}

/// The pcap files in a directory, by name.
pub(crate) fn captures_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "pcap"));
    paths.sort();
    paths
}

/// The captures that the repository holds.
pub(crate) fn own_captures() -> Vec<PathBuf> {
    captures_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures"))
}
