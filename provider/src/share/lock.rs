//! The registry's lock, which is not waited for without an end: the process that has it may be stopped.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock, major, minor};

/// How long it is waited for. It is held for some milliseconds at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// Takes it. The kernel knows no lock of this kind with a limit, so it is tried again and again.
pub(super) fn acquire(file: &File, path: &Path, patience: Duration) -> io::Result<()> {
    let start = Instant::now();
    let mut pause = PAUSE_MIN;
    while !try_acquire(file)? {
        if start.elapsed() >= patience {
            let holder = holder(file)
                .map_or("a process that cannot be seen from here".into(), |pid| {
                    format!("process {pid}")
                });
            let text = format!("{} is locked by {holder}: is it stopped?", path.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Ok(())
}

pub(super) fn try_acquire(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The process that has it, as the kernel lists it: not where `/proc` is missing, nor from another PID namespace.
fn holder(file: &File) -> Option<u32> {
    let meta = file.metadata().ok()?;
    let (major, minor) = (major(meta.dev()), minor(meta.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    parse_holder(&fs::read_to_string("/proc/locks").ok()?, &inode)
}

/// `1: FLOCK  ADVISORY  WRITE 1234 00:1a:42 0 EOF`, and `->` before the kind for one that waits.
fn parse_holder(list: &str, inode: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[_, "FLOCK", _, _, pid, locked, ..] = &*words else {
            return None;
        };
        pid.parse().ok().filter(|_| locked == inode)
    })
}

#[cfg(test)]
#[test]
fn a_holder_is_found_in_the_kernels_list() {
    let list = "1: POSIX  ADVISORY  WRITE 7 00:1a:42 0 EOF\n\
                2: FLOCK  ADVISORY  WRITE 8 00:1a:43 0 EOF\n\
                3: FLOCK  ADVISORY  WRITE 9 00:1a:42 0 EOF\n\
                3: -> FLOCK  ADVISORY  WRITE 10 00:1a:44 0 EOF\n";
    assert_eq!(parse_holder(list, "00:1a:42"), Some(9));
    assert_eq!(parse_holder(list, "00:1a:44"), None);
}
