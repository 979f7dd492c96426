//! Bytes as a script, of fuzz targets and property tests.

/// What is left of it.
pub struct Script<'a>(pub &'a [u8]);

impl Script<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number of two bytes.
    pub fn number(&mut self) -> Option<u32> {
        Some(u32::from(self.byte()?) << 8 | u32::from(self.byte()?))
    }

    /// A number of four.
    pub fn word(&mut self) -> Option<u32> {
        Some(self.number()? << 16 | self.number()?)
    }

    /// Up to so many bytes.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    /// The next bytes, into a field of any length.
    pub fn fill(&mut self, out: &mut [u8]) {
        let taken = self.take(out.len());
        out[..taken.len()].copy_from_slice(&taken);
    }
}
