//! Noise (revision 34) by snow, with ring's cipher and hash, which are here anyway, and curve25519-dalek's X25519.

use core::fmt;
use core::hint::black_box;

use curve25519_dalek::montgomery::MontgomeryPoint;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{Context, SHA256};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Two messages, a secret that both sides have before, and nothing that names a side. The secret goes in first, so that what is made without it
/// is refused at once.
const PROTOCOL: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

const KEY: usize = 32;
const TAG: usize = 16;

/// What the first message, or the second, has more than its payload.
pub(super) const MESSAGE: usize = KEY + TAG;

/// Secrets of both directions: the initiator's, and the responder's.
pub(super) type Split = [Zeroizing<[u8; KEY]>; 2];

/// One side of a handshake. What it knows is overwritten when it is dropped.
pub(super) struct Handshake(HandshakeState);

impl Handshake {
    /// `ephemeral` is a random number, used for nothing else.
    pub(super) fn new(
        is_initiator: bool,
        psk: &[u8; KEY],
        prologue: &[u8],
        ephemeral: &Zeroizing<[u8; KEY]>,
    ) -> Handshake {
        let protocol = PROTOCOL.parse().expect("it is one of the names of Noise");
        let numbers = Numbers(ephemeral.clone());
        let builder = Builder::with_resolver(protocol, Box::new(numbers));
        let builder = builder.psk(0, psk).and_then(|it| it.prologue(prologue));
        let builder = builder.expect("each is set once");
        let built = match is_initiator {
            true => builder.build_initiator(),
            false => builder.build_responder(),
        };
        Handshake(built.expect("it has all that the protocol needs"))
    }

    /// Writes its message.
    pub(super) fn write<const N: usize>(&mut self, payload: &[u8]) -> [u8; N] {
        let mut message = [0; N];
        let len = self.0.write_message(payload, &mut message);
        assert_eq!(len, Ok(N), "it is this side's turn, and the message fits");
        message
    }

    /// Reads the other side's; `None` if it is not one for this handshake, which then waits on.
    pub(super) fn read<const N: usize>(&mut self, message: &[u8]) -> Option<[u8; N]> {
        let mut payload = [0; N];
        if message.len() != N + MESSAGE {
            return None;
        }
        let len = self.0.read_message(message, &mut payload);
        (len == Ok(N)).then_some(payload)
    }

    /// The secrets, once both messages were exchanged.
    pub(super) fn split(mut self) -> Split {
        let (initiator, responder) = self.0.dangerously_get_raw_split();
        [Zeroizing::new(initiator), Zeroizing::new(responder)]
    }
}

impl Drop for Handshake {
    /// Another one is written to its place: with what was there, recorded packets could be read.
    fn drop(&mut self) {
        let protocol = PROTOCOL.parse().expect("as above");
        let builder = Builder::with_resolver(protocol, Box::new(Numbers(Zeroizing::default())));
        if let Ok(blank) = builder.psk(0, &[0; KEY]).and_then(Builder::build_initiator) {
            self.0 = blank;
            black_box(&mut self.0);
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshake")
    }
}

/// What a handshake is made of; and its random number, which it takes once.
struct Numbers(Zeroizing<[u8; KEY]>);

impl CryptoResolver for Numbers {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Numbers(self.0.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519>::default() as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        let hash = || Box::new(Sha256(Context::new(&SHA256))) as _;
        matches!(choice, HashChoice::SHA256).then(hash)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let cipher = || Box::new(ChaChaPoly(key(&[0; KEY]))) as _;
        matches!(choice, CipherChoice::ChaChaPoly).then(cipher)
    }
}

impl Random for Numbers {
    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Error> {
        if to.len() != KEY {
            return Err(Error::Rng);
        }
        to.copy_from_slice(&*self.0);
        Ok(())
    }
}

#[derive(Default)]
struct X25519 {
    private: Zeroizing<[u8; KEY]>,
    public: [u8; KEY],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY
    }

    fn priv_len(&self) -> usize {
        KEY
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = MontgomeryPoint::mul_base_clamped(*self.private).to_bytes();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut private = Zeroizing::new([0; KEY]);
        random.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    /// A point of small order, which would make the secret one that all know, is refused.
    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = *public.first_chunk().ok_or(Error::Dh)?;
        let point = MontgomeryPoint(public).mul_clamped(*self.private);
        if point.0.ct_eq(&[0; KEY]).into() {
            return Err(Error::Dh);
        }
        let out = out.first_chunk_mut().ok_or(Error::Dh)?;
        *out = point.to_bytes();
        Ok(())
    }
}

struct Sha256(Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(self.0.clone().finish().as_ref());
    }
}

struct ChaChaPoly(LessSafeKey);

fn key(bytes: &[u8; KEY]) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, bytes);
    LessSafeKey::new(key.expect("a key of this cipher has this length"))
}

/// Noise has ChaChaPoly's in little-endian order.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, bytes: &[u8; KEY]) {
        self.0 = key(bytes);
    }

    fn encrypt(&self, counter: u64, clear: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (body, tag) = out[..plain.len() + TAG].split_at_mut(plain.len());
        body.copy_from_slice(plain);
        let aad = Aad::from(clear);
        let made = self.0.seal_in_place_separate_tag(nonce(counter), aad, body);
        tag.copy_from_slice(made.expect("messages are short").as_ref());
        plain.len() + TAG
    }

    fn decrypt(
        &self,
        counter: u64,
        clear: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let opened = self
            .0
            .open_in_place(nonce(counter), Aad::from(clear), &mut bytes);
        let opened = opened.map_err(|_| Error::Decrypt)?;
        let out = out.get_mut(..opened.len()).ok_or(Error::Decrypt)?;
        out.copy_from_slice(opened);
        Ok(opened.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits");
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn array(hex: &str) -> [u8; KEY] {
        bytes(hex).try_into().expect("32 bytes")
    }

    /// The vector of this protocol in the collection that implementations of Noise check each other by (cacophony's).
    #[test]
    fn it_is_noise() {
        let psk = array("54686973206973206d7920417573747269616e20706572737065637469766521");
        let prologue = bytes("4a6f686e2047616c74");
        let ephemerals = [
            "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
            "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        ]
        .map(|hex| Zeroizing::new(array(hex)));
        let mut initiator = Handshake::new(true, &psk, &prologue, &ephemerals[0]);
        let mut responder = Handshake::new(false, &psk, &prologue, &ephemerals[1]);
        let payload: [u8; 16] = *b"Ludwig von Mises";
        let first: [u8; 64] = initiator.write(&payload);
        assert_eq!(
            first[..],
            bytes(
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944\
                 79b962b8aff8485742ac32f905ba45369e2465fb59e138a93d67a0d1266b6a54"
            )
        );
        assert_eq!(responder.read(&first), Some(payload));
        let payload: [u8; 15] = *b"Murray Rothbard";
        let second: [u8; 63] = responder.write(&payload);
        assert_eq!(
            second[..],
            bytes(
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
                 d6062704d5a9c422a8e834423f8c1feada7e8d0d910a1a2cd030fb584221e3"
            )
        );
        assert_eq!(initiator.read(&second), Some(payload));
        let (one, other) = (initiator.split(), responder.split());
        assert_eq!(one, other);
        // What follows the handshake is encrypted under these.
        let transport = [
            (
                &one[0],
                &b"F. A. Hayek"[..],
                "e632c3763d7669067383433197a3baddf146e9e70ad4b4e9e59e0f",
            ),
            (
                &one[1],
                b"Carl Menger",
                "64c6bee32ea91c8474bb4c21d7a700109ad45af77b29764ba5eb1e",
            ),
        ];
        for (secret, plain, sealed) in transport {
            let cipher = ChaChaPoly(key(secret));
            let mut out = vec![0; plain.len() + TAG];
            assert_eq!(cipher.encrypt(0, &[], plain, &mut out), out.len());
            assert_eq!(out, bytes(sealed));
            let mut opened = vec![0; plain.len()];
            assert_eq!(cipher.decrypt(0, &[], &out, &mut opened), Ok(plain.len()));
            assert_eq!(opened, plain);
        }
    }

    /// Section 5.2 of RFC 7748, the first vector.
    #[test]
    fn x25519_is_the_rfcs() {
        let mut own = X25519::default();
        own.set(&array(
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        ));
        let theirs = array("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
        let mut out = [0; KEY];
        own.dh(&theirs, &mut out).expect("a point");
        let expected = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552";
        assert_eq!(out, array(expected));
        assert_eq!(own.dh(&[0; KEY], &mut out), Err(Error::Dh), "small order");
    }
}
