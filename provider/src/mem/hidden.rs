//! Memory that does not go into core dumps.

use super::page_size;

/// Keeps the pages on which these bytes lie out of core dumps, with whatever else is on them. Where the system does not do that, they stay.
pub(crate) fn keep_out_of_dumps(address: *const u8, len: usize) {
    let page = page_size();
    let start = address.addr() & !(page - 1);
    let end = (address.addr() + len).next_multiple_of(page);
    // SAFETY: the advice changes what a core dump holds and neither contents nor validity of memory, so any range will do: of one that is not
    // mapped the call says so and does nothing.
    unsafe {
        libc::madvise(start as *mut _, end - start, libc::MADV_DONTDUMP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The flags of the mapping that an address is in, as /proc/self/smaps has them.
    fn flags(address: usize) -> String {
        let smaps = fs::read_to_string("/proc/self/smaps").expect("Linux has it");
        let mut is_inside = false;
        for line in smaps.lines() {
            let range = line
                .split_ascii_whitespace()
                .next()
                .and_then(|word| word.split_once('-'));
            let range = range.and_then(|(start, end)| {
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some(number(start)?..number(end)?)
            });
            if let Some(range) = range {
                is_inside = range.contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_inside) {
                return flags.to_owned();
            }
        }
        panic!("{address:#x} is not mapped");
    }

    #[test]
    fn the_pages_of_secrets_are_not_dumped() {
        // Large enough for pages of its own.
        let bytes = vec![7_u8; 1 << 20];
        let middle = &bytes[1 << 19..];
        keep_out_of_dumps(middle.as_ptr(), 32);
        assert!(flags(middle.as_ptr().addr()).contains(" dd"));
        assert!(!flags(bytes.as_ptr().addr()).contains(" dd"));
        keep_out_of_dumps(core::ptr::null(), 1);
    }
}
