//! The cipher: AEGIS-128L (RFC 10032) of the crate aegis, under keys that are used by this crate only. Nonces are counters, added to
//! a start that is as secret as the key.

use aegis::aegis128l::Aegis128L;
use zeroize::Zeroizing;

use crate::envelope::TAG;

/// Bytes of a key, with those that nonces begin with: all of them have to be found out.
pub(crate) const KEY: usize = 2 * PART;

const PART: usize = 16;

/// A key that is overwritten when it is dropped.
pub(crate) struct Key {
    key: Zeroizing<[u8; PART]>,
    start: Zeroizing<u128>,
}

impl Key {
    pub(crate) fn new(bytes: &[u8; KEY]) -> Key {
        let (key, start) = bytes.split_at(PART);
        let part = |bytes: &[u8]| *bytes.first_chunk().expect("half of it");
        Key {
            key: Zeroizing::new(part(key)),
            start: Zeroizing::new(u128::from_be_bytes(part(start))),
        }
    }

    /// Encrypts where it lies, and returns the tag. `counter` never comes twice.
    #[inline]
    pub(crate) fn seal(&self, counter: u64, clear: &[u8], bytes: &mut [u8]) -> [u8; TAG] {
        self.with(counter).encrypt_in_place(bytes, clear)
    }

    /// The tag of what stays in the clear.
    #[inline]
    pub(crate) fn tag(&self, counter: u64, clear: &[u8]) -> [u8; TAG] {
        self.seal(counter, clear, &mut [])
    }

    /// Decrypts where it lies. False if it was not sealed so; then `bytes` is of no use.
    #[inline]
    pub(crate) fn open(
        &self,
        counter: u64,
        clear: &[u8],
        bytes: &mut [u8],
        tag: &[u8; TAG],
    ) -> bool {
        let cipher = self.with(counter);
        cipher.decrypt_in_place(bytes, tag, clear).is_ok()
    }

    /// True if the tag is what [`Key::tag`] makes. Takes as long if it is not.
    #[inline]
    pub(crate) fn fits(&self, counter: u64, clear: &[u8], tag: &[u8; TAG]) -> bool {
        self.open(counter, clear, &mut [], tag)
    }

    #[inline]
    fn with(&self, counter: u64) -> Aegis128L<TAG> {
        let nonce = *self.start ^ u128::from(counter);
        Aegis128L::new(&self.key, &nonce.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::bytes;

    /// Appendix A.2 of RFC 10032, by the crate itself.
    #[test]
    fn the_cipher_is_the_rfcs() {
        let cases = [
            ("", "", "", "c2b879a67def9d74e6c14f708bbcc9b4"),
            (
                "0001020304050607",
                "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
                "79d94593d8c2119d7e8fd9b8fc77845c5c077a05b2528b6ac54b563aed8efe84",
                "cc6f3372f6aa1bb82388d695c3962d9a",
            ),
            (
                "0001020304050607",
                "000102030405060708090a0b0c0d",
                "79d94593d8c2119d7e8fd9b8fc77",
                "5c04b3dba849b2701effbe32c7f0fab7",
            ),
        ];
        let array = |hex: &str| -> [u8; PART] { bytes(hex).try_into().expect("16 bytes") };
        let key = array("10010000000000000000000000000000");
        let nonce = array("10000200000000000000000000000000");
        for (clear, text, sealed, tag) in cases {
            let cipher = || Aegis128L::<TAG>::new(&key, &nonce);
            let mut buffer = bytes(text);
            let made = cipher().encrypt_in_place(&mut buffer, &bytes(clear));
            assert_eq!(made[..], bytes(tag));
            assert_eq!(buffer, bytes(sealed));
            let opened = cipher().decrypt_in_place(&mut buffer, &made, &bytes(clear));
            assert_eq!(opened, Ok(()));
            assert_eq!(buffer, bytes(text));
        }
    }

    /// What a packet is sealed with: counters count in all of their bits, and nothing of it can be left out.
    #[test]
    fn the_module_passes_everything_on() {
        let mut of_key = [7; KEY];
        of_key[PART..].copy_from_slice(&bytes("808182838485868788898a8b8c8d8e8f"));
        let key = Key::new(&of_key);
        let counter = 0x0102_0304_0506_0708;
        let nonce = bytes("8081828384858687898b898f898b8987");
        let mut expected = *b"what is encrypted";
        let cipher = Aegis128L::<TAG>::new(&[7; PART], nonce[..].try_into().expect("16 bytes"));
        let expected_tag = cipher.encrypt_in_place(&mut expected, b"clear");
        let mut buffer = *b"what is encrypted";
        let tag = key.seal(counter, b"clear", &mut buffer);
        assert_eq!((buffer, tag), (expected, expected_tag));
        assert!(!key.fits(counter, b"clear", &tag));
        assert!(key.fits(counter, b"clear", &key.tag(counter, b"clear")));
        let sealed = buffer;
        assert!(key.open(counter, b"clear", &mut buffer, &tag));
        assert_eq!(&buffer, b"what is encrypted");
        for bit in 0..64 {
            let mut buffer = sealed;
            assert!(!key.open(counter ^ 1 << bit, b"clear", &mut buffer, &tag));
        }
        assert!(!key.open(counter, b"claer", &mut sealed.clone(), &tag));
        for place in 0..KEY {
            let mut of_key = of_key;
            of_key[place] ^= 1;
            let other = Key::new(&of_key);
            assert!(!other.open(counter, b"clear", &mut sealed.clone(), &tag));
        }
    }
}
