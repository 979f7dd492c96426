//! The routines for AArch64. Each uses registers only that a call may change, and no
//! stack, so that wherever it is interrupted, [`gone`] can return in its place.

use core::arch::naked_asm;
use core::ops::Range;

use super::Answer;

/// Bytes that the code of each routine is stretched to, so that its end is known.
const COPY_SIZE: usize = 256;
pub(super) const WORD_SIZE: usize = 48;

/// All processors have what is used here.
pub(super) fn prepare() {}

/// Where a copy may be interrupted.
pub(super) fn copies() -> [Range<usize>; 1] {
    let at = copy as *const () as usize;
    [at..at + COPY_SIZE]
}

/// Returns from a routine with its word for "gone": not zero where that is the only
/// answer, and not zero in the second register.
///
/// # Safety
/// Only the signal handler goes here, in place of a routine that faulted.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn gone() {
    naked_asm!("mov x0, #1", "mov x1, #1", "ret")
}

/// Copies; returns 0, or 1 if something is gone.
///
/// # Safety
/// See [`super::copy`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    naked_asm!(
        "2:",
        // Both ends.
        "add x4, x1, x2",
        "add x5, x0, x2",
        "cmp x2, #16",
        "b.lo 50f",
        "cmp x2, #32",
        "b.hi 30f",
        // 16 to 32 bytes: two halves, which may overlap.
        "ldr q0, [x1]",
        "ldur q1, [x4, #-16]",
        "str q0, [x0]",
        "stur q1, [x5, #-16]",
        "mov x0, #0",
        "ret",
        "30:",
        // 32 bytes at a time, and up to the end once more.
        "sub x6, x5, #32",
        "32:",
        "ldp q0, q1, [x1], #32",
        "stp q0, q1, [x0], #32",
        "cmp x0, x6",
        "b.lo 32b",
        "ldp q0, q1, [x4, #-32]",
        "stp q0, q1, [x5, #-32]",
        "mov x0, #0",
        "ret",
        // Less than 16 bytes.
        "50:",
        "cmp x2, #8",
        "b.lo 52f",
        "ldr x6, [x1]",
        "ldur x7, [x4, #-8]",
        "str x6, [x0]",
        "stur x7, [x5, #-8]",
        "mov x0, #0",
        "ret",
        "52:",
        "cmp x2, #4",
        "b.lo 54f",
        "ldr w6, [x1]",
        "ldur w7, [x4, #-4]",
        "str w6, [x0]",
        "stur w7, [x5, #-4]",
        "mov x0, #0",
        "ret",
        "54:",
        "cbz x2, 56f",
        "lsr x8, x2, #1",
        "ldrb w6, [x1]",
        "ldrb w9, [x1, x8]",
        "ldurb w7, [x4, #-1]",
        "strb w6, [x0]",
        "strb w9, [x0, x8]",
        "sturb w7, [x5, #-1]",
        "56:",
        "mov x0, #0",
        "ret",
        ".org 2b + {size}",
        size = const COPY_SIZE,
    )
}

macro_rules! store {
    ($name:ident, $type:ty, $instruction:literal) => {
        /// Stores a word; returns 0, or 1 if its place is gone.
        ///
        /// # Safety
        /// The place is aligned, and may be written if it is there.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name(at: *mut u8, word: $type) -> u64 {
            naked_asm!(
                "2:",
                concat!($instruction, ", [x0]"),
                "mov x0, #0",
                "ret",
                ".org 2b + {size}",
                size = const WORD_SIZE,
            )
        }
    };
}

store!(store_u64, u64, "str x1");
store!(store_u32, u32, "str w1");
store!(store_u16, u16, "strh w1");
store!(store_u8, u8, "strb w1");

/// Compare-and-swap of 8 bytes.
///
/// # Safety
/// See [`super::compare_swap`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Answer {
    naked_asm!(
        "2:",
        "ldaxr x3, [x0]",
        "cmp x3, x1",
        "b.ne 4f",
        "stlxr w4, x2, [x0]",
        "cbnz w4, 2b",
        "4:",
        "mov x0, x3",
        "mov x1, #0",
        "ret",
        ".org 2b + {size}",
        size = const WORD_SIZE,
    )
}

/// Fetch-and-add of 8 bytes.
///
/// # Safety
/// See [`super::fetch_add`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn fetch_add(at: *mut u8, add: u64) -> Answer {
    naked_asm!(
        "2:",
        "ldaxr x3, [x0]",
        "add x4, x3, x1",
        "stlxr w5, x4, [x0]",
        "cbnz w5, 2b",
        "mov x0, x3",
        "mov x1, #0",
        "ret",
        ".org 2b + {size}",
        size = const WORD_SIZE,
    )
}

/// The place of an interrupted thread's next instruction.
pub(super) fn program_counter(context: &mut libc::ucontext_t) -> &mut libc::c_ulonglong {
    &mut context.uc_mcontext.pc
}
