//! In the place of the ciphers, without the feature `ciphers`. No key file can be made or read then ([`crate::KeyFile`]), so there is
//! no key, and none of this is ever called.

fn absent() -> ! {
    panic!("{}", crate::KeyFileError::NoCiphers)
}

pub(crate) mod aead {
    use super::absent;
    use crate::envelope::TAG;

    pub(crate) const KEY: usize = 32;

    pub(crate) struct Key(());

    impl Key {
        pub(crate) fn new(_: &[u8; KEY]) -> Key {
            absent()
        }

        pub(crate) fn seal(&self, _: u64, _: &[u8], _: &mut [u8]) -> [u8; TAG] {
            absent()
        }

        pub(crate) fn tag(&self, _: u64, _: &[u8]) -> [u8; TAG] {
            absent()
        }

        pub(crate) fn open(&self, _: u64, _: &[u8], _: &mut [u8], _: &[u8; TAG]) -> bool {
            absent()
        }

        pub(crate) fn fits(&self, _: u64, _: &[u8], _: &[u8; TAG]) -> bool {
            absent()
        }
    }
}

pub(crate) mod hkdf {
    use super::{absent, aead::KEY};

    pub(crate) fn expand(_: &[u8], _: &[u8], _: &[&[u8]], _: &mut [u8; KEY]) {
        absent()
    }
}

pub(crate) mod noise {
    use zeroize::Zeroizing;

    use super::absent;

    const KEY: usize = 32;

    pub(crate) const MESSAGE: usize = KEY + 16;

    pub(crate) type Split = [Zeroizing<[u8; KEY]>; 2];

    #[derive(Debug)]
    pub(crate) struct Handshake(());

    impl Handshake {
        pub(crate) fn new(_: bool, _: &[u8; KEY], _: &[u8], _: &Zeroizing<[u8; KEY]>) -> Handshake {
            absent()
        }

        pub(crate) fn write<const N: usize>(&mut self, _: &[u8]) -> [u8; N] {
            absent()
        }

        pub(crate) fn read<const N: usize>(&mut self, _: &[u8]) -> Option<[u8; N]> {
            absent()
        }

        pub(crate) fn split(self) -> Split {
            absent()
        }
    }
}
