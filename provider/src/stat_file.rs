//! Counters of running processes, for others of the same user to look at.
//!
//! Every context keeps a small text file up to date, about ten times a second while
//! packets flow, in the user's own directory ([`user_directory`]). It is gone when the context is
//! closed. Those that a process left which was killed, or ended without closing, are removed by
//! the next reader, and by the next process that opens a context: they do not gather.

use core::fmt::Write as _;
use core::net::IpAddr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::share::{create_own, open_own, printable, read_own, user_directory};

const MAGIC: &str = "urxe-counters 1";
/// How names of files begin; the process and a number follow.
const NAME: &str = "stat.";
/// Far more than the counters of a context take.
const LEN_MAX: u64 = 1 << 20;

/// Counters of one context of some process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextCounters {
    /// The process, by the number that it has in its own PID namespace.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Addresses of the context.
    pub addresses: Vec<IpAddr>,
    /// Names and values.
    pub counters: Vec<(String, u64)>,
    /// Where the file is, and so where its QPs can be asked for.
    pub(crate) path: PathBuf,
}

/// Counters of all contexts that processes of this user have open.
///
/// # Errors
/// If there is no directory for the files, or it cannot be read.
pub fn read_all() -> io::Result<Vec<ContextCounters>> {
    let directory = user_directory()?;
    let mut found = Vec::new();
    for entry in Entry::all(&directory)? {
        if entry.is_abandoned(&directory) {
            // Another process may have been faster.
            let _ = fs::remove_file(entry.path);
        } else if entry.is_counters {
            found.extend(read_one(&entry.path, entry.pid));
        }
    }
    found.sort_by_key(|context| context.pid);
    Ok(found)
}

/// One file of some context: its counters, or, beside them, where its QPs are asked for, or
/// the answer.
struct Entry {
    path: PathBuf,
    pid: u32,
    /// The name of the counters' file.
    owner: String,
    is_counters: bool,
}

impl Entry {
    fn all(directory: &Path) -> io::Result<impl Iterator<Item = Entry>> {
        let entries = fs::read_dir(directory)?.filter_map(Result::ok);
        Ok(entries.filter_map(move |entry| {
            let name = entry.file_name();
            let rest = name.to_str()?.strip_prefix(NAME)?;
            let mut parts = rest.split('.');
            let (pid, number) = (parts.next()?, parts.next()?);
            Some(Entry {
                path: entry.path(),
                pid: pid.parse().ok()?,
                owner: format!("{NAME}{pid}.{number}"),
                is_counters: parts.next().is_none(),
            })
        }))
    }

    /// Its context is gone: no process has the file of counters locked. A process id would tell nothing where another PID
    /// namespace shares the directory (a container).
    fn is_abandoned(&self, directory: &Path) -> bool {
        let owner = directory.join(&self.owner);
        match open_own(&owner, OpenOptions::new().read(true)) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// Removes what dead processes left.
fn tidy(directory: &Path) {
    let Ok(entries) = Entry::all(directory) else {
        return;
    };
    for entry in entries.filter(|entry| entry.is_abandoned(directory)) {
        let _ = fs::remove_file(entry.path);
    }
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct StatFile {
    pub(crate) path: PathBuf,
    file: File,
    head: String,
    text: String,
    version: u64,
}

impl StatFile {
    /// A file for a context with these addresses; `None` where there is no place for it.
    pub(crate) fn create(addresses: impl Iterator<Item = IpAddr>) -> Option<StatFile> {
        let directory = user_directory().ok()?;
        static IS_TIDY: Once = Once::new();
        IS_TIDY.call_once(|| tidy(&directory));
        // Names may be taken: by an ended process, or by one with the same id in another PID namespace.
        let (path, file) = (0..ATTEMPTS).find_map(|_| create_locked(&directory))?;
        let mut head = format!("program {}\naddresses", program());
        for address in addresses {
            write!(head, " {address}").expect("a string takes everything");
        }
        head.push('\n');
        Some(StatFile {
            path,
            file,
            head,
            text: String::new(),
            version: 0,
        })
    }

    /// Puts the text together.
    pub(crate) fn gather(&mut self, counters: impl Iterator<Item = (&'static str, u64)>) {
        self.version += 1;
        let (text, version) = (&mut self.text, self.version);
        text.clear();
        // Of constant width: the new text covers the old one exactly.
        let mut line = |name: &str, value| {
            writeln!(text, "{name} {value:020}").expect("a string takes everything");
        };
        line(MAGIC, version);
        for (name, value) in counters {
            line(name, value);
        }
        text.push_str(&self.head);
        writeln!(text, "end {version:020}").expect("a string takes everything");
    }

    pub(crate) fn write(&self) {
        // A full file system: the counters are stale, nothing else.
        let _ = self.file.write_all_at(self.text.as_bytes(), 0);
    }
}

impl Drop for StatFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Names that are tried.
const ATTEMPTS: u32 = 1000;

/// A new file, locked for as long as its context lives; `None` if there is one of that name, or a process that tidies took it
/// for abandoned before it was locked.
fn create_locked(directory: &Path) -> Option<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!("{NAME}{}.{number}", std::process::id()));
    let file = create_own(&path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let is_there = file.metadata().is_ok_and(|meta| meta.nlink() > 0);
    is_there.then_some((path, file))
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path
        .file_name()
        .unwrap_or("unknown".as_ref())
        .to_string_lossy();
    name.replace(char::is_whitespace, "_")
}

/// Reads a file; again if it was being written meanwhile.
fn read_one(path: &Path, pid: u32) -> Option<ContextCounters> {
    const ATTEMPTS: u32 = 10;
    let read = || parse(&read_own(path, LEN_MAX).ok()?, pid);
    let mut context = (0..ATTEMPTS).find_map(|_| read())?;
    context.path = path.into();
    Some(context)
}

fn parse(text: &str, pid: u32) -> Option<ContextCounters> {
    let mut lines = text.lines();
    let version = lines.next()?.strip_prefix(MAGIC)?.trim();
    let mut context = ContextCounters {
        pid,
        program: String::new(),
        addresses: Vec::new(),
        counters: Vec::new(),
        path: PathBuf::new(),
    };
    for line in lines {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "program" => context.program = printable(value),
            "addresses" => {
                context.addresses = value.split(' ').filter_map(|a| a.parse().ok()).collect();
            }
            // Written first and last: equal if the text is of one piece.
            "end" => return (value == version).then_some(context),
            _ => context
                .counters
                .push((printable(name), value.parse().ok()?)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let addresses = [
            IpAddr::from([127, 0, 0, 1]),
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ];
        let Some(mut file) = StatFile::create(addresses.into_iter()) else {
            println!("skipped: neither /dev/shm nor /tmp can be written");
            return;
        };
        let pid = std::process::id();
        assert_eq!(read_one(&file.path, pid), None, "nothing is written yet");
        for value in [7, u64::MAX, 3] {
            file.gather([("sent_pkts", value), ("rcvd_pkts", 1)].into_iter());
            file.write();
            let context = read_one(&file.path, pid).expect("it is complete");
            assert_eq!(context.addresses, addresses);
            assert_eq!(
                context.counters,
                [("sent_pkts".into(), value), ("rcvd_pkts".into(), 1)]
            );
            assert!(read_all().expect("readable").contains(&context));
        }
        let path = file.path.clone();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn what_dead_processes_left_is_removed_and_nothing_else() {
        let directory = std::env::temp_dir().join(format!("urxe-stat-tidy-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("writable");
        let make = |name: &str| {
            let path = directory.join(name);
            File::create(&path).expect("writable");
            path
        };
        let own = std::process::id();
        // The process may be there, but the context's file is not locked.
        let gone = [
            make("stat.7.0.ask"),
            make("stat.7.0"),
            make("stat.7.1.answer"),
            make(&format!("stat.{own}.3")),
        ];
        let stays = [
            make("stat.7.7"),
            make("stat.7.7.ask"),
            make("stat.x.7"),
            make("qpns-0"),
        ];
        // No process here need have that id: where its owner is, it is another.
        let owner = File::open(&stays[0]).expect("there");
        flock(&owner, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
        tidy(&directory);
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(stays.iter().all(|path| path.exists()));
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn names_come_without_escape_sequences() {
        let text = format!("{MAGIC} 1\nprogram \x1b[31mx\x07\na\u{9b}b 1\naddresses\nend 1\n");
        let context = parse(&text, 1).expect("it is whole");
        assert_eq!(context.program, "?[31mx?");
        assert_eq!(context.counters, [("a?b".to_owned(), 1)]);
    }

    #[test]
    fn a_torn_text_is_refused() {
        let text = format!("{MAGIC} 2\na 1\nprogram x\naddresses\nend 1\n");
        assert_eq!(parse(&text, 1), None);
        assert_eq!(parse(&text[..text.len() - 7], 1), None);
    }
}
