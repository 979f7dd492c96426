//! An ACK that also says which packets ahead of it are here: the payload of an RC ACKNOWLEDGE, between two sides that
//! know of it.
//!
//! | bytes | what |
//! |---|---|
//! | 2 | duplicates that arrived, modulo 2^16 |
//! | 2 | 0 |
//! | the rest | one bit a PSN, lowest first, from the expected one on: it is here |

use urxe_wire::{Packet, Psn, SyndromeKind};

const HEAD: usize = 4;
/// Bits of the map, at most: as many as are kept.
const BITS_MAX: usize = 8 << 10;

/// Bytes of the payload for so many PSNs, no more than a packet has.
pub(crate) fn len(places: usize, mtu: u32) -> usize {
    let map = places.min(BITS_MAX).div_ceil(8).next_multiple_of(4);
    HEAD + map.min(mtu as usize - HEAD)
}

/// Fills a payload of that length.
pub(crate) fn write(payload: &mut [u8], duplicates: u16, here: impl Iterator<Item = bool>) {
    payload.fill(0);
    let (head, map) = payload.split_at_mut(HEAD);
    head[..2].copy_from_slice(&duplicates.to_be_bytes());
    for (at, _) in here
        .take(8 * map.len())
        .enumerate()
        .filter(|(_, here)| *here)
    {
        map[at / 8] |= 1 << (at % 8);
    }
}

/// What such an ACK says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sack<'a> {
    /// The PSN that the peer expects: that of the first bit.
    pub(crate) expected: Psn,
    pub(crate) duplicates: u16,
    map: &'a [u8],
}

impl<'a> Sack<'a> {
    /// Of an ACKNOWLEDGE from a peer that is known to send them.
    pub(crate) fn read(packet: &Packet<'a>) -> Option<Sack<'a>> {
        let (head, map) = packet.payload().split_first_chunk::<HEAD>()?;
        let expected = match packet.aeth()?.syndrome.decode() {
            SyndromeKind::Ack(_) => packet.bth().psn.next(),
            _ => packet.bth().psn,
        };
        Some(Sack {
            expected,
            duplicates: u16::from_be_bytes([head[0], head[1]]),
            map,
        })
    }

    /// Distances from the expected PSN of what is here.
    pub(crate) fn here(&self) -> impl Iterator<Item = u32> + 'a {
        let bytes = self.map.iter().enumerate().filter(|(_, byte)| **byte != 0);
        bytes.flat_map(|(at, &byte)| {
            let bits = (0..8).filter(move |bit| byte >> bit & 1 == 1);
            bits.map(move |bit| at as u32 * 8 + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::{Aeth, Bth, Msn, NakCode, Opcode, PacketWriter, Qpn, Syndrome};
    use urxe_wire::{CreditCode, packet_len};

    use super::*;

    fn packet(syndrome: Syndrome, psn: u32, payload: &[u8]) -> Vec<u8> {
        let opcode = Opcode::RC_ACKNOWLEDGE;
        let info = opcode.info().expect("in the table");
        let mut bytes = vec![0; packet_len(info, payload.len())];
        let bth = Bth::new(opcode, Qpn::new(7), Psn::new(psn));
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        writer.aeth(&Aeth {
            syndrome,
            msn: Msn::ZERO,
        });
        writer.payload_mut(payload.len()).copy_from_slice(payload);
        let here = core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST);
        writer.finish(&crate::path::icrc_seed(here, 1, here), 0);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let here = [0, 1, 1, 0, 0, 0, 0, 0, 1];
        let mut payload = vec![0xff; len(here.len(), 256)];
        assert_eq!(payload.len(), 8);
        write(&mut payload, 0x1234, here.iter().map(|&bit| bit == 1));
        assert_eq!(payload, [0x12, 0x34, 0, 0, 0b110, 1, 0, 0]);
        let ack = Syndrome::ack(CreditCode::UNLIMITED);
        for (syndrome, psn) in [(ack, 0xff_ffff), (Syndrome::nak(NakCode::PsnSequence), 0)] {
            let bytes = packet(syndrome, psn, &payload);
            let packet = Packet::parse(&bytes).expect("well-formed");
            let sack = Sack::read(&packet).expect("it says which");
            assert_eq!((sack.expected, sack.duplicates), (Psn::ZERO, 0x1234));
            assert_eq!(sack.here().collect::<Vec<_>>(), [1, 2, 8]);
        }
    }

    #[test]
    fn a_map_fits_a_packet_and_less_says_nothing() {
        assert_eq!(len(1, 4096), 8);
        assert_eq!(len(usize::MAX, 256), 256);
        assert_eq!(len(usize::MAX, 4096), 4 + 1024);
        let mut payload = [0; 8];
        write(&mut payload, 0, core::iter::repeat_n(true, 1000));
        assert_eq!(payload, [0, 0, 0, 0, 255, 255, 255, 255]);
        let bytes = packet(Syndrome::ack(CreditCode::UNLIMITED), 5, &[1, 2]);
        assert!(Sack::read(&Packet::parse(&bytes).expect("well-formed")).is_none());
    }
}
