//! The cipher: AEGIS-256X2 (RFC 10032) of the crate aegis, under keys that are used by this crate only, with counters for nonces.

use aegis::aegis256x2::Aegis256X2;
use zeroize::Zeroizing;

use crate::envelope::TAG;

/// Bytes of a key.
pub(crate) const KEY: usize = 32;

const NONCE: usize = 32;

/// A key that is overwritten when it is dropped.
pub(crate) struct Key(Zeroizing<[u8; KEY]>);

impl Key {
    pub(crate) fn new(bytes: &[u8; KEY]) -> Key {
        Key(Zeroizing::new(*bytes))
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
    fn with(&self, counter: u64) -> Aegis256X2<TAG> {
        let mut nonce = [0; NONCE];
        nonce[NONCE - size_of::<u64>()..].copy_from_slice(&counter.to_be_bytes());
        Aegis256X2::new(&self.0, &nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::bytes;

    /// Appendix A.5 of RFC 10032, the vectors for messages, by the crate itself: our nonces have zeros where theirs have not.
    #[test]
    fn the_cipher_is_the_rfcs() {
        let long = "0405060704050607".repeat(15);
        let sealed = "72120c2ea8236180d67859001f4729077b7064c414384fe3a7b52f1571f4f8a7
            d0f01e18db4f3bc0adb150702e5d147a8d36522132761b994c1bd395589e2ccf
            0790dfe2a3d12d61cd666b2859827739db4037dd3124c78424459376f6cac08e
            1a7223a2a43e398ce6385cd654a19f481cba3b8f25910b42";
        let cases = [
            ("", "", "", "62cdbab084c83dacdb945bb446f049c8"),
            (
                "0102030401020304",
                &*long,
                sealed,
                "635d391828520bf1512763f0c8f5cdbd",
            ),
        ];
        let key: [u8; KEY] = std::array::from_fn(|at| at as u8);
        let nonce: [u8; NONCE] = std::array::from_fn(|at| at as u8 + 16);
        for (clear, text, sealed, tag) in cases {
            let cipher = || Aegis256X2::<TAG>::new(&key, &nonce);
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
        let key = Key::new(&[7; KEY]);
        let counter = 0x0102_0304_0506_0708;
        let mut nonce = [0; NONCE];
        nonce[24..].copy_from_slice(&bytes("0102030405060708"));
        let mut expected = *b"what is encrypted";
        let cipher = Aegis256X2::<TAG>::new(&[7; KEY], &nonce);
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
        assert!(!Key::new(&[8; KEY]).open(counter, b"clear", &mut sealed.clone(), &tag));
    }
}
