//! The file that says who has which QPNs, and which socket is whose.
//!
//! One file for each user and network namespace, in a directory that only the user can
//! enter. It is read and changed under a lock of the whole file (`flock`); that a
//! participant is alive is shown by a lock on one byte that belongs to his open file
//! (an OFD lock), which the kernel drops when he dies. All entries are small and
//! written one by one, so a process that is killed leaves whole entries.

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FlockOperation, flock};
use urxe_core::qpn_table::{CHUNKS, QpnChunk};

use super::directory::{open_shared, own_directory};
use super::entries::{
    CHUNK_LEN, ChunkEntry, Participant, ROW_LEN, ROWS, Row, SOCKET_LEN, SocketEntry,
};

const MAGIC: [u8; 16] = *b"urxe registry 1\n";
const HEAD: u64 = 64;
/// Sockets of all participants.
const SOCKETS: usize = 2048;
const SOCKETS_AT: u64 = HEAD + (ROWS * ROW_LEN) as u64;
const CHUNKS_AT: u64 = SOCKETS_AT + (SOCKETS * SOCKET_LEN) as u64;
/// Bytes that are locked by the living, one for each row. Far behind the contents.
const LOCKS_AT: u64 = 1 << 32;

/// Seconds that the QPNs of the dead rest: peers may still send to them.
const QUARANTINE_S: u32 = 10;

/// The open file, not locked.
#[derive(Debug)]
pub(super) struct Registry {
    file: File,
    directory: PathBuf,
    namespace: u64,
}

impl Registry {
    /// Opens the file of this user and network namespace, or makes it.
    pub(super) fn open() -> io::Result<Registry> {
        let directory = own_directory()?;
        let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |meta| meta.ino());
        let file = open_shared(&directory.join(format!("qpns-{namespace}")))?;
        Ok(Registry {
            file,
            directory,
            namespace,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Where a participant takes packets that others got for him.
    pub(super) fn hand_over_path(&self, row: Row) -> PathBuf {
        self.directory
            .join(format!("hand-over-{}-{}", self.namespace, row.0))
    }

    /// Where ports are listed ([`super::ports`]).
    pub(super) fn ports_path(&self) -> PathBuf {
        self.directory.join(format!("ports-{}", self.namespace))
    }

    /// Waits for the lock and reads everything.
    pub(super) fn lock(&self) -> io::Result<Locked<'_>> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        Locked::read(self)
    }

    /// The same, if nobody else has it.
    pub(super) fn try_lock(&self) -> io::Result<Option<Locked<'_>>> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Locked::read(self).map(Some),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// True if this participant has that row, as far as is known without the lock: he may have died without being
    /// taken out.
    pub(super) fn has_row(&self, row: Row, nonce: u64) -> bool {
        let mut bytes = [0; ROW_LEN];
        let at = HEAD + u64::from(row.0) * ROW_LEN as u64;
        let read = self.file.read_exact_at(&mut bytes, at);
        read.is_ok() && Participant::parse(&bytes).nonce == nonce
    }

    /// Who has a chunk now: one small read.
    pub(super) fn holder_of(&self, chunk: QpnChunk) -> Option<Row> {
        let mut bytes = [0; CHUNK_LEN];
        let at = CHUNKS_AT + (usize::from(chunk.0) * CHUNK_LEN) as u64;
        self.file.read_exact_at(&mut bytes, at).ok()?;
        ChunkEntry::parse(&bytes).holder
    }

    /// The holders of all chunks, and all sockets, read without the lock: entries are
    /// whole, if not all of one moment.
    pub(super) fn holders(&self) -> io::Result<(Vec<Option<Row>>, Vec<SocketEntry>)> {
        let mut bytes = vec![0; SOCKETS * SOCKET_LEN + CHUNKS * CHUNK_LEN];
        read_up_to(&self.file, &mut bytes, SOCKETS_AT)?;
        let (sockets, chunks) = bytes.split_at(SOCKETS * SOCKET_LEN);
        let chunks = chunks.as_chunks::<CHUNK_LEN>().0.iter();
        let sockets = sockets.as_chunks::<SOCKET_LEN>().0.iter();
        Ok((
            chunks.map(|b| ChunkEntry::parse(b).holder).collect(),
            sockets.filter_map(SocketEntry::parse).collect(),
        ))
    }
}

/// The locked registry. What is changed is written at once.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    registry: &'a Registry,
    participants: Vec<Participant>,
    sockets: Vec<Option<SocketEntry>>,
    chunks: Vec<ChunkEntry>,
    /// The lock outlives this value: see [`Locked::keep`].
    kept: bool,
}

impl<'a> Locked<'a> {
    fn read(registry: &'a Registry) -> io::Result<Locked<'a>> {
        let mut locked = Locked {
            registry,
            participants: Vec::new(),
            sockets: Vec::new(),
            chunks: Vec::new(),
            kept: false,
        };
        let mut bytes = vec![0; CHUNKS_AT as usize + CHUNKS * CHUNK_LEN];
        read_up_to(&registry.file, &mut bytes, 0)?;
        if bytes[..MAGIC.len()] == [0; 16] {
            registry.file.write_all_at(&MAGIC, 0)?;
        } else if bytes[..MAGIC.len()] != MAGIC {
            let text = "the registry of QPNs is of another version of urxe";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let part = |at: u64, len: usize| &bytes[at as usize..at as usize + len];
        let rows = part(HEAD, ROWS * ROW_LEN).as_chunks::<ROW_LEN>().0;
        locked.participants = rows.iter().map(Participant::parse).collect();
        let sockets = part(SOCKETS_AT, SOCKETS * SOCKET_LEN);
        let sockets = sockets.as_chunks::<SOCKET_LEN>().0;
        locked.sockets = sockets.iter().map(SocketEntry::parse).collect();
        let chunks = part(CHUNKS_AT, CHUNKS * CHUNK_LEN);
        let chunks = chunks.as_chunks::<CHUNK_LEN>().0;
        locked.chunks = chunks.iter().map(ChunkEntry::parse).collect();
        Ok(locked)
    }

    /// Frees what the dead have left. `own` is the row whose lock this open file holds:
    /// locks never conflict with one's own, so it would look dead.
    pub(super) fn bury_the_dead(&mut self, own: Option<Row>) -> io::Result<()> {
        for number in 0..ROWS {
            let row = Row(number as u16);
            let is_taken = self.participants[number].nonce != 0 && own != Some(row);
            if is_taken && !self.is_alive(row)? {
                self.remove(row)?;
                // Nobody can be at this name: the row is free, and we have the lock.
                let _ = fs::remove_file(self.registry.hand_over_path(row));
            }
        }
        Ok(())
    }

    /// Takes a place for this process; `None` if all are taken.
    pub(super) fn add(&mut self, nonce: u64) -> io::Result<Option<Row>> {
        let free = self.participants.iter().position(|p| p.nonce == 0);
        let Some(number) = free else {
            return Ok(None);
        };
        let row = Row(number as u16);
        // First the sign of life.
        let lock = byte_lock(row, libc::F_WRLCK);
        fcntl(&self.registry.file, FcntlArg::F_OFD_SETLK(&lock))?;
        let pid = std::process::id();
        self.participants[number] = Participant { nonce, pid };
        self.write(HEAD, number, &self.participants[number].emit())?;
        Ok(Some(row))
    }

    /// Takes a participant out, with all that he has.
    pub(super) fn remove(&mut self, row: Row) -> io::Result<()> {
        let now = seconds_since_start();
        for chunk in 0..CHUNKS {
            if self.chunks[chunk].holder == Some(row) {
                self.chunks[chunk] = ChunkEntry {
                    holder: None,
                    free_since: now,
                };
                self.write(CHUNKS_AT, chunk, &self.chunks[chunk].emit())?;
            }
        }
        for place in 0..SOCKETS {
            if self.sockets[place].is_some_and(|entry| entry.row == row) {
                self.sockets[place] = None;
                self.write(SOCKETS_AT, place, &[0; SOCKET_LEN])?;
            }
        }
        let number = usize::from(row.0);
        self.participants[number] = Participant::default();
        self.write(HEAD, number, &[0; ROW_LEN])
    }

    /// Notes a socket, or what its number is now. False if there is no room.
    pub(super) fn set_socket(&mut self, entry: SocketEntry) -> io::Result<bool> {
        let same =
            |e: &Option<SocketEntry>| e.is_some_and(|e| e.row == entry.row && e.addr == entry.addr);
        let place = self.sockets.iter().position(same);
        let place = place.or_else(|| self.sockets.iter().position(Option::is_none));
        let Some(place) = place else {
            return Ok(false);
        };
        self.sockets[place] = Some(entry);
        self.write(SOCKETS_AT, place, &entry.emit())?;
        Ok(true)
    }

    /// All sockets on an address.
    pub(super) fn sockets_on(&self, addr: IpAddr) -> impl Iterator<Item = SocketEntry> + '_ {
        let entries = self.sockets.iter().flatten().copied();
        entries.filter(move |entry| entry.addr == addr)
    }

    /// Gives a participant a chunk that nobody had for a while; `random` chooses. `None`
    /// if there is none.
    pub(super) fn grant(&mut self, row: Row, random: u64) -> io::Result<Option<QpnChunk>> {
        let now = seconds_since_start();
        let is_free = |entry: &ChunkEntry| {
            let rested = entry.free_since == 0 || now >= entry.free_since + QUARANTINE_S;
            entry.holder.is_none() && rested
        };
        let first = (random % CHUNKS as u64) as usize;
        let mut places = (0..CHUNKS).map(|n| (first + n) % CHUNKS);
        let Some(place) = places.find(|&place| is_free(&self.chunks[place])) else {
            return Ok(None);
        };
        self.chunks[place].holder = Some(row);
        self.write(CHUNKS_AT, place, &self.chunks[place].emit())?;
        Ok(Some(QpnChunk(place as u16)))
    }

    /// Every chunk that somebody has, in order.
    pub(super) fn held_chunks(&self) -> impl Iterator<Item = (QpnChunk, Row)> + '_ {
        let entries = self.chunks.iter().enumerate();
        entries.filter_map(|(n, entry)| Some((QpnChunk(n as u16), entry.holder?)))
    }

    /// Everybody, with what he has.
    pub(super) fn participants(&self) -> impl Iterator<Item = super::Participant> + '_ {
        let rows = self.participants.iter().enumerate();
        rows.filter(|(_, p)| p.nonce != 0).map(|(number, p)| {
            let row = Row(number as u16);
            let sockets = self.sockets.iter().flatten();
            let chunks = self.chunks.iter();
            super::Participant {
                pid: p.pid,
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

    /// True if the row is a context's of this process.
    pub(super) fn is_of_this_process(&self, row: Row) -> bool {
        let participant = self.participants.get(usize::from(row.0));
        participant.is_some_and(|p| p.pid == std::process::id())
    }

    /// Leaves the lock with the file, which is about to be closed.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }

    fn is_alive(&self, row: Row) -> io::Result<bool> {
        let mut lock = byte_lock(row, libc::F_WRLCK);
        fcntl(&self.registry.file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        #[allow(clippy::unnecessary_cast, reason = "another type in some C libraries")]
        Ok(lock.l_type != libc::F_UNLCK as i16)
    }

    fn write(&self, table: u64, place: usize, bytes: &[u8]) -> io::Result<()> {
        let at = table + (place * bytes.len()) as u64;
        self.registry.file.write_all_at(bytes, at)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if !self.kept {
            // It is held, so it can be let go.
            let _ = flock(&self.registry.file, FlockOperation::Unlock);
        }
    }
}

fn byte_lock(row: Row, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: (LOCKS_AT + u64::from(row.0)).cast_signed(),
        l_len: 1,
        l_pid: 0,
    }
}

/// Reads as much as there is: the rest of a young file counts as zeros.
fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(())
}

/// Never 0, which means never.
fn seconds_since_start() -> u32 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u32::try_from(time.tv_sec).unwrap_or(u32::MAX).max(1)
}
