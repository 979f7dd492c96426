//! Memory of a peer: what a program must know of it, and tells its peers of its own.

use core::fmt;
use core::ops::{Bound, RangeBounds};
use core::str::FromStr;

use urxe_wire::Rkey;

use crate::host::environment;

/// Bytes of a region as peers name them: address, rkey and length. Its owner makes it ([`crate::Mr::remote`]) and sends it to the peer in a
/// message, as text or bytes; the peer WRITEs to it and READs from it ([`crate::SendWr::write_to`],
/// [`crate::SendWr::read_from`]).
///
/// As text it is one line without spaces, `address/length/rkey`.
///
/// ```
/// use urxe::{Access, Context, RemoteMr};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::open("127.81.0.41".parse()?)?;
/// let mr = context.alloc_pd()?.reg_owned(vec![0; 4096], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let message = mr.remote(..).to_string();
/// // At the peer:
/// let remote: RemoteMr = message.parse()?;
/// let second_half = remote.part(2048..);
/// assert_eq!((second_half.addr, second_half.len), (mr.addr() + 2048, 2048));
/// assert_eq!(RemoteMr::from_bytes(&remote.to_bytes()), remote);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RemoteMr {
    /// The address that work requests name its first byte by.
    pub addr: u64,
    /// Number of bytes.
    pub len: u64,
    /// The key.
    pub rkey: Rkey,
}

/// A text that is no [`RemoteMr`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{text}\" is no remote memory (address/length/rkey)")]
pub struct RemoteMrTextError {
    text: String,
}

impl RemoteMr {
    /// Length of [`RemoteMr::to_bytes`].
    pub const BYTES: usize = 20;

    /// Some of its bytes.
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    pub fn part(&self, range: impl RangeBounds<usize>) -> RemoteMr {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        let (start, end) = bounds(range, len);
        RemoteMr {
            addr: self.addr.wrapping_add(start as u64),
            len: (end - start) as u64,
            rkey: self.rkey,
        }
    }

    /// In network order: address, length, rkey.
    pub fn to_bytes(&self) -> [u8; RemoteMr::BYTES] {
        let mut bytes = [0; RemoteMr::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes
    }

    /// From [`RemoteMr::to_bytes`].
    pub fn from_bytes(bytes: &[u8; RemoteMr::BYTES]) -> RemoteMr {
        let number = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().expect("8 bytes");
            u64::from_be_bytes(bytes)
        };
        RemoteMr {
            addr: number(0),
            len: number(8),
            // The upper half of the last 8 bytes is the end of the length.
            rkey: Rkey(number(12) as u32),
        }
    }
}

impl fmt::Display for RemoteMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteMr { addr, len, rkey } = self;
        write!(f, "{addr:#x}/{len}/{:#010x}", rkey.0)
    }
}

impl FromStr for RemoteMr {
    type Err = RemoteMrTextError;

    fn from_str(text: &str) -> Result<RemoteMr, RemoteMrTextError> {
        let read = || {
            let mut numbers = text.trim().split('/').map(environment::number);
            let (addr, len, rkey) = (numbers.next()??, numbers.next()??, numbers.next()??);
            let rkey = Rkey(u32::try_from(rkey).ok()?);
            let is_whole = numbers.next().is_none() && addr.checked_add(len).is_some();
            is_whole.then_some(RemoteMr { addr, len, rkey })
        };
        read().ok_or_else(|| RemoteMrTextError {
            // Whatever was sent in its place need not be repeated in full.
            text: text.chars().take(80).collect(),
        })
    }
}

/// The start and the end of a range, inside of a region.
#[inline]
pub(crate) fn bounds(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last + 1,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    assert!(
        start <= end && end <= len,
        "the range {start}..{end} is outside a region of {len} bytes"
    );
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: RemoteMr = RemoteMr {
        addr: 0x7f00_0000_1000,
        len: 4096,
        rkey: Rkey(0x1234_abcd),
    };

    #[test]
    fn it_travels_as_text_and_as_bytes() {
        assert_eq!(REMOTE.to_string(), "0x7f0000001000/4096/0x1234abcd");
        assert_eq!(REMOTE.to_string().parse(), Ok(REMOTE));
        assert_eq!(RemoteMr::from_bytes(&REMOTE.to_bytes()), REMOTE);
        assert_eq!(REMOTE.to_bytes()[16..], [0x12, 0x34, 0xab, 0xcd]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0x1000/4096",
            "0x1000/4096/0x100000000",
            "0x1000/4096/1/1",
            "0xffffffffffffffff/2/1",
            "10.0.0.1/0x1a2b3c/0x77/4096",
        ] {
            let error = text.parse::<RemoteMr>().expect_err(text);
            assert!(error.to_string().contains("address/length/rkey"), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "range")]
    fn a_part_beyond_its_end_is_a_mistake() {
        let _ = REMOTE.part(4000..4097);
    }
}
