//! The trait by which the core accesses the application's memory: there is no other way.

use core::sync::atomic::{AtomicU32, Ordering};

use urxe_wire::Qpn;

use crate::mr::MrSpan;

/// The memory behind a span could not be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFault;

/// Registered memory. Every call takes an [`MrSpan`], which only a passed key
/// check can make, so an implementation need not check again.
///
/// The memory is shared with the application by design: implementations copy
/// with raw pointers and never form references over it.
pub trait Memory {
    /// Copies the span's bytes into `dst`, which has the span's length.
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault>;

    /// Copies `src`, which has the span's length, over the span's bytes, in
    /// ascending order (polling applications look at the last byte). 8 bytes at a
    /// multiple of 8 are stored at once (ATOMIC WRITE).
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    fn copy_in(&self, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault>;

    /// Places payload of a peer's RDMA WRITE or ATOMIC WRITE to the QP `qpn`: by default
    /// as [`Memory::copy_in`] does. Of a WRITE nothing tells the application, so nothing
    /// is promised about when it sees which byte.
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    #[inline]
    fn place_write(&self, qpn: Qpn, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        let _ = qpn;
        self.copy_in(span, src)
    }

    /// [`Memory::copy_in`] of words that something else may change meanwhile: each is read once, and what was there then is placed.
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    fn copy_words_in(&self, span: MrSpan, src: &[AtomicU32]) -> Result<(), MemoryFault> {
        each_part(span, src, |part, bytes| self.copy_in(part, bytes))
    }

    /// [`Memory::place_write`] of such words.
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    fn place_written_words(
        &self,
        qpn: Qpn,
        span: MrSpan,
        src: &[AtomicU32],
    ) -> Result<(), MemoryFault> {
        each_part(span, src, |part, bytes| self.place_write(qpn, part, bytes))
    }

    /// Atomically replaces the 8 bytes of the span (host byte order) by `swap` if
    /// they equal `compare`; returns what was there.
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault>;

    /// Atomically adds to the 8 bytes of the span (host byte order, wrapping);
    /// returns what was there.
    ///
    /// # Errors
    /// [`MemoryFault`] when the bytes cannot be reached.
    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault>;

    /// Makes the span's bytes survive a loss of power.
    ///
    /// # Errors
    /// [`MemoryFault`] when they would not. Memory is not persistent unless an
    /// implementation says so.
    fn persist(&self, span: MrSpan) -> Result<(), MemoryFault> {
        let _volatile = span;
        Err(MemoryFault)
    }
}

/// Copies the words to where nothing else can change them, a part after the other.
fn each_part(
    span: MrSpan,
    src: &[AtomicU32],
    mut place: impl FnMut(MrSpan, &[u8]) -> Result<(), MemoryFault>,
) -> Result<(), MemoryFault> {
    const WORDS: usize = 256;
    let mut bytes = [0; 4 * WORDS];
    for (part, words) in src.chunks(WORDS).enumerate() {
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        let bytes = &bytes[..4 * words.len()];
        place(span.part(part * 4 * WORDS, bytes.len()), bytes)?;
    }
    Ok(())
}
