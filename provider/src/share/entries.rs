//! The entries of the registry's file, each of a fixed length.

use std::fs;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt;

use urxe_wire::Gid;

/// Participants at once.
pub(super) const ROWS: usize = 512;
pub(super) const ROW_LEN: usize = 16;
pub(super) const SOCKET_LEN: usize = 24;
pub(super) const CHUNK_LEN: usize = 8;

/// A participant's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(super) struct Row(pub(super) u16);

/// An entry is of a row that there is not: something else has written to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Damaged(pub(super) Row);

impl Row {
    /// The port that the participant's lone packets to neighbours may come from. They are among those that RoCEv2 has
    /// for packets to leave from, and above those that Linux gives to sockets that name none.
    pub(super) fn direct_port(self) -> NonZeroU16 {
        const FIRST: NonZeroU16 = NonZeroU16::new(0xf000).expect("not 0");
        FIRST.saturating_add(self.0)
    }

    /// From a half-word that is 0 for none, and one more than the row otherwise.
    fn parse(half_word: [u8; 2]) -> Result<Option<Row>, Damaged> {
        let row = u16::from_le_bytes(half_word).checked_sub(1).map(Row);
        match row {
            Some(row) if !row.exists() => Err(Damaged(row)),
            row => Ok(row),
        }
    }

    pub(super) fn exists(self) -> bool {
        usize::from(self.0) < ROWS
    }
}

/// A participant. Free rows have nonce 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Participant {
    pub(super) nonce: u64,
    pub(super) process: ProcessId,
}

/// A process: its number says something in its own PID namespace alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessId {
    pub(super) pid: u32,
    /// The number of its namespace; 0 if that is not known.
    namespace: u32,
}

impl ProcessId {
    pub(super) fn own() -> ProcessId {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        ProcessId {
            pid: std::process::id(),
            // They are of 32 bits.
            namespace: namespace as u32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketEntry {
    pub(super) row: Row,
    /// Its number in the kernel's group, if that is known.
    pub(super) index: Option<u32>,
    /// The kernel can hand it trains whole.
    pub(super) joins: bool,
    /// It takes packets through memory.
    pub(super) takes_rings: bool,
    pub(super) addr: IpAddr,
}

/// The holder of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    pub(super) holder: Option<Row>,
    /// When the last holder died or left, in seconds since the system started.
    pub(super) free_since: u32,
}

impl Participant {
    pub(super) fn parse(bytes: &[u8; ROW_LEN]) -> Participant {
        Participant {
            nonce: u64_at(bytes, 0),
            process: ProcessId {
                pid: u32_at(bytes, 8),
                namespace: u32_at(bytes, 12),
            },
        }
    }

    pub(super) fn emit(self) -> [u8; ROW_LEN] {
        let mut bytes = [0; ROW_LEN];
        bytes[..8].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.process.pid.to_le_bytes());
        bytes[12..].copy_from_slice(&self.process.namespace.to_le_bytes());
        bytes
    }
}

impl SocketEntry {
    /// `None` for a free place: its first half-word is 0.
    pub(super) fn parse(bytes: &[u8; SOCKET_LEN]) -> Result<Option<SocketEntry>, Damaged> {
        let Some(row) = Row::parse([bytes[0], bytes[1]])? else {
            return Ok(None);
        };
        let addr = Gid(bytes[8..].try_into().expect("sixteen bytes"));
        let index = u32_at(bytes, 4);
        Ok(Some(SocketEntry {
            row,
            index: (index != u32::MAX).then_some(index),
            joins: bytes[2] != 0,
            takes_rings: bytes[3] != 0,
            addr: addr.into(),
        }))
    }

    pub(super) fn emit(self) -> [u8; SOCKET_LEN] {
        let mut bytes = [0; SOCKET_LEN];
        bytes[..2].copy_from_slice(&(self.row.0 + 1).to_le_bytes());
        bytes[2] = u8::from(self.joins);
        bytes[3] = u8::from(self.takes_rings);
        bytes[4..8].copy_from_slice(&self.index.unwrap_or(u32::MAX).to_le_bytes());
        bytes[8..].copy_from_slice(&Gid::from(self.addr).0);
        bytes
    }
}

impl ChunkEntry {
    pub(super) fn parse(bytes: &[u8; CHUNK_LEN]) -> Result<ChunkEntry, Damaged> {
        Ok(ChunkEntry {
            holder: Row::parse([bytes[0], bytes[1]])?,
            free_since: u32_at(bytes, 4),
        })
    }

    pub(super) fn emit(self) -> [u8; CHUNK_LEN] {
        let holder = self.holder.map_or(0, |row| row.0 + 1);
        let mut bytes = [0; CHUNK_LEN];
        bytes[..2].copy_from_slice(&holder.to_le_bytes());
        bytes[4..].copy_from_slice(&self.free_since.to_le_bytes());
        bytes
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = Row> {
        (0..ROWS as u16).prop_map(Row)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(
            participant in any::<(u64, u32, u32)>(),
            socket in (row(), any::<(u32, bool, bool, IpAddr)>()),
            chunk in (prop::option::of(row()), any::<u32>()),
        ) {
            let (nonce, pid, namespace) = participant;
            let participant = Participant { nonce, process: ProcessId { pid, namespace } };
            prop_assert_eq!(Participant::parse(&participant.emit()), participant);
            let (row, (index, joins, takes_rings, addr)) = socket;
            let index = (index != u32::MAX).then_some(index);
            let addr = addr.to_canonical();
            let socket = SocketEntry { row, index, joins, takes_rings, addr };
            prop_assert_eq!(SocketEntry::parse(&socket.emit()), Ok(Some(socket)));
            let (holder, free_since) = chunk;
            let chunk = ChunkEntry { holder, free_since };
            prop_assert_eq!(ChunkEntry::parse(&chunk.emit()), Ok(chunk));
        }

        #[test]
        fn an_entry_is_of_a_row_that_there_is_or_damaged(bytes in any::<[u8; SOCKET_LEN]>()) {
            let place = u16::from_le_bytes([bytes[0], bytes[1]]);
            let mut half = [0; CHUNK_LEN];
            half.copy_from_slice(&bytes[..CHUNK_LEN]);
            let (socket, chunk) = (SocketEntry::parse(&bytes), ChunkEntry::parse(&half));
            match place {
                0 => prop_assert!(socket == Ok(None) && chunk.expect("free").holder.is_none()),
                _ if usize::from(place) <= ROWS => {
                    let row = Row(place - 1);
                    prop_assert_eq!(socket.expect("there is one").expect("taken").row, row);
                    prop_assert_eq!(chunk.expect("there is one").holder, Some(row));
                }
                _ => {
                    let damaged = Damaged(Row(place - 1));
                    prop_assert!(socket == Err(damaged) && chunk == Err(damaged));
                }
            }
        }
    }
}
