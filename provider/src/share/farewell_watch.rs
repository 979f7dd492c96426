//! A participant's file of what is to be said if it is killed, and its watch over those of others ([`super::farewells`]).

use std::fs::{self, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use urxe_core::Time;
use urxe_core::cm::Farewell;

use super::directory::{create_own, open_own, write_own};
use super::farewells::{ENTRIES, ENTRY_LEN, Gone, Other, emit, parse_owner, read};
use super::hand_over::{Delivery, Neighbour};
use super::membership::Membership;
use crate::lock::lock;

/// Files of others that are kept open.
const OTHERS_MAX: usize = 256;
/// How often peers of other hosts are told: a datagram may be lost.
const ROUNDS: u8 = 3;
/// Of an ended process that none has taken the place of for so long, the file is of no use.
const FORGOTTEN: Duration = Duration::from_secs(600);

impl Membership {
    /// A connection at this place began or ended. Without room or rights for the file its peer finds out by itself.
    pub(crate) fn note_farewell(&self, place: usize, farewell: Option<Farewell>, now: Time) {
        let mut own = lock(&self.farewells.own);
        if own.file.is_none() && farewell.is_some() {
            own.file = create_own(&self.farewells_path(self.me)).ok();
        }
        let (Some(file), true) = (&own.file, place < ENTRIES) else {
            return;
        };
        let entry = farewell.map_or([0; ENTRY_LEN], |farewell| emit(&farewell));
        let written = write_own(file, &entry, (place * ENTRY_LEN) as u64);
        if let (Ok(()), Some(Farewell { path, .. })) = (written, farewell) {
            let to = self.sharers_of([path.local, path.remote], now);
            for neighbour in to {
                if !own.told.contains(&neighbour) && self.tell_of_farewells(neighbour) {
                    own.told.push(neighbour);
                }
            }
        }
    }

    fn tell_of_farewells(&self, to: Neighbour) -> bool {
        let path = self.registry.hand_over_path(to.row);
        self.inbox.tell_of_farewells(&path, self.me) == Delivery::Taken
    }

    fn farewells_path(&self, of: Neighbour) -> PathBuf {
        self.registry.farewells_path(of.row, of.nonce)
    }

    /// A neighbour has a file with farewells.
    pub(super) fn watch_farewells(&self, of: Neighbour) {
        // All of one process end together.
        if of == self.me || self.registry.is_of_this_process(of.row, of.nonce) {
            return;
        }
        let mut others = lock(&self.farewells.others);
        if others.len() >= OTHERS_MAX || others.iter().any(|other| other.of == of) {
            return;
        }
        let mut options = OpenOptions::new();
        if let Ok(file) = open_own(&self.farewells_path(of), options.read(true)) {
            let said = None;
            others.push(Other { of, file, said });
            self.farewells
                .watched
                .store(others.len(), Ordering::Relaxed);
        }
    }

    /// Finds the files of those that have one of these addresses too, or had.
    pub(super) fn find_farewells(&self, addrs: &[IpAddr]) -> io::Result<()> {
        let (_, sockets) = self.registry.holders()?;
        for entry in fs::read_dir(self.registry.directory())?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let found = name.strip_prefix(&*self.registry.farewells_prefix());
            let Some(of) = found.and_then(parse_owner) else {
                continue;
            };
            if self.is_alive(of) {
                let mut its = sockets.iter().filter(|socket| socket.row == of.row);
                if its.any(|socket| addrs.contains(&socket.addr)) {
                    self.watch_farewells(of);
                }
                continue;
            }
            let file = open_own(&entry.path(), OpenOptions::new().read(true));
            let all = file.map(|file| read(&file)).unwrap_or_default();
            let written = entry.metadata().and_then(|meta| meta.modified());
            let age = written.ok().and_then(|written| written.elapsed().ok());
            if all.iter().any(|one| addrs.contains(&one.path.local)) {
                self.watch_farewells(of);
            } else if all.is_empty() || age > Some(FORGOTTEN) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    /// True if there are participants that may be killed before they have said farewell.
    pub(crate) fn watches(&self) -> bool {
        self.farewells.watched.load(Ordering::Relaxed) > 0
    }

    /// Looks which of them are gone, on behalf of one that has these addresses.
    pub(crate) fn take_gone(&self, has: impl Fn(IpAddr) -> bool) -> Gone {
        let mut gone = Gone::default();
        let mut others = lock(&self.farewells.others);
        others.retain_mut(|other| {
            if other.said.is_none() && self.is_alive(other.of) {
                return true;
            }
            self.on_gone(other, &has, &mut gone)
        });
        self.farewells
            .watched
            .store(others.len(), Ordering::Relaxed);
        gone
    }

    /// True if there is more to do later.
    fn on_gone(&self, other: &mut Other, has: impl Fn(IpAddr) -> bool, gone: &mut Gone) -> bool {
        if other.said.is_none() {
            let all = read(&other.file);
            let mine = |farewell: &&Farewell| has(farewell.path.remote);
            gone.ended.extend(all.iter().filter(mine));
            let to_say: Vec<_> = all.iter().filter(|one| has(one.path.local)).collect();
            let is_free = flock(&other.file, FlockOperation::NonBlockingLockExclusive).is_ok();
            let is_there = other.file.metadata().is_ok_and(|meta| meta.nlink() > 0);
            if !(is_free && is_there && (all.is_empty() || !to_say.is_empty())) {
                return false;
            }
            // The next one to come need not say it again.
            let _ = fs::remove_file(self.farewells_path(other.of));
            other.said = Some((to_say.into_iter().copied().collect(), 0));
        }
        let Some((to_say, rounds)) = &mut other.said else {
            return false;
        };
        gone.to_say.extend(to_say.iter());
        *rounds += 1;
        *rounds < ROUNDS && !to_say.is_empty()
    }

    /// It is leaving, and has said what was to be said.
    pub(super) fn remove_farewells(&self) {
        if lock(&self.farewells.own).file.is_some() {
            let _ = fs::remove_file(self.farewells_path(self.me));
        }
    }
}
