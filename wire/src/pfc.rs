//! Priority flow control (IEEE 802.1Qbb) and pause (802.3x) frames.

use crate::error::{Layer, ParseError};
use crate::ethernet::{EtherType, Mac};

/// Where pause frames go; no bridge forwards them.
pub const PAUSE_DESTINATION: Mac = Mac([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);

/// A pause quantum is the time of so many bits at the link's speed.
pub const PAUSE_QUANTUM_BITS: u32 = 512;

/// What a pause frame stops. Quanta of 0 mean: go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// Everything, for so many quanta (802.3x).
    All(u16),
    /// Priorities, each for its own time (802.1Qbb).
    Priorities {
        /// Bit n: `quanta[n]` counts. The upper byte is reserved and sent as 0.
        enabled: u16,
        /// Time by priority.
        quanta: [u16; 8],
    },
}

/// A MAC control frame that pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PauseFrame {
    /// [`PAUSE_DESTINATION`], or the peer's own address.
    pub dst: Mac,
    /// Sender.
    pub src: Mac,
    /// The classes that it stops.
    pub pause: Pause,
}

const OPCODE_PAUSE: u16 = 0x0001;
const OPCODE_PFC: u16 = 0x0101;
const HEADER_LEN: usize = 14;

impl PauseFrame {
    /// Length on the wire, without the frame check sequence.
    pub const LEN: usize = 60;

    /// Reads a frame, padding or not.
    ///
    /// # Errors
    /// Truncated, not MAC control, or another MAC control opcode.
    pub fn parse(bytes: &[u8]) -> Result<PauseFrame, ParseError> {
        let truncated = |needed| ParseError::truncated(Layer::MacControl, needed, bytes.len());
        let word = |at: usize| {
            let pair = bytes.get(at..at + 2).ok_or(truncated(at + 2))?;
            Ok(u16::from_be_bytes([pair[0], pair[1]]))
        };
        let ethertype = word(12)?;
        if EtherType(ethertype) != EtherType::MAC_CONTROL {
            return Err(ParseError::not_roce(Layer::Ethernet, ethertype));
        }
        let pause = match word(HEADER_LEN)? {
            OPCODE_PAUSE => Pause::All(word(HEADER_LEN + 2)?),
            OPCODE_PFC => {
                let enabled = word(HEADER_LEN + 2)?;
                let mut quanta = [0; 8];
                for (priority, quantum) in quanta.iter_mut().enumerate() {
                    *quantum = word(HEADER_LEN + 4 + 2 * priority)?;
                }
                Pause::Priorities { enabled, quanta }
            }
            number => return Err(ParseError::not_roce(Layer::MacControl, number)),
        };
        let mut addresses = [[0; 6]; 2];
        addresses.as_flattened_mut().copy_from_slice(&bytes[..12]);
        Ok(PauseFrame {
            dst: Mac(addresses[0]),
            src: Mac(addresses[1]),
            pause,
        })
    }

    /// The frame, padded to the shortest that Ethernet allows.
    pub fn emit(&self) -> [u8; 60] {
        let mut b = [0; 60];
        b[..6].copy_from_slice(&self.dst.0);
        b[6..12].copy_from_slice(&self.src.0);
        b[12..14].copy_from_slice(&EtherType::MAC_CONTROL.0.to_be_bytes());
        match self.pause {
            Pause::All(quanta) => {
                b[14..16].copy_from_slice(&OPCODE_PAUSE.to_be_bytes());
                b[16..18].copy_from_slice(&quanta.to_be_bytes());
            }
            Pause::Priorities { enabled, quanta } => {
                b[14..16].copy_from_slice(&OPCODE_PFC.to_be_bytes());
                b[16..18].copy_from_slice(&enabled.to_be_bytes());
                for (place, quantum) in b[18..34].as_chunks_mut::<2>().0.iter_mut().zip(quanta) {
                    *place = quantum.to_be_bytes();
                }
            }
        }
        b
    }
}
