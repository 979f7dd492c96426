//! What is to be said to the peers of a participant that is killed: the files ([`super::farewell_watch`] keeps and watches them).
//!
//! Each participant keeps a file with what it takes to end its connections, one entry for each, by place. Neighbours that have an
//! address in common with it, or are the peers of its connections, are told of the file, and those that join later find it. They
//! have it open, and look every second whether its owner lives. Of one that does not, each tells itself which of its own
//! connections have ended; and one of those that have the owner's address sends its peers the DREQs.

use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use urxe_core::cm::{Farewell, MadPath};
use urxe_wire::{Gid, Qpn};

use super::entries::{ROWS, Row, u64_at};
use super::hand_over::Neighbour;
use super::registry::read_up_to;

pub(super) const ENTRY_LEN: usize = 64;
/// As many connections as a participant may have.
pub(super) const ENTRIES: usize = 1 << 16;

/// Files with farewells: its own, and those of others.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    pub(super) own: Mutex<Own>,
    pub(super) others: Mutex<Vec<Other>>,
    /// How many there are, to be read without the lock.
    pub(super) watched: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) file: Option<File>,
    /// Those that know of it.
    pub(super) told: Vec<Neighbour>,
}

/// What another participant is to have said.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) of: Neighbour,
    pub(super) file: File,
    /// What is in the file, once its owner is gone and this participant says it to others.
    pub(super) said: Option<(Vec<Farewell>, u8)>,
}

/// What is to be done about participants that are gone.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// Connections that may be this participant's own.
    pub(crate) ended: Vec<Farewell>,
    /// What peers are to be told.
    pub(crate) to_say: Vec<Farewell>,
}

/// The owner of a file, by the end of its name.
pub(super) fn parse_owner(name: &str) -> Option<Neighbour> {
    let (row, nonce) = name.split_once('-')?;
    let row = row.parse().ok().filter(|row| usize::from(*row) < ROWS)?;
    let nonce = u64::from_str_radix(nonce, 16).ok()?;
    Some(Neighbour {
        row: Row(row),
        nonce,
    })
}

/// All of a file.
pub(super) fn read(file: &File) -> Vec<Farewell> {
    let len = file.metadata().map_or(0, |meta| meta.len());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(ENTRIES * ENTRY_LEN)];
    if read_up_to(file, &mut bytes, 0).is_err() {
        return Vec::new();
    }
    parse_all(&bytes).collect()
}

/// Farewells that are in a file. Entries of all zeros are free.
pub(super) fn parse_all(bytes: &[u8]) -> impl Iterator<Item = Farewell> {
    let entries = bytes.as_chunks::<ENTRY_LEN>().0.iter();
    entries.filter(|entry| entry[32] != 0).map(parse)
}

pub(super) fn emit(farewell: &Farewell) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    bytes[..16].copy_from_slice(&Gid::from(farewell.path.local).0);
    bytes[16..32].copy_from_slice(&Gid::from(farewell.path.remote).0);
    bytes[32] = 1;
    bytes[33] = farewell.path.tos;
    bytes[36..40].copy_from_slice(&farewell.local_id.to_le_bytes());
    bytes[40..44].copy_from_slice(&farewell.remote_id.to_le_bytes());
    bytes[44..48].copy_from_slice(&farewell.remote_qpn.get().to_le_bytes());
    bytes[48..56].copy_from_slice(&farewell.transaction_id.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8; ENTRY_LEN]) -> Farewell {
    let addr = |at: usize| Gid(bytes[at..at + 16].try_into().expect("sixteen bytes")).into();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Farewell {
        path: MadPath {
            local: addr(0),
            remote: addr(16),
            tos: bytes[33],
        },
        local_id: word(36),
        remote_id: word(40),
        remote_qpn: Qpn::new(word(44) & 0xff_ffff),
        transaction_id: u64_at(bytes, 48),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(
            (local, remote) in any::<(IpAddr, IpAddr)>(),
            (tos, local_id, remote_id, qpn) in any::<(u8, u32, u32, u32)>(),
            transaction_id: u64,
            free in 0_usize..3,
        ) {
            let farewell = Farewell {
                path: MadPath {
                    local: local.to_canonical(),
                    remote: remote.to_canonical(),
                    tos,
                },
                local_id,
                remote_id,
                remote_qpn: Qpn::new(qpn & 0xff_ffff),
                transaction_id,
            };
            let mut bytes = vec![0; free * ENTRY_LEN];
            bytes.extend(emit(&farewell));
            // Cut off, as by a limit of file sizes.
            bytes.extend([1; ENTRY_LEN - 1]);
            prop_assert_eq!(parse_all(&bytes).collect::<Vec<_>>(), [farewell]);
        }
    }

    #[test]
    fn owners_are_read_from_names() {
        let owner = parse_owner("17-00000000000000ff").expect("a name");
        assert_eq!((owner.row, owner.nonce), (Row(17), 255));
        for name in [
            "",
            "17",
            "512-1",
            "x-1",
            "1-x",
            "key-1-17-ff",
            "1-10000000000000000",
        ] {
            assert_eq!(parse_owner(name), None, "{name}");
        }
    }
}
