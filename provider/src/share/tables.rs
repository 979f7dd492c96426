//! The registry's contents in memory, and queries on them without the file.

use std::fmt;
use std::net::IpAddr;

use urxe_core::qpn_table::{CHUNKS, QpnChunk};

use super::entries::{
    CHUNK_LEN, ChunkEntry, Damaged, Participant, ROW_LEN, ROWS, Row, SOCKET_LEN, SocketEntry,
};

pub(super) const MAGIC: [u8; 16] = *b"urxe registry 1\n";
/// Where a number is that every change raises.
pub(super) const GENERATION_AT: u64 = 16;
pub(super) const HEAD: u64 = 64;
/// Sockets of all participants.
pub(super) const SOCKETS: usize = 2048;
pub(super) const SOCKETS_AT: u64 = HEAD + (ROWS * ROW_LEN) as u64;
pub(super) const CHUNKS_AT: u64 = SOCKETS_AT + (SOCKETS * SOCKET_LEN) as u64;
/// Bytes of the whole file.
pub(super) const LEN: usize = CHUNKS_AT as usize + CHUNKS * CHUNK_LEN;

/// Participants, sockets and chunks. Every row that an entry names exists.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) participants: Vec<Participant>,
    pub(super) sockets: Vec<Option<SocketEntry>>,
    pub(super) chunks: Vec<ChunkEntry>,
}

impl Tables {
    /// From the bytes of the file, all [`LEN`] of them.
    pub(super) fn parse(bytes: &[u8]) -> Result<Tables, Damaged> {
        let (head, chunks) = bytes.split_at(CHUNKS_AT as usize);
        let (head, sockets) = head.split_at(SOCKETS_AT as usize);
        let rows = head[HEAD as usize..].as_chunks::<ROW_LEN>().0.iter();
        let sockets = sockets.as_chunks::<SOCKET_LEN>().0.iter();
        let chunks = chunks.as_chunks::<CHUNK_LEN>().0.iter();
        Ok(Tables {
            participants: rows.map(Participant::parse).collect(),
            sockets: sockets.map(SocketEntry::parse).collect::<Result<_, _>>()?,
            chunks: chunks.map(ChunkEntry::parse).collect::<Result<_, _>>()?,
        })
    }

    /// Before the first participant.
    pub(super) fn empty() -> Tables {
        Tables {
            participants: vec![Participant::default(); ROWS],
            sockets: vec![None; SOCKETS],
            chunks: vec![ChunkEntry::default(); CHUNKS],
        }
    }

    pub(super) fn sockets_on(&self, addr: IpAddr) -> impl Iterator<Item = SocketEntry> + '_ {
        let entries = self.sockets.iter().flatten().copied();
        entries.filter(move |entry| entry.addr == addr)
    }

    /// Every chunk that has a holder, in order.
    pub(super) fn held_chunks(&self) -> impl Iterator<Item = (QpnChunk, Row)> + '_ {
        let entries = self.chunks.iter().enumerate();
        entries.filter_map(|(n, entry)| Some((QpnChunk(n as u16), entry.holder?)))
    }

    /// All participants, with what they have.
    pub(super) fn participants(&self) -> impl Iterator<Item = super::Participant> + '_ {
        let rows = self.participants.iter().enumerate();
        rows.filter(|(_, p)| p.nonce != 0).map(|(number, p)| {
            let row = Row(number as u16);
            let sockets = self.sockets.iter().flatten();
            let chunks = self.chunks.iter();
            super::Participant {
                pid: p.process.pid,
                addresses: sockets.filter(|s| s.row == row).map(|s| s.addr).collect(),
                qpn_chunks: chunks.filter(|c| c.holder == Some(row)).count() as u32,
            }
        })
    }

    /// True if this participant has that row now.
    pub(super) fn is_there(&self, row: Row, nonce: u64) -> bool {
        let participant = self.participants.get(usize::from(row.0));
        participant.is_some_and(|p| p.nonce == nonce)
    }

    /// True if both rows are contexts' of one process.
    pub(super) fn are_of_one_process(&self, row: Row, other: Row) -> bool {
        let process = |row: Row| Some(self.participants.get(usize::from(row.0))?.process);
        process(row) == process(other)
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.0.0;
        write!(f, "is damaged (an entry is of participant {row} of {ROWS})")
    }
}
