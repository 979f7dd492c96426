//! Packets that no host sent: made of one that passes, so that they come from the right place with the right
//! numbers but for what is forged.

use strum::VariantArray;

use crate::engine::mix64;
use crate::envelope::IP_OFFSET;
use crate::fabric::{Fabric, LITE_BODY, Mode};
use crate::fault::wire::IP_UDP;
use crate::frame::{FrameId, Payload};

/// What is wrong with a forged packet. Its ICRC is right, so that only the transport can know.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Forgery {
    /// A PSN that is millions away.
    Psn,
    /// The number of a QP that is not there.
    Qpn,
    /// An undefined opcode.
    Opcode,
    /// A packet that ends within its headers.
    Truncated,
    /// Random bytes, with a wrong ICRC.
    Noise,
}

impl Forgery {
    /// All, in order.
    pub const ALL: &'static [Forgery] = Forgery::VARIANTS;

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Changes a packet from its BTH on.
    fn apply(self, packet: &mut [u8], draw: u64) {
        match self {
            // Far ahead: answered with a NAK, if at all, which says what is true.
            Forgery::Psn => packet[9] = packet[9].wrapping_add(0x30),
            Forgery::Qpn => {
                let number = (mix64(draw) as u32).to_be_bytes();
                packet[5..8].copy_from_slice(&number[1..]);
                // Numbers that are given out have this bit like the one that is known.
                packet[5] |= 0x80;
            }
            Forgery::Opcode => packet[0] = 0x1f,
            Forgery::Truncated => {}
            Forgery::Noise => {
                for (place, byte) in packet.iter_mut().enumerate() {
                    *byte = mix64(draw ^ place as u64) as u8;
                }
            }
        }
    }
}

/// The ICRC at the end of an IP packet, and the one that should stand there.
fn icrc_at_end(l3: &mut [u8]) -> Option<(&mut [u8; 4], [u8; 4])> {
    let icrc = urxe_wire::icrc_of_l3(l3).ok()?;
    Some((l3.last_chunk_mut()?, icrc.to_le_bytes()))
}

/// BTH and ICRC: the shortest packet that there is.
const HEADERS_MIN: u32 = 16;

/// Bytes that are left of a packet that was cut off: less than a BTH.
const STUMP: u32 = 8;

impl Fabric {
    /// Makes a forged frame of a frame.
    pub(crate) fn forge(&mut self, id: FrameId, forgery: Forgery, draw: u64) -> FrameId {
        let copy = self.duplicate(id);
        let mode = self.config.mode;
        let start = match mode {
            Mode::Bytes => IP_OFFSET + self.qos.tag_len() as usize + IP_UDP,
            Mode::Lite => 0,
        };
        let frame = self.frames.get_mut(copy);
        frame.digest = mix64(frame.digest ^ draw);
        let frame_len = frame.len as usize;
        let Payload::Roce { body, len } = &mut frame.payload else {
            return copy;
        };
        if *len < HEADERS_MIN {
            // Nothing is left to forge.
            return copy;
        }
        if forgery == Forgery::Truncated || (forgery == Forgery::Noise && mode == Mode::Lite) {
            // Its length in the IP header says more than arrives; without bytes, nothing is left to read.
            *len = if mode == Mode::Lite { 0 } else { STUMP };
        }
        let len = *len as usize;
        let bytes = self.bodies.get_mut(*body);
        match (forgery, mode) {
            (Forgery::Truncated, Mode::Bytes) => {
                // The UDP length says less than a BTH.
                let udp_len = (8 + STUMP as u16).to_be_bytes();
                bytes[start - 4..start - 2].copy_from_slice(&udp_len);
            }
            (Forgery::Noise, Mode::Bytes) => forgery.apply(&mut bytes[start..start + len], draw),
            (_, Mode::Lite) => forgery.apply(&mut bytes[..LITE_BODY.min(len.max(16))], draw),
            (_, Mode::Bytes) => {
                let l3 = IP_OFFSET + self.qos.tag_len() as usize..frame_len - 4;
                let was_right =
                    icrc_at_end(&mut bytes[l3.clone()]).is_some_and(|(is, icrc)| *is == icrc);
                forgery.apply(&mut bytes[start..start + len], draw);
                // What was damaged stays so: a right ICRC would hide it.
                if let (true, Some((place, icrc))) = (was_right, icrc_at_end(&mut bytes[l3])) {
                    *place = icrc;
                }
            }
        }
        copy
    }
}
