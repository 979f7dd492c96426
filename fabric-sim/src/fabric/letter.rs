//! What leaves one part of a network for another.

use crate::engine::Time;
use crate::frame::Frame;
use crate::topology::PortId;

/// A frame on a cable between two parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crossing {
    /// When its last bit arrives, and the place of that among simultaneous events.
    pub(crate) at: Time,
    pub(crate) rank: u64,
    /// Where.
    pub(crate) port: PortId,
    pub(crate) frame: Frame,
    /// How many of the letter's bytes are its own.
    pub(crate) len: u32,
}

/// The frames that left for a part in one window, and their bytes, one after the other.
#[derive(Debug, Default)]
pub(crate) struct FabricLetter {
    pub(crate) frames: Vec<Crossing>,
    pub(crate) bytes: Vec<u8>,
}

impl FabricLetter {
    #[inline]
    pub(crate) fn push(&mut self, at: Time, rank: u64, port: PortId, frame: Frame, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.frames.push(Crossing {
            at,
            rank,
            port,
            frame,
            len: bytes.len() as u32,
        });
    }

    /// When the first of them arrives.
    pub(crate) fn earliest(&self) -> Option<Time> {
        self.frames.iter().map(|crossing| crossing.at).min()
    }
}
