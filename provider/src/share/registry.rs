//! The file that lists the owners of QPNs and of sockets.
//!
//! One file for each user and network namespace, in a directory that only the user can
//! enter. It is read and changed under a lock of the whole file (`flock`). That a
//! participant is alive is shown by a lock on one byte that belongs to its open file
//! (an OFD lock), which the kernel drops when its process ends. All entries are small and
//! written one by one, so a process that is killed leaves whole entries.

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::time::{ClockId, clock_gettime};
use rustix::fs::{FlockOperation, flock};
use urxe_core::qpn_table::{CHUNKS, QpnChunk};

use super::directory::{check_file_limit, open_shared, user_directory, write_own};
use super::entries::{
    CHUNK_LEN, ChunkEntry, Participant, ProcessId, ROW_LEN, ROWS, Row, SOCKET_LEN, SocketEntry,
};
use super::lock;
use super::tables::{CHUNKS_AT, GENERATION_AT, HEAD, LEN, MAGIC, SOCKETS, SOCKETS_AT, Tables};

/// Bytes that live participants lock, one for each row. Far behind the contents.
const LOCKS_AT: u64 = 1 << 32;

/// Seconds that the QPNs of ended processes rest: peers may still send to them.
const QUARANTINE_S: u32 = 10;

/// The open file, not locked.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) file: File,
    directory: PathBuf,
    /// The network namespace's number, and that of the key which its participants have in common, if they seal packets.
    namespace: String,
    pub(super) process: ProcessId,
    /// The longest wait for the lock.
    pub(super) patience: Duration,
    /// When the last wait was in vain.
    is_stuck: AtomicBool,
}

impl Registry {
    /// Opens the file of this user and network namespace, or makes it. Those who seal packets have another port and so a file of their
    /// own, for each key: packets are handed over opened.
    pub(super) fn open(key: Option<u16>) -> io::Result<Registry> {
        let namespace = own_namespace();
        let namespace = match key {
            None => namespace,
            Some(key) => format!("{namespace}-key-{key:04x}"),
        };
        Registry::open_in(user_directory()?, namespace)
    }

    /// The files of all keys, and the one without.
    pub(super) fn open_all() -> io::Result<Vec<Registry>> {
        let directory = user_directory()?;
        let own = own_namespace();
        let mut namespaces = vec![own.clone()];
        for entry in fs::read_dir(&directory)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let found = name.strip_prefix("qpns-");
            let of_key = found.and_then(|rest| rest.strip_prefix(&*own)?.strip_prefix("-key-"));
            if let (Some(namespace), Some(_)) = (found, of_key) {
                namespaces.push(namespace.to_owned());
            }
        }
        let all = namespaces.into_iter();
        all.map(|namespace| Registry::open_in(directory.clone(), namespace))
            .collect()
    }

    pub(super) fn open_in(
        directory: PathBuf,
        namespace: impl Into<String>,
    ) -> io::Result<Registry> {
        let namespace = namespace.into();
        check_file_limit(LEN as u64)?;
        let file = open_shared(&path_in(&directory, &namespace))?;
        Ok(Registry {
            file,
            directory,
            namespace,
            process: ProcessId::own(),
            patience: lock::PATIENCE,
            is_stuck: AtomicBool::new(false),
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        path_in(&self.directory, &self.namespace)
    }

    /// Where a participant takes packets that others received for it.
    pub(super) fn hand_over_path(&self, row: Row) -> PathBuf {
        self.directory
            .join(format!("hand-over-{}-{}", self.namespace, row.0))
    }

    /// Where a participant keeps what is to be said if it is killed ([`super::farewells`]).
    pub(super) fn farewells_path(&self, row: Row, nonce: u64) -> PathBuf {
        let prefix = self.farewells_prefix();
        self.directory
            .join(format!("{prefix}{}-{nonce:016x}", row.0))
    }

    pub(super) fn farewells_prefix(&self) -> String {
        format!("farewells-{}-", self.namespace)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where ports are listed ([`super::ports`]).
    pub(super) fn ports_path(&self) -> PathBuf {
        self.directory.join(format!("ports-{}", self.namespace))
    }

    /// Waits for the lock, reads everything, and frees what ended processes have left. `own` is the row with the lock that this open
    /// file holds: locks never conflict with one's own, so it would look dead.
    pub(super) fn lock(&self, own: Option<Row>) -> io::Result<Locked<'_>> {
        self.lock_within(own, self.patience)
    }

    /// Waits for the lock to give something back: what is not given back is found by others when its owner is gone. So this
    /// waits for less, and not again and again.
    pub(super) fn lock_to_give_back(&self, own: Row) -> io::Result<Locked<'_>> {
        let is_stuck = self.is_stuck.load(Ordering::Relaxed);
        let patience = if is_stuck {
            Duration::ZERO
        } else {
            self.patience / 5
        };
        self.lock_within(Some(own), patience)
    }

    fn lock_within(&self, own: Option<Row>, patience: Duration) -> io::Result<Locked<'_>> {
        let taken = lock::acquire(&self.file, &self.path(), patience);
        self.is_stuck.store(taken.is_err(), Ordering::Relaxed);
        taken?;
        Locked::read(self, own)
    }

    /// Takes the lock if it is free, reads everything, and frees what ended processes have left.
    pub(super) fn try_lock(&self, own: Option<Row>) -> io::Result<Option<Locked<'_>>> {
        if !lock::try_acquire(&self.file)? {
            return Ok(None);
        }
        Locked::read(self, own).map(Some)
    }

    /// A number that every change raises.
    pub(super) fn generation(&self) -> u64 {
        let mut bytes = [0; 8];
        // A young file has none.
        let _ = self.file.read_exact_at(&mut bytes, GENERATION_AT);
        u64::from_le_bytes(bytes)
    }

    /// True if another open file holds the lock of one of these rows.
    pub(super) fn is_any_alive(&self, rows: Range<usize>) -> io::Result<bool> {
        let mut lock = byte_locks(rows, libc::F_WRLCK);
        fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        #[allow(clippy::unnecessary_cast, reason = "another type in some C libraries")]
        Ok(lock.l_type != libc::F_UNLCK as i16)
    }

    fn unusable(&self, why: &dyn Display) -> io::Error {
        let path = self.path();
        let text = format!("the registry of QPNs, {}, {why}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// True if this participant has that row, as far as is known without the lock: it may have ended without being
    /// taken out.
    pub(super) fn has_row(&self, row: Row, nonce: u64) -> bool {
        self.nonce_of(row) == Some(nonce)
    }

    /// The nonce of the participant that has a row, as far as is known without the lock.
    pub(super) fn nonce_of(&self, row: Row) -> Option<u64> {
        Some(self.participant(row)?.nonce)
    }

    /// True if it is a context of this process, as far as is known without the lock.
    pub(super) fn is_of_this_process(&self, row: Row, nonce: u64) -> bool {
        let wanted = Participant {
            nonce,
            process: self.process,
        };
        self.participant(row) == Some(wanted)
    }

    fn participant(&self, row: Row) -> Option<Participant> {
        let mut bytes = [0; ROW_LEN];
        let at = HEAD + u64::from(row.0) * ROW_LEN as u64;
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(Participant::parse(&bytes))
    }

    /// The holder of a chunk: one small read.
    pub(super) fn holder_of(&self, chunk: QpnChunk) -> Option<Row> {
        let mut bytes = [0; CHUNK_LEN];
        let at = CHUNKS_AT + (usize::from(chunk.0) * CHUNK_LEN) as u64;
        self.file.read_exact_at(&mut bytes, at).ok()?;
        ChunkEntry::parse(&bytes).ok()?.holder
    }

    /// The holders of all chunks, and all sockets, read without the lock: entries are
    /// whole, if not all of one moment. One that is damaged has no owner.
    pub(super) fn holders(&self) -> io::Result<(Vec<Option<Row>>, Vec<SocketEntry>)> {
        let mut bytes = vec![0; SOCKETS * SOCKET_LEN + CHUNKS * CHUNK_LEN];
        read_up_to(&self.file, &mut bytes, SOCKETS_AT)?;
        let (sockets, chunks) = bytes.split_at(SOCKETS * SOCKET_LEN);
        let chunks = chunks.as_chunks::<CHUNK_LEN>().0.iter();
        let sockets = sockets.as_chunks::<SOCKET_LEN>().0.iter();
        Ok((
            chunks
                .map(|bytes| ChunkEntry::parse(bytes).ok()?.holder)
                .collect(),
            sockets
                .filter_map(|bytes| SocketEntry::parse(bytes).ok()?)
                .collect(),
        ))
    }
}

/// The locked registry. What is changed is written at once.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    registry: &'a Registry,
    tables: Tables,
    is_changed: bool,
    /// The lock outlives this value: see [`Locked::keep`].
    kept: bool,
}

impl Deref for Locked<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl<'a> Locked<'a> {
    fn read(registry: &'a Registry, own: Option<Row>) -> io::Result<Locked<'a>> {
        // From here on dropping it lets the lock go.
        let mut locked = Locked {
            registry,
            tables: Tables::empty(),
            is_changed: false,
            kept: false,
        };
        let mut bytes = vec![0; LEN];
        read_up_to(&registry.file, &mut bytes, 0)?;
        if bytes[..MAGIC.len()] == [0; MAGIC.len()] {
            write_own(&registry.file, &MAGIC, 0)?;
        } else if bytes[..MAGIC.len()] != MAGIC {
            return Err(registry.unusable(&"is of another version of urxe"));
        }
        match Tables::parse(&bytes) {
            Ok(tables) => locked.tables = tables,
            Err(_) if own.is_none() && !registry.is_any_alive(0..ROWS)? => {
                // It has no owners.
                registry.file.set_len(0)?;
                write_own(&registry.file, &MAGIC, 0)?;
            }
            Err(damaged) => {
                let advice = "remove it when no process of this user uses urxe";
                return Err(registry.unusable(&format_args!("{damaged}: {advice}")));
            }
        }
        locked.reclaim_dead_rows(own)?;
        Ok(locked)
    }

    fn reclaim_dead_rows(&mut self, own: Option<Row>) -> io::Result<()> {
        let mut is_gone = [false; ROWS];
        for (number, is_gone) in is_gone.iter_mut().enumerate() {
            let row = Row(number as u16);
            if self.tables.participants[number].nonce == 0 {
                // A free row owns nothing, but for damage.
                *is_gone = true;
            } else if own != Some(row) && !self.registry.is_any_alive(number..number + 1)? {
                *is_gone = true;
                self.free_row(row)?;
                // This name is unused: the row is free, and we have the lock.
                let _ = fs::remove_file(self.registry.hand_over_path(row));
            }
        }
        self.free_all_of(|row| is_gone[usize::from(row.0)])
    }

    /// Takes a place for this process; `None` if all are taken.
    pub(super) fn add(&mut self, nonce: u64) -> io::Result<Option<Row>> {
        for number in 0..ROWS {
            if self.tables.participants[number].nonce != 0 || !self.lock_row(number)? {
                continue;
            }
            self.tables.participants[number] = Participant {
                nonce,
                process: self.registry.process,
            };
            self.write(HEAD, number, &self.tables.participants[number].emit())?;
            return Ok(Some(Row(number as u16)));
        }
        Ok(None)
    }

    /// The lock that shows that a participant is alive. False if another has it: one that leaves has it for longer than its row.
    fn lock_row(&self, number: usize) -> io::Result<bool> {
        let lock = byte_locks(number..number + 1, libc::F_WRLCK);
        match fcntl(&self.registry.file, FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a participant out, with all that it has.
    pub(super) fn remove(&mut self, row: Row) -> io::Result<()> {
        self.free_all_of(|other| other == row)?;
        self.free_row(row)
    }

    fn free_row(&mut self, row: Row) -> io::Result<()> {
        let number = usize::from(row.0);
        self.tables.participants[number] = Participant::default();
        self.write(HEAD, number, &[0; ROW_LEN])
    }

    fn free_all_of(&mut self, is_gone: impl Fn(Row) -> bool) -> io::Result<()> {
        let free_since = seconds_since_start();
        for chunk in 0..CHUNKS {
            if self.tables.chunks[chunk].holder.is_some_and(&is_gone) {
                self.tables.chunks[chunk] = ChunkEntry {
                    holder: None,
                    free_since,
                };
                self.write(CHUNKS_AT, chunk, &self.tables.chunks[chunk].emit())?;
            }
        }
        for place in 0..SOCKETS {
            if self.tables.sockets[place].is_some_and(|entry| is_gone(entry.row)) {
                self.tables.sockets[place] = None;
                self.write(SOCKETS_AT, place, &[0; SOCKET_LEN])?;
            }
        }
        Ok(())
    }

    /// Notes a socket, or what its number is now. False if there is no room.
    pub(super) fn set_socket(&mut self, entry: SocketEntry) -> io::Result<bool> {
        let same =
            |e: &Option<SocketEntry>| e.is_some_and(|e| e.row == entry.row && e.addr == entry.addr);
        let place = self.tables.sockets.iter().position(same);
        let place = place.or_else(|| self.tables.sockets.iter().position(Option::is_none));
        let Some(place) = place else {
            return Ok(false);
        };
        if self.tables.sockets[place] == Some(entry) {
            return Ok(true);
        }
        self.tables.sockets[place] = Some(entry);
        self.write(SOCKETS_AT, place, &entry.emit())?;
        Ok(true)
    }

    /// Gives a participant a chunk that was free for a while; `random` chooses. `None`
    /// if there is none.
    pub(super) fn grant(&mut self, row: Row, random: u64) -> io::Result<Option<QpnChunk>> {
        let now = seconds_since_start();
        let is_free = |entry: &ChunkEntry| {
            // A participant that left at a time that is yet to come, left before the system restarted.
            let rested = now.checked_sub(entry.free_since);
            entry.holder.is_none() && rested.is_none_or(|rested| rested >= QUARANTINE_S)
        };
        let first = (random % CHUNKS as u64) as usize;
        // Not the first: QP 1 is in it, which all owners have.
        let mut places = (0..CHUNKS)
            .map(|n| (first + n) % CHUNKS)
            .filter(|&place| place != 0);
        let Some(place) = places.find(|&place| is_free(&self.tables.chunks[place])) else {
            return Ok(None);
        };
        self.tables.chunks[place].holder = Some(row);
        self.write(CHUNKS_AT, place, &self.tables.chunks[place].emit())?;
        Ok(Some(QpnChunk(place as u16)))
    }

    /// Leaves the lock with the file, which is about to be closed.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }

    fn write(&mut self, table: u64, place: usize, bytes: &[u8]) -> io::Result<()> {
        if !self.is_changed {
            let next = self.registry.generation().wrapping_add(1);
            write_own(&self.registry.file, &next.to_le_bytes(), GENERATION_AT)?;
            self.is_changed = true;
        }
        let at = table + (place * bytes.len()) as u64;
        write_own(&self.registry.file, bytes, at)
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

fn byte_locks(rows: Range<usize>, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: (LOCKS_AT + rows.start as u64).cast_signed(),
        l_len: (rows.len() as u64).cast_signed(),
        l_pid: 0,
    }
}

fn own_namespace() -> String {
    let number = fs::metadata("/proc/self/ns/net").map_or(0, |meta| meta.ino());
    number.to_string()
}

fn path_in(directory: &Path, namespace: &str) -> PathBuf {
    directory.join(format!("qpns-{namespace}"))
}

/// Reads as much as there is: the rest of a young file counts as zeros.
pub(super) fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
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
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec());
    u32::try_from(time).unwrap_or(u32::MAX).max(1)
}
