//! The registered memory of hosts: bytes, or a pattern that stands for as many bytes as are wanted.

use std::cell::{Cell, Ref, RefCell};

use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mr::MrSpan;

use crate::engine::mix64;

/// The contents of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Bytes, which begin as given.
    Bytes(Vec<u8>),
    /// A pattern, with its number. What is read is the pattern; what is written must be it, too
    /// ([`HostMemory::mismatches`]), and is forgotten. Costs no memory, whatever its length. In `lite`
    /// mode nothing is read or written.
    Pattern(u32),
}

#[derive(Debug)]
enum Region {
    Bytes(RefCell<Vec<u8>>),
    /// Its number, and how many bytes were written into it.
    Pattern(u32, Cell<u64>),
}

/// The registered memory of one host.
#[derive(Debug)]
pub struct HostMemory {
    regions: Vec<Region>,
    is_lite: bool,
    mismatches: Cell<u64>,
    /// Writes of the packet that is being handled.
    log: RefCell<Vec<Write>>,
}

/// A write to memory, for the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// It is not what the pattern of the region says.
    pub(crate) is_wrong: bool,
    /// Old and new value, of an atomic.
    pub(crate) values: Option<(u64, u64)>,
}

impl Write {
    #[inline]
    fn to(span: MrSpan) -> Write {
        Write {
            at: span.host_addr(),
            len: span.len() as u64,
            is_wrong: false,
            values: None,
        }
    }
}

/// Bits of an address below the number of its region.
const OFFSET_BITS: u32 = 40;

/// The pattern repeats after a prime number of bytes, so that a packet at a wrong place shows.
const PERIOD: usize = 4093;
static PATTERN: [u8; PERIOD + 4096] = pattern();

const fn pattern() -> [u8; PERIOD + 4096] {
    let mut bytes = [0; PERIOD + 4096];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = mix64((i % PERIOD) as u64) as u8;
        i += 1;
    }
    bytes
}

/// Calls back with pieces of the pattern that begins at an offset.
fn pieces(number: u32, offset: u64, len: usize, mut each: impl FnMut(usize, &[u8])) {
    let mut done = 0;
    while done < len {
        let start = ((offset + done as u64 + u64::from(number) * 1009) % PERIOD as u64) as usize;
        let piece = (len - done).min(4096);
        each(done, &PATTERN[start..start + piece]);
        done += piece;
    }
}

impl HostMemory {
    pub(crate) fn new(is_lite: bool) -> HostMemory {
        HostMemory {
            regions: Vec::new(),
            is_lite,
            mismatches: Cell::new(0),
            log: RefCell::default(),
        }
    }

    /// Adds a region; returns the address of its first byte.
    pub(crate) fn add(&mut self, contents: Contents) -> u64 {
        self.regions.push(match contents {
            Contents::Bytes(bytes) => Region::Bytes(RefCell::new(bytes)),
            Contents::Pattern(number) => Region::Pattern(number, Cell::new(0)),
        });
        (self.regions.len() as u64 - 1) << OFFSET_BITS
    }

    /// The writes since they were forgotten.
    pub(crate) fn writes(&self) -> Ref<'_, Vec<Write>> {
        self.log.borrow()
    }

    pub(crate) fn forget_writes(&self) {
        self.log.borrow_mut().clear();
    }

    #[inline]
    fn note(&self, write: Write) {
        if write.len > 0 {
            self.log.borrow_mut().push(write);
        }
    }

    /// Writes that were not what the pattern says. Each is corruption that no check noticed.
    pub fn mismatches(&self) -> u64 {
        self.mismatches.get()
    }

    /// Bytes that were written into the pattern at an address, all writes together; 0 if there is none.
    pub fn landed(&self, addr: u64) -> u64 {
        match self.region(addr) {
            Ok((Region::Pattern(_, landed), _)) => landed.get(),
            _ => 0,
        }
    }

    fn region(&self, addr: u64) -> Result<(&Region, u64), MemoryFault> {
        let region = self
            .regions
            .get((addr >> OFFSET_BITS) as usize)
            .ok_or(MemoryFault)?;
        Ok((region, addr & ((1 << OFFSET_BITS) - 1)))
    }

    fn with_bytes<R>(
        &self,
        addr: u64,
        len: usize,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, MemoryFault> {
        let (Region::Bytes(bytes), offset) = self.region(addr)? else {
            return Err(MemoryFault);
        };
        let mut bytes = bytes.borrow_mut();
        let start = usize::try_from(offset).map_err(|_| MemoryFault)?;
        let place = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..len));
        place.map(f).ok_or(MemoryFault)
    }

    /// Reads bytes of a region of bytes.
    ///
    /// # Errors
    /// [`MemoryFault`] if there are none.
    pub fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, MemoryFault> {
        self.with_bytes(addr, len, |bytes| bytes.to_vec())
    }

    /// Writes bytes of a region of bytes.
    ///
    /// # Errors
    /// [`MemoryFault`] if there are none.
    pub fn write(&self, addr: u64, from: &[u8]) -> Result<(), MemoryFault> {
        self.with_bytes(addr, from.len(), |bytes| bytes.copy_from_slice(from))
    }

    fn update(&self, span: MrSpan, f: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        self.with_bytes(span.host_addr(), 8, |bytes| {
            let old = u64::from_ne_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]);
            let new = f(old);
            self.note(Write {
                values: Some((old, new)),
                ..Write::to(span)
            });
            bytes.copy_from_slice(&new.to_ne_bytes());
            old
        })
    }
}

impl Memory for HostMemory {
    #[inline]
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault> {
        match self.region(span.host_addr())? {
            (Region::Pattern(..), _) if self.is_lite => Ok(()),
            (&Region::Pattern(number, _), offset) => {
                pieces(number, offset, span.len(), |at, piece| {
                    dst[at..at + piece.len()].copy_from_slice(piece);
                });
                Ok(())
            }
            (Region::Bytes(_), _) => self.with_bytes(span.host_addr(), span.len(), |bytes| {
                dst.copy_from_slice(bytes)
            }),
        }
    }

    #[inline]
    fn copy_in(&self, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        let mut write = Write::to(span);
        match self.region(span.host_addr())? {
            (Region::Pattern(number, landed), offset) => {
                landed.set(landed.get() + span.len() as u64);
                if !self.is_lite {
                    pieces(*number, offset, span.len(), |at, piece| {
                        let is_same = src[at..at + piece.len()] == *piece;
                        write.is_wrong |= !is_same;
                        self.mismatches
                            .set(self.mismatches.get() + u64::from(!is_same));
                    });
                }
            }
            (Region::Bytes(_), _) => self.write(span.host_addr(), src)?,
        }
        self.note(write);
        Ok(())
    }

    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.update(span, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault> {
        self.update(span, |old| old.wrapping_add(add))
    }
}
