//! Bytes as a script: zeroes behind their end.

/// What is left of it.
pub(crate) struct Script<'a>(pub(crate) &'a [u8]);

impl Script<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    /// A number of two bytes.
    pub(crate) fn number(&mut self) -> usize {
        usize::from(u16::from_be_bytes(self.array()))
    }

    /// A number for a field: mostly a small one, at times one on an edge, or any.
    pub(crate) fn value(&mut self) -> u32 {
        let byte = self.byte();
        match byte >> 4 {
            0..12 => u32::from(byte % 32),
            12 => self.number() as u32,
            13 => u32::from_be_bytes(self.array()),
            14 => 1 << (byte % 16 + 16),
            _ => u32::MAX >> (byte % 16),
        }
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, count: u8) -> bool {
        self.byte() % count == count - 1
    }

    /// Picks one of the list.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        let place = usize::from(self.byte());
        (!list.is_empty()).then(|| list[place % list.len()])
    }
}
