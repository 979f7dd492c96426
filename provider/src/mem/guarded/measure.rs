//! What the guarded copy costs, beside the C library's in the same run.

use core::hint::black_box;
use core::ptr;
use std::time::Instant;

use super::copy;

/// The destination is so many bytes further into its page than the source; these are pages.
const PAGE: usize = 4096;

/// # Safety
/// As `ptr::copy_nonoverlapping`.
unsafe fn plain(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(src, dst, len) }
}

/// # Safety
/// As [`copy`].
unsafe fn guarded(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(dst, src, len) }.expect("the buffers are there");
}

#[test]
#[ignore = "it times: tests/measure and CI run it with nothing beside it"]
fn a_guarded_copy_costs_what_a_plain_one_does() {
    super::protect();
    println!(
        "{:>6} {:>8} {:>10} {:>10} {:>6}",
        "bytes", "further", "plain ns", "guarded", "ratio"
    );
    let sizes = [1, 8, 64, 256, 512, 1024, 2048, 4096, 65_536];
    let usual = sizes.map(|len| (len, 42));
    // Where string instructions of some processors are slow.
    for (len, further) in usual.into_iter().chain([(4096, 8)]) {
        let (mut dst, src) = (vec![0u8; len + 2 * PAGE], vec![1u8; len + PAGE]);
        let src = &src[src.as_ptr().align_offset(PAGE)..];
        let at = dst.as_ptr().align_offset(PAGE) + further;
        let mut best = [f64::MAX; 2];
        let copies: [unsafe fn(*mut u8, *const u8, usize); 2] = [plain, guarded];
        let rounds = 2_000_000 / (len + 100) + 100;
        for turn in 0..40 {
            let which = turn % 2;
            let copy = black_box(copies[which]);
            let start = Instant::now();
            for _ in 0..rounds {
                // SAFETY: `len` bytes are in both: there is a page more for the alignment, and one for what is further.
                unsafe { copy(dst.as_mut_ptr().add(at), src.as_ptr(), len) };
            }
            let each = start.elapsed().as_nanos() as f64 / rounds as f64;
            best[which] = best[which].min(each);
        }
        let ratio = best[1] / best[0];
        println!(
            "{len:>6} {further:>8} {:>10.1} {:>10.1} {ratio:>6.2}",
            best[0], best[1]
        );
        // A packet of 4096 bytes costs hundreds of nanoseconds: 15 more would not show.
        assert!(best[1] < best[0] * 1.25 + 15.0, "{len} bytes: {best:?} ns");
    }
}
