//! Counters of running processes, for others of the same user to look at.
//!
//! Every context keeps a small text file up to date, about ten times a second while
//! packets flow, in `$XDG_RUNTIME_DIR` or `/dev/shm`. It is gone when the context is
//! closed. Those that a process left which was killed, or ended without closing, are removed by
//! the next reader, and by the next process that opens a context: they do not gather.

use core::fmt::Write as _;
use core::net::IpAddr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::process::{Pid, getuid, test_kill_process};

const MAGIC: &str = "urxe-counters 1";

/// Counters of one context of some process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextCounters {
    /// The process.
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
/// If the directory with the files cannot be read.
pub fn read_all() -> io::Result<Vec<ContextCounters>> {
    let Some(directory) = directory() else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in Entry::all(&directory)? {
        if entry.is_abandoned(&directory) {
            // Somebody else may have been faster.
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
    /// Those of this user.
    fn all(directory: &Path) -> io::Result<impl Iterator<Item = Entry>> {
        let prefix = format!("urxe.{}.", getuid().as_raw());
        let entries = fs::read_dir(directory)?.filter_map(Result::ok);
        Ok(entries.filter_map(move |entry| {
            let name = entry.file_name();
            let rest = name.to_str()?.strip_prefix(&prefix)?;
            let mut parts = rest.split('.');
            let (pid, number) = (parts.next()?, parts.next()?);
            Some(Entry {
                path: entry.path(),
                pid: pid.parse().ok()?,
                owner: format!("{prefix}{pid}.{number}"),
                is_counters: parts.next().is_none(),
            })
        }))
    }

    /// Its process is gone. Where another system of process ids shares the directory (a
    /// container), the id tells nothing, but the owner has its file locked.
    fn is_abandoned(&self, directory: &Path) -> bool {
        if is_alive(self.pid) {
            return false;
        }
        let owner = File::open(directory.join(&self.owner));
        owner.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_ok())
            || !directory.join(&self.owner).exists()
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
    path: PathBuf,
    file: File,
    head: String,
    text: String,
    version: u64,
}

impl StatFile {
    /// A file for a context with these addresses; `None` where there is no place for it.
    pub(crate) fn create(addresses: impl Iterator<Item = IpAddr>) -> Option<StatFile> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (uid, pid) = (getuid().as_raw(), std::process::id());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = directory()?;
        if number == 0 {
            tidy(&directory);
        }
        let path = directory.join(format!("urxe.{uid}.{pid}.{number}"));
        // One of the same name is from a dead process that had our id.
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .ok()?;
        // For as long as it lives, and nobody waits for it.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
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

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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

    /// Writes it.
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

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path
        .file_name()
        .unwrap_or("unknown".as_ref())
        .to_string_lossy();
    name.replace(char::is_whitespace, "_")
}

fn directory() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let candidates = [runtime, Some("/dev/shm".into())];
    // Who became another user (`su`, `setpriv`) may still have the first one's XDG_RUNTIME_DIR.
    let is_usable = |path: &PathBuf| path.is_dir() && access(path, Access::WRITE_OK).is_ok();
    candidates.into_iter().flatten().find(is_usable)
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}

/// Reads a file; again if it was being written meanwhile.
fn read_one(path: &Path, pid: u32) -> Option<ContextCounters> {
    const ATTEMPTS: u32 = 10;
    let read = || parse(&fs::read_to_string(path).ok()?, pid);
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
            "program" => context.program = value.into(),
            "addresses" => {
                context.addresses = value.split(' ').filter_map(|a| a.parse().ok()).collect();
            }
            // Written first and last: equal if the text is of one piece.
            "end" => return (value == version).then_some(context),
            _ => context.counters.push((name.into(), value.parse().ok()?)),
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
            println!("skipped: neither XDG_RUNTIME_DIR nor /dev/shm is there");
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
        let uid = getuid().as_raw();
        // No process has such an id: they end at 2^22.
        let dead = 1 << 30;
        let make = |name: String| {
            let path = directory.join(name);
            File::create(&path).expect("writable");
            path
        };
        let gone = [
            make(format!("urxe.{uid}.{dead}.0.ask")),
            make(format!("urxe.{uid}.{dead}.0")),
            make(format!("urxe.{uid}.{dead}.1.answer")),
        ];
        let stays = [
            make(format!("urxe.{uid}.{}.0", std::process::id())),
            make(format!("urxe.{uid}.{dead}.7")),
            make(format!("urxe.{uid}.{dead}.7.ask")),
            make(format!("urxe.{}.{dead}.0", uid + 1)),
            make("urxe-0".into()),
        ];
        // In a container of its own, where its process id is another.
        let owner = File::open(&stays[1]).expect("there");
        flock(&owner, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
        tidy(&directory);
        assert!(gone.iter().all(|path| !path.exists()));
        assert!(stays.iter().all(|path| path.exists()));
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn a_torn_text_is_refused() {
        let text = format!("{MAGIC} 2\na 1\nprogram x\naddresses\nend 1\n");
        assert_eq!(parse(&text, 1), None);
        assert_eq!(parse(&text[..text.len() - 7], 1), None);
    }
}
