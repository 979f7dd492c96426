//! CRC-32 (reflected polynomial 0xEDB88320) as the ICRC needs it: unfinished states,
//! fast for a few bytes and for thousands, and steps backwards.

const POLYNOMIAL: u32 = 0xedb8_8320;

/// `SLICES[k][b]`: the state after byte `b` and `k` zero bytes, from state 0.
static SLICES: [[u32; 256]; 16] = slices();

const fn slices() -> [[u32; 256]; 16] {
    let mut t = [[0; 256]; 16];
    let mut k = 0;
    while k < 16 {
        let mut bit = 1;
        while bit < 256 {
            let before = if k == 0 { bit as u32 } else { t[k - 1][bit] };
            t[k][bit] = byte_step(before);
            bit <<= 1;
        }
        t[k] = spanned(t[k]);
        k += 1;
    }
    t
}

/// Fills a table of a linear function from its values at powers of two. To take the register's steps for every value would
/// cost each build of this crate most of a second.
const fn spanned<const N: usize>(mut table: [u32; N]) -> [u32; N] {
    let mut i = 1;
    while i < N {
        let others = i & (i - 1);
        if others != 0 {
            table[i] = table[i ^ others] ^ table[others];
        }
        i += 1;
    }
    table
}

/// Eight steps of the register.
const fn byte_step(mut state: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        state = bit_step(state);
        bit += 1;
    }
    state
}

/// Contributions of the two bytes of a 16-bit field after which `after` bytes follow.
pub(crate) const fn field16(after: usize) -> [[u32; 256]; 2] {
    let mut t = [[0; 256]; 2];
    let mut bit = 1;
    while bit < 256 {
        let mut state = byte_step(bit as u32);
        let mut k = 0;
        while k < after {
            state = byte_step(state);
            k += 1;
        }
        t[1][bit] = state;
        t[0][bit] = byte_step(state);
        bit <<= 1;
    }
    [spanned(t[0]), spanned(t[1])]
}

/// Byte by byte.
pub(crate) fn update(mut state: u32, bytes: &[u8]) -> u32 {
    for &b in bytes {
        state = state >> 8 ^ SLICES[0][(state as u8 ^ b) as usize];
    }
    state
}

/// Exactly so many bytes at once: from 4 to 16.
#[inline]
pub(crate) fn update_block<const N: usize>(state: u32, bytes: &[u8; N]) -> u32 {
    let first = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let s = (state ^ first).to_le_bytes();
    let mut out = 0;
    for k in 0..4 {
        out ^= SLICES[N - 1 - k][s[k] as usize];
    }
    for k in 4..N {
        out ^= SLICES[N - 1 - k][bytes[k] as usize];
    }
    out
}

/// Below this many bytes the tables are faster than setting up carry-less products.
const SHORT: usize = 64;

/// Any number of bytes: tables for a few, crc32fast for many.
#[inline]
pub(crate) fn update_long(mut state: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= SHORT {
        let mut hasher = crc32fast::Hasher::new_with_initial(!state);
        hasher.update(bytes);
        return !hasher.finalize();
    }
    let (chunks, rest) = bytes.as_chunks::<16>();
    for chunk in chunks {
        state = update_block(state, chunk);
    }
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        state = update_block(state, word);
    }
    update(state, rest)
}

/// Product of two states as polynomials modulo the CRC's. In reflected order
/// 0x8000_0000 is the polynomial 1.
const fn multiply(a: u32, mut b: u32) -> u32 {
    // The multiples of `b` by every polynomial of degree 3 and less, then four bits of
    // `a` a step, highest power first.
    let mut multiples = [0; 16];
    let mut bit = 8;
    while bit != 0 {
        let mut i = 0;
        while i < 16 {
            if i & bit != 0 {
                multiples[i] ^= b;
            }
            i += 1;
        }
        b = bit_step(b);
        bit >>= 1;
    }
    let mut product = 0;
    let mut at = 0;
    while at < 32 {
        product = product >> 4 ^ FOUR_STEPS[(product & 15) as usize];
        product ^= multiples[(a >> at & 15) as usize];
        at += 4;
    }
    product
}

const fn bit_step(state: u32) -> u32 {
    if state & 1 != 0 {
        state >> 1 ^ POLYNOMIAL
    } else {
        state >> 1
    }
}

/// Four steps of the register, by its low four bits.
const FOUR_STEPS: [u32; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = bit_step(bit_step(bit_step(bit_step(i as u32))));
        i += 1;
    }
    table
};

/// One register step backwards: division by x.
const fn divide_by_x(a: u32) -> u32 {
    if a & 1 << 31 != 0 {
        (a ^ POLYNOMIAL) << 1 | 1
    } else {
        a << 1
    }
}

/// Words in the longest packet of a path MTU of 4096, and its IP and UDP headers.
const WORDS: usize = 1088;

/// Powers of x^8 or x^-8. The lengths that packets have take one look and one product.
struct Powers {
    /// To the `i`.
    bytes: [u32; 4],
    /// To the `4 i`.
    words: [u32; WORDS],
    /// To the `4 WORDS i`: UDP payloads end at 65,535 bytes.
    leaps: [u32; 16],
}

impl Powers {
    const fn of(step: u32) -> Powers {
        let bytes = Self::series(step);
        let words = Self::series(multiply(bytes[3], step));
        let leaps = Self::series(multiply(words[WORDS - 1], words[1]));
        Powers {
            bytes,
            words,
            leaps,
        }
    }

    const fn series<const N: usize>(step: u32) -> [u32; N] {
        // Products of the step with each half byte of the other factor.
        let mut products = [[0; 16]; 8];
        let mut at = 0;
        while at < 32 {
            products[at / 4][1 << (at % 4)] = multiply(1 << at, step);
            at += 1;
        }
        let mut half = 0;
        while half < 8 {
            products[half] = spanned(products[half]);
            half += 1;
        }
        let mut powers = [1 << 31; N];
        let mut i = 1;
        while i < N {
            let before = powers[i - 1];
            powers[i] = 0;
            let mut half = 0;
            while half < 8 {
                powers[i] ^= products[half][(before >> (4 * half) & 15) as usize];
                half += 1;
            }
            i += 1;
        }
        powers
    }

    #[inline]
    fn apply(&self, state: u32, bytes: usize) -> u32 {
        let mut state = multiply(state, self.words[bytes / 4 % WORDS]);
        if !bytes.is_multiple_of(4) {
            state = multiply(state, self.bytes[bytes % 4]);
        }
        if bytes >= 4 * WORDS {
            state = multiply(state, self.leaps[(bytes / (4 * WORDS)).min(15)]);
        }
        state
    }
}

static FORWARD: Powers = Powers::of(1 << (31 - 8));
static BACKWARD: Powers = {
    let mut step = 1 << 31;
    let mut i = 0;
    while i < 8 {
        step = divide_by_x(step);
        i += 1;
    }
    Powers::of(step)
};

/// The state after `bytes` zero bytes.
pub(crate) fn roll(state: u32, bytes: usize) -> u32 {
    FORWARD.apply(state, bytes)
}

/// The state before `bytes` zero bytes.
pub(crate) fn unroll(state: u32, bytes: usize) -> u32 {
    BACKWARD.apply(state, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_agree() {
        let bytes: [u8; 300] = core::array::from_fn(|i| (i * 7 + 3) as u8);
        for len in 0..bytes.len() {
            let slow = update(!0, &bytes[..len]);
            assert_eq!(update_long(!0, &bytes[..len]), slow, "{len}");
        }
        let twelve = bytes.first_chunk::<12>().expect("300 bytes");
        assert_eq!(
            update_block(0x1234_5678, twelve),
            update(0x1234_5678, &bytes[..12])
        );
        assert_eq!(
            !update(!0, b"123456789"),
            0xcbf4_3926,
            "the check value of CRC-32"
        );
    }

    #[test]
    fn rolling_is_zero_bytes_and_unrolling_undoes_it() {
        let zeros = [0; 65_535];
        for len in [0, 1, 2, 3, 4, 5, 64, 1000, 4351, 4352, 4353, 40_001, 65_535] {
            let rolled = update(0xdead_beef, &zeros[..len]);
            assert_eq!(roll(0xdead_beef, len), rolled, "{len}");
            assert_eq!(unroll(rolled, len), 0xdead_beef, "{len}");
        }
    }
}
