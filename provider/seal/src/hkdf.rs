//! HKDF (RFC 5869) with SHA-256, of the crate ring.

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use crate::aead::KEY;

/// Fills `bytes` with what follows from the secret, the salt and all parts of `info`.
pub(crate) fn expand(salt: &[u8], secret: &[u8], info: &[&[u8]], bytes: &mut [u8; KEY]) {
    let prk = Salt::new(HKDF_SHA256, salt).extract(secret);
    let okm = prk.expand(info, Length);
    let filled = okm.and_then(|okm| okm.fill(bytes));
    filled.expect("a key is shorter than what HKDF can give");
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 1 of RFC 5869, by the same calls.
    #[test]
    fn hkdf_is_the_rfcs() {
        struct Long;
        impl KeyType for Long {
            fn len(&self) -> usize {
                42
            }
        }
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let prk = Salt::new(HKDF_SHA256, &salt).extract(&[0x0b; 22]);
        let info = [&info[..]];
        let mut okm = [0; 42];
        prk.expand(&info, Long)
            .and_then(|okm_| okm_.fill(&mut okm))
            .expect("short");
        let text: String = okm.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
    }
}
