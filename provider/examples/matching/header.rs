//! What stands before each message.

use urxe::RemoteMr;

use crate::queues::Envelope;

/// Its bytes: kind, 7 of zero, envelope, number of the send, where the bytes are at the sender.
pub const HEADER: usize = 24 + RemoteMr::BYTES;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The message follows.
    Eager,
    /// The message is to be fetched.
    Rendezvous,
    /// The message was fetched.
    Fin,
}

#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: Kind,
    pub envelope: Envelope,
    /// The number that its sender knows the send by.
    pub send: u64,
    /// The message in its sender's memory.
    pub at: RemoteMr,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = match self.kind {
            Kind::Eager => 1,
            Kind::Rendezvous => 2,
            Kind::Fin => 3,
        };
        bytes[8..16].copy_from_slice(&self.envelope.bits().to_be_bytes());
        bytes[16..24].copy_from_slice(&self.send.to_be_bytes());
        bytes[24..].copy_from_slice(&self.at.to_bytes());
        bytes
    }

    /// Reads the header of a message of `len` bytes in all; refuses, in words, what cannot be one.
    pub fn parse(bytes: &[u8; HEADER], len: usize) -> Result<Header, String> {
        if len < HEADER {
            return Err(format!("{len} bytes, which is less than a header"));
        }
        let kind = match bytes[0] {
            1 => Kind::Eager,
            2 => Kind::Rendezvous,
            3 => Kind::Fin,
            other => return Err(format!("a message of kind {other}")),
        };
        if kind != Kind::Eager && len != HEADER {
            return Err(format!("{len} bytes as {kind:?}, which has {HEADER}"));
        }
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|n| bytes[at + n]));
        let at = std::array::from_fn(|n| bytes[24 + n]);
        Ok(Header {
            kind,
            envelope: Envelope::from_bits(word(8)),
            send: word(16),
            at: RemoteMr::from_bytes(&at),
        })
    }
}
