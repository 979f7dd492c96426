//! What two processes send each other: a number, and bytes that follow from it and from their identities.

/// No ball is longer.
pub(crate) const LONGEST: usize = 4000;

/// One throw between two members, the lower first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ball {
    pub(crate) pair: [u32; 2],
    /// From 1. Odd ones are thrown by the lower member.
    pub(crate) number: u64,
}

impl Ball {
    /// One of sixteen takes several packets.
    pub(crate) fn len(self) -> usize {
        let dice = self.dice() as usize;
        if dice.is_multiple_of(16) {
            1000 + dice / 16 % (LONGEST - 1000)
        } else {
            16 + dice / 16 % 200
        }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut x = self.dice();
        let mut bytes: Vec<u8> = Vec::with_capacity(self.len());
        bytes.extend(self.number.to_le_bytes());
        while bytes.len() < self.len() {
            x = mix(x);
            bytes.extend(x.to_le_bytes());
        }
        bytes.truncate(self.len());
        bytes
    }

    fn dice(self) -> u64 {
        let [a, b] = self.pair.map(u64::from);
        mix(mix(a << 32 | b) ^ self.number) >> 8
    }
}

/// A step of a generator with low bits no worse than the others (splitmix64).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
