//! What a whole process has, for tests that are alone in theirs.

use std::os::unix::fs::FileExt as _;

/// Rings that are mapped by a process.
pub(crate) fn rings_of(pid: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    maps.lines()
        .filter(|line| line.contains("urxe-ring"))
        .count()
}

/// Rings that this process has mapped.
pub(crate) fn rings() -> usize {
    rings_of("self")
}

/// Overwrites the heads of all rings of this process, those that it reads and those that it writes.
pub(crate) fn damage_rings() {
    let mut options = std::fs::OpenOptions::new();
    let memory = options.write(true).open("/proc/self/mem");
    let memory = memory.expect("its own memory");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("it lives");
    for line in maps.lines().filter(|line| line.contains("urxe-ring")) {
        let (start, _) = line.split_once('-').expect("a range");
        let start = u64::from_str_radix(start, 16).expect("an address");
        memory.write_all_at(&[0xff; 256], start).expect("mapped");
    }
}

/// What the descriptors of this process lead to.
pub(crate) fn descriptors() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a list");
    let target = |entry: std::fs::DirEntry| std::fs::read_link(entry.path());
    let mut found: Vec<String> = entries
        .flatten()
        // The list itself is gone when it is asked for.
        .filter_map(|entry| target(entry).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}
