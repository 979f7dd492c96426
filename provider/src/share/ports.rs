//! The owners of the connection manager's ports: a file beside the registry, for the same
//! user and network namespace. A process binds a port for itself or takes a block of them to
//! choose from; and it says where it listens, so that a process that gets a request for it hands it
//! over.
//!
//! An entry belongs to a participant of the registry and counts as long as that lives; so the
//! entries of ended processes need not be cleared away. It is changed under the registry's lock, and read
//! without.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use urxe_wire::Gid;

use super::directory::{open_shared, write_own};
use super::entries::{Row, u64_at};
use super::registry::{Registry, read_up_to};
use super::tables::Tables;

const MAGIC: [u8; 12] = *b"urxe ports 1";
/// The magic, and how many entries were ever used.
const HEAD: usize = 16;
const ENTRY_LEN: usize = 32;
const ENTRIES: usize = 8192;

/// Ports in a block.
pub(crate) const BLOCK: u16 = 64;
/// Ports that are given out without being asked for: those that Linux takes for that.
const FIRST: u16 = 32768;
const BLOCKS: u16 = (60_992 - FIRST) / BLOCK;

/// A port space, an address (unspecified: all of its IP version, or of both) and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortName {
    pub(crate) space: u16,
    pub(crate) addr: IpAddr,
    pub(crate) port: u16,
    /// An IPv6 address of all zeros means IPv6 alone.
    pub(crate) v6_only: bool,
}

impl PortName {
    /// True if a packet to `addr` could be for it.
    pub(crate) fn includes(&self, addr: IpAddr) -> bool {
        match self.addr {
            own if own == addr => true,
            IpAddr::V4(own) => own.is_unspecified() && addr.is_ipv4(),
            IpAddr::V6(own) => own.is_unspecified() && (addr.is_ipv6() || !self.v6_only),
        }
    }

    /// True if two participants cannot have both.
    pub(crate) fn meets(&self, other: &PortName) -> bool {
        self.space == other.space
            && self.port == other.port
            && (self.includes(other.addr) || other.includes(self.addr))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A port that was bound.
    Bound = 1,
    /// Bound, and shared with others that allow it.
    Reusable,
    /// A block of ports to choose from.
    Block,
    /// The port has a listener.
    Listening,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    row: Row,
    nonce: u64,
    kind: Kind,
    name: PortName,
}

/// The owner of an entry: a participant, and the nonce that tells it from the next one in its row.
pub(super) type Owner = (Row, u64);

/// The file, read.
#[derive(Debug)]
pub(super) struct Ports {
    file: File,
    entries: Vec<Option<Entry>>,
}

impl Ports {
    /// Reads it, or makes it.
    pub(super) fn open(registry: &Registry) -> io::Result<Ports> {
        let file = open_shared(&registry.ports_path())?;
        let mut head = [0; HEAD];
        read_up_to(&file, &mut head, 0)?;
        if head[..MAGIC.len()] == [0; MAGIC.len()] {
            head[..MAGIC.len()].copy_from_slice(&MAGIC);
            write_own(&file, &head, 0)?;
        } else if head[..MAGIC.len()] != MAGIC {
            let text = "the registry of ports is of another version of urxe";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let used = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        let mut bytes = vec![0; (used as usize).min(ENTRIES) * ENTRY_LEN];
        read_up_to(&file, &mut bytes, HEAD as u64)?;
        Ok(Ports::parse(file, &bytes))
    }

    /// From the bytes behind the head. An entry that makes no sense has no owner, and is a free place.
    pub(super) fn parse(file: File, bytes: &[u8]) -> Ports {
        let entries = bytes.as_chunks::<ENTRY_LEN>().0.iter();
        let entries = entries.map(Entry::parse).collect();
        Ports { file, entries }
    }

    /// The listener for requests to an address. `has_row` tells the owners that the registry knows from those that are
    /// gone: an entry of theirs lasts until another takes its place.
    pub(super) fn listener(
        &self,
        (space, addr, port): (u16, IpAddr, u16),
        has_row: impl Fn(Owner) -> bool,
    ) -> Option<Row> {
        let fits = |entry: &&Entry| {
            let name = &entry.name;
            let is_it = name.space == space && name.port == port && name.includes(addr);
            entry.kind == Kind::Listening && is_it && has_row((entry.row, entry.nonce))
        };
        let mut entries = self.entries.iter().flatten();
        entries.find(fits).map(|entry| entry.row)
    }

    /// Binds a port. False if it is taken.
    pub(super) fn bind(
        &mut self,
        tables: &Tables,
        owner: Owner,
        name: PortName,
        reuse: bool,
    ) -> io::Result<bool> {
        let is_taken = |entry: &Entry| match entry.kind {
            Kind::Bound | Kind::Listening => entry.name.meets(&name),
            Kind::Reusable => !reuse && entry.name.meets(&name),
            Kind::Block => {
                let first = entry.name.port;
                let is_inside = (first..first + BLOCK).contains(&name.port);
                // It may choose from its own block.
                is_inside
                    && entry.name.space == name.space
                    && !tables.are_of_one_process(entry.row, owner.0)
            }
        };
        if self.living(tables).any(|entry| is_taken(&entry)) {
            return Ok(false);
        }
        let kind = if reuse { Kind::Reusable } else { Kind::Bound };
        self.add(tables, Entry::of(owner, kind, name))?;
        Ok(true)
    }

    /// Takes a block of ports; `None` if all are taken. `random` chooses.
    pub(super) fn take_block(
        &mut self,
        tables: &Tables,
        owner: Owner,
        space: u16,
        random: u64,
    ) -> io::Result<Option<u16>> {
        let start = (random % u64::from(BLOCKS)) as u16;
        for step in 0..BLOCKS {
            let port = FIRST + (start + step) % BLOCKS * BLOCK;
            let has_it = |entry: Entry| {
                let held = entry.name.port;
                entry.name.space == space && (port..port + BLOCK).contains(&held)
            };
            if self.living(tables).any(has_it) {
                continue;
            }
            let name = PortName {
                space,
                addr: Ipv6Addr::UNSPECIFIED.into(),
                port,
                v6_only: false,
            };
            self.add(tables, Entry::of(owner, Kind::Block, name))?;
            return Ok(Some(port));
        }
        Ok(None)
    }

    /// Notes that the port has a listener.
    pub(super) fn listen(
        &mut self,
        tables: &Tables,
        owner: Owner,
        name: PortName,
    ) -> io::Result<()> {
        self.add(tables, Entry::of(owner, Kind::Listening, name))
    }

    /// Removes an entry of this participant.
    pub(super) fn remove(
        &mut self,
        (row, nonce): Owner,
        name: PortName,
        listening: bool,
    ) -> io::Result<()> {
        let is_it = |entry: &Entry| {
            let kind = match entry.kind {
                Kind::Listening => listening,
                Kind::Bound | Kind::Reusable => !listening,
                Kind::Block => false,
            };
            kind && entry.row == row && entry.nonce == nonce && entry.name == name
        };
        let place = self
            .entries
            .iter()
            .position(|e| e.as_ref().is_some_and(is_it));
        if let Some(place) = place {
            self.entries[place] = None;
            self.write(place, &[0; ENTRY_LEN])?;
        }
        Ok(())
    }

    /// For fuzz targets: all that is read can be compared, and is written as it was read.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn check(&self) {
        for entry in self.entries.iter().flatten() {
            assert_eq!(Entry::parse(&entry.emit()), Some(*entry));
            assert!(entry.kind != Kind::Block || entry.name.port.checked_add(BLOCK).is_some());
            assert!(entry.name.meets(&entry.name));
        }
    }

    fn living<'a>(&'a self, tables: &'a Tables) -> impl Iterator<Item = Entry> + 'a {
        let entries = self.entries.iter().flatten().copied();
        entries.filter(|entry| tables.is_there(entry.row, entry.nonce))
    }

    fn add(&mut self, tables: &Tables, entry: Entry) -> io::Result<()> {
        let lives = |e: &Entry| tables.is_there(e.row, e.nonce);
        let free = |e: &Option<Entry>| !e.as_ref().is_some_and(lives);
        let place = self
            .entries
            .iter()
            .position(free)
            .unwrap_or(self.entries.len());
        if place == ENTRIES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.write(place, &entry.emit())?;
        if place == self.entries.len() {
            self.entries.push(Some(entry));
            let used = self.entries.len() as u32;
            write_own(&self.file, &used.to_le_bytes(), MAGIC.len() as u64)?;
        } else {
            self.entries[place] = Some(entry);
        }
        Ok(())
    }

    fn write(&self, place: usize, bytes: &[u8; ENTRY_LEN]) -> io::Result<()> {
        let at = HEAD + place * ENTRY_LEN;
        write_own(&self.file, bytes, at as u64)
    }
}

impl Entry {
    fn of((row, nonce): Owner, kind: Kind, name: PortName) -> Entry {
        Entry {
            row,
            nonce,
            kind,
            name,
        }
    }

    /// `None` for a free place: its nonce is 0, or there can be no such entry.
    fn parse(bytes: &[u8; ENTRY_LEN]) -> Option<Entry> {
        let nonce = u64_at(bytes, 0);
        let half_word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (row, port, flags) = (Row(half_word(8)), half_word(12), bytes[15]);
        let kind = match bytes[14] {
            1 => Kind::Bound,
            2 => Kind::Reusable,
            3 => Kind::Block,
            4 => Kind::Listening,
            _ => return None,
        };
        let is_sound = nonce != 0 && row.exists() && (kind != Kind::Block || is_block(port));
        // The flag keeps "all of IPv4" apart from "all".
        let addr = Ipv6Addr::from(*bytes.last_chunk::<16>().expect("it is longer"));
        let addr = if flags & 2 != 0 {
            addr.to_canonical()
        } else {
            addr.into()
        };
        is_sound.then_some(Entry {
            row,
            nonce,
            kind,
            name: PortName {
                space: half_word(10),
                addr,
                port,
                v6_only: flags & 1 != 0,
            },
        })
    }

    fn emit(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.row.0.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.name.space.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.name.port.to_le_bytes());
        bytes[14] = self.kind as u8;
        bytes[15] = u8::from(self.name.addr.is_ipv4()) << 1 | u8::from(self.name.v6_only);
        bytes[16..].copy_from_slice(&Gid::from(self.name.addr).0);
        bytes
    }
}

/// True if a block of ports begins there.
fn is_block(first: u16) -> bool {
    let offset = first.checked_sub(FIRST);
    offset.is_some_and(|offset| offset % BLOCK == 0 && offset / BLOCK < BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(addr: &str, v6_only: bool) -> PortName {
        PortName {
            space: 0x106,
            addr: addr.parse().expect("literal"),
            port: 7174,
            v6_only,
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        for addr in ["0.0.0.0", "::", "10.1.2.3", "fd00::1"] {
            for kind in [Kind::Bound, Kind::Reusable, Kind::Block, Kind::Listening] {
                let entry = Entry {
                    row: Row(7),
                    nonce: 5,
                    kind,
                    name: PortName {
                        port: FIRST + 3 * BLOCK,
                        ..name(addr, kind == Kind::Bound)
                    },
                };
                assert_eq!(Entry::parse(&entry.emit()), Some(entry));
            }
        }
        assert_eq!(Entry::parse(&[0; ENTRY_LEN]), None);
    }

    /// Before and behind the entry of a live one.
    #[test]
    fn an_entry_of_somebody_who_is_gone_does_not_listen() {
        let listens = |row, nonce| {
            Some(Entry {
                row: Row(row),
                nonce,
                kind: Kind::Listening,
                name: name("0.0.0.0", false),
            })
        };
        let file = File::open("/dev/null").expect("every system has it");
        let entries = vec![listens(4, 40), None, listens(2, 21), listens(2, 20)];
        let ports = Ports { file, entries };
        let asked = (0x106, IpAddr::from([10, 1, 2, 3]), 7174);
        let among = |there: &[(u16, u64)]| {
            let owners: Vec<Owner> = there
                .iter()
                .map(|(row, nonce)| (Row(*row), *nonce))
                .collect();
            ports.listener(asked, |owner| owners.contains(&owner))
        };
        assert_eq!(among(&[(4, 41), (2, 21)]), Some(Row(2)));
        assert_eq!(among(&[(4, 40), (2, 22)]), Some(Row(4)));
        assert_eq!(among(&[(4, 41), (2, 22)]), None);
    }

    #[test]
    fn all_addresses_include_each() {
        let meets = |a: &str, b: &str| name(a, false).meets(&name(b, false));
        assert!(meets("0.0.0.0", "10.1.2.3") && meets("10.1.2.3", "0.0.0.0"));
        assert!(meets("::", "10.1.2.3") && meets("::", "fd00::1"));
        assert!(!meets("0.0.0.0", "fd00::1") && !meets("10.1.2.3", "10.1.2.4"));
        assert!(!name("::", true).meets(&name("10.1.2.3", false)));
        let other = PortName {
            port: 7175,
            ..name("::", false)
        };
        assert!(!name("::", false).meets(&other));
    }
}
