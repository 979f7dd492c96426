//! Memory that survives a loss of power: mappings of files on a disk.

use core::ptr;

use rustix::fs::statfs;
use rustix::mm::{MsyncFlags, msync};
use urxe_core::memory::MemoryFault;
use urxe_core::mr::MrSpan;

use super::page_size;
use crate::error::{Error, ErrorKind};

/// File systems that lose their files with the power: tmpfs, ramfs, hugetlbfs.
const VOLATILE: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Every byte must be in a shared mapping of a file that a disk holds: only then does
/// writing it back make sense, and only then is what peers write in the file at all.
pub(crate) fn check(addr: u64, len: usize) -> Result<(), Error> {
    let maps =
        std::fs::read_to_string("/proc/self/maps").map_err(Error::io("reading /proc/self/maps"))?;
    let end = addr.saturating_add(len as u64);
    let mut next = addr;
    for line in maps.lines() {
        if next >= end {
            break;
        }
        let Some(mapping) = Mapping::parse(line) else {
            continue;
        };
        if mapping.start <= next && next < mapping.end {
            if !mapping.is_persistent() {
                break;
            }
            next = mapping.end;
        }
    }
    if next >= end {
        Ok(())
    } else {
        Err(ErrorKind::NotPersistent.into())
    }
}

/// Writes the bytes back to their file, and waits until the disk has them.
pub(crate) fn write_back(span: MrSpan) -> Result<(), MemoryFault> {
    if span.is_empty() {
        return Ok(());
    }
    let page = page_size();
    let addr = span.host_addr() as usize;
    let start = addr - addr % page;
    let first = ptr::with_exposed_provenance_mut(start);
    // SAFETY: writing pages back changes nothing that the program could see. The span is
    // inside a live region as in `UserMemory::copy_out`; the rest of its first page is in
    // the same mapping, or else the call fails.
    unsafe { msync(first, addr - start + span.len(), MsyncFlags::SYNC) }.map_err(|_| MemoryFault)
}

/// A line of `/proc/self/maps`.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    is_shared: bool,
    path: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Mapping<'a>> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let is_shared = fields.next()?.ends_with('s');
        // Offset, device and inode; then the path, if there is a file.
        let path = fields.nth(3)?.trim_start();
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            is_shared,
            path,
        })
    }

    /// A file without a name (deleted, or never had one) ends with the process.
    fn is_persistent(&self) -> bool {
        self.is_shared
            && self.path.starts_with('/')
            && statfs(self.path).is_ok_and(|fs| !VOLATILE.contains(&(fs.f_type as u32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_map() {
        let line = "7f10a000-7f10c000 rw-s 00001000 fe:01 42           /var/lib/a file";
        let expected = Mapping {
            start: 0x7f10_a000,
            end: 0x7f10_c000,
            is_shared: true,
            path: "/var/lib/a file",
        };
        assert_eq!(Mapping::parse(line), Some(expected));
        let anonymous = "7ffd1000-7ffd2000 rw-p 00000000 00:00 0 ";
        let parsed = Mapping::parse(anonymous).expect("a line");
        assert!(!parsed.is_shared && parsed.path.is_empty());
        assert_eq!(Mapping::parse("nonsense"), None);
    }

    #[test]
    fn ordinary_memory_is_not_persistent() {
        let bytes = vec![0u8; 10_000];
        let error = check(bytes.as_ptr() as u64, bytes.len()).expect_err("the heap");
        assert_eq!(error.kind(), &ErrorKind::NotPersistent);
        let map = memmap2::MmapMut::map_anon(4096).expect("memory");
        check(map.as_ptr() as u64, map.len()).expect_err("shared, but of no file");
        check(8, 8).expect_err("nothing is there");
    }
}
