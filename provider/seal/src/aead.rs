//! The cipher: AEGIS-128X2 (RFC 10032) of the crate aegis, under keys that are used by this crate only. Nonces are counters, added to
//! a start that is as secret as the key.

use aegis::aegis128x2::Aegis128X2;
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
    fn with(&self, counter: u64) -> Aegis128X2<TAG> {
        let nonce = *self.start ^ u128::from(counter);
        Aegis128X2::new(&self.key, &nonce.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::bytes;

    /// The RFC's vectors for AEGIS-128X2, by the crate itself.
    #[test]
    fn the_cipher_is_the_rfcs() {
        let cases = [
            ("", "", "", "63117dc57756e402819a82e13eca8379"),
            (
                "0102030401020304",
                concat!(
                    "04050607040506070405060704050607040506070405060704050607040506070405060704050607",
                    "04050607040506070405060704050607040506070405060704050607040506070405060704050607",
                    "04050607040506070405060704050607040506070405060704050607040506070405060704050607",
                ),
                concat!(
                    "5795544301997f93621b278809d6331b3bfa6f18e90db12c4aa35965b5e98c5fc6fb4e54bcb61118",
                    "42c20637252eff747cb3a8f85b37de80919a589fe0f24872bc926360696739e05520647e390989e1",
                    "eb5fd42f99678a0276a498f8c454761c9d6aacb647ad56be62b29c22cd4b5761b38f43d5a5ee062f",
                ),
                "1aebc200804f405cab637f2adebb6d77",
            ),
        ];
        let array = |hex: &str| -> [u8; PART] { bytes(hex).try_into().expect("16 bytes") };
        let key = array("000102030405060708090a0b0c0d0e0f");
        let nonce = array("101112131415161718191a1b1c1d1e1f");
        for (clear, text, sealed, tag) in cases {
            let cipher = || Aegis128X2::<TAG>::new(&key, &nonce);
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
        let cipher = Aegis128X2::<TAG>::new(&[7; PART], nonce[..].try_into().expect("16 bytes"));
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
