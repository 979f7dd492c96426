//! Sealed packets of a capture, opened by `--key-file`: shown as what was inside, in a frame as it would have been without an envelope.

use std::net::IpAddr;

use urxe_seal::{Keys, Mode, Opener, Path};
use urxe_wire::{IcrcSeed, PathHeader, ROCE_V2_PORT};

use super::capture::Captured;

/// Opens packets of captures, any number of times.
pub(crate) struct Sealed {
    opener: Opener,
    pub(crate) opened: u64,
    pub(crate) refused: u64,
}

/// Where things are in a frame.
struct Places {
    ip: usize,
    udp: usize,
    path: Path,
}

const UDP: usize = 8;

impl Sealed {
    pub(crate) fn new(file: &urxe::KeyFile) -> Sealed {
        Sealed {
            opener: Opener::new(Keys::new(file), Mode::Auth),
            opened: 0,
            refused: 0,
        }
    }

    /// The frames that would have been without an envelope: two if a packet took another along. `None` if it is not sealed, or does not open.
    pub(crate) fn open(&mut self, captured: &Captured) -> Option<Vec<Captured>> {
        if captured.is_truncated() {
            return None;
        }
        let places = Places::of(captured)?;
        let data = &captured.data;
        let start = places.udp + UDP;
        // An Ethernet frame may be padded.
        let end = start + usize::from(word(data, places.udp + 4)?).checked_sub(UDP)?;
        let sealed = data.get(start..end)?;
        let mut packet = sealed.to_vec();
        let len = packet.len();
        let Ok(opened) = self.opener.look(&places.path, &mut packet, 0..len) else {
            self.refused += 1;
            return None;
        };
        self.opened += 1;
        packet.truncate(opened.len);
        let (rider, packet) = packet.split_at(opened.rider);
        let packets = [rider, packet].into_iter().filter(|it| !it.is_empty());
        packets
            .map(|packet| places.frame(captured, packet, len))
            .collect()
    }
}

impl Places {
    fn of(captured: &Captured) -> Option<Places> {
        let data = &captured.data;
        let ip = match captured.link_type {
            // Ethernet, perhaps with a VLAN tag.
            1 if word(data, 12)? == 0x8100 => 18,
            1 => 14,
            101 | 228 | 229 => 0,
            // Linux's cooked frames.
            113 => 16,
            276 => 20,
            _ => return None,
        };
        let addr4 = |at: usize| Some(IpAddr::from(*data.get(at..)?.first_chunk::<4>()?));
        let addr6 = |at: usize| Some(IpAddr::from(*data.get(at..)?.first_chunk::<16>()?));
        let (protocol, udp, source, dest) = match data.get(ip)? >> 4 {
            4 => {
                let words = usize::from(data.get(ip)? & 15);
                let udp = ip + words.checked_sub(5).map(|more| 20 + more * 4)?;
                (*data.get(ip + 9)?, udp, addr4(ip + 12)?, addr4(ip + 16)?)
            }
            6 => (*data.get(ip + 6)?, ip + 40, addr6(ip + 8)?, addr6(ip + 24)?),
            _ => return None,
        };
        let path = Path { source, dest };
        let is_sealed = protocol == 17 && word(data, udp + 2)? == urxe_seal::PORT;
        is_sealed.then_some(Places { ip, udp, path })
    }

    /// The frame with another packet in the place of the sealed one, which has `len` bytes.
    fn frame(&self, captured: &Captured, packet: &[u8], len: usize) -> Option<Captured> {
        let (mut frame, mut packet) = (captured.clone(), packet.to_vec());
        let data = &mut frame.data;
        let total_at = self.total_at(data);
        let total = word(data, total_at)?.checked_sub((len - packet.len()) as u16)?;
        let source_port = word(data, self.udp)?;
        for (at, value) in [
            (self.udp + 2, ROCE_V2_PORT),
            (self.udp + 4, (packet.len() + UDP) as u16),
            // None: what was there belonged to other bytes.
            (self.udp + 6, 0),
            (total_at, total),
        ] {
            data[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        let ident = match self.path.source {
            IpAddr::V4(_) => word(data, self.ip + 4)?,
            IpAddr::V6(_) => 0,
        };
        if self.path.source.is_ipv4() {
            mend_checksum(&mut data[self.ip..self.udp]);
        }
        seed(&self.path, source_port).seal(ident, &mut packet);
        data.truncate(self.udp + UDP);
        data.extend(packet);
        frame.len_on_wire = frame.data.len();
        Some(frame)
    }

    /// Where the IP header has its length.
    fn total_at(&self, data: &[u8]) -> usize {
        self.ip + if data[self.ip] >> 4 == 4 { 2 } else { 4 }
    }
}

fn word(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

fn mend_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = !((sum >> 16) + sum) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn seed(path: &Path, sport: u16) -> IcrcSeed {
    let dport = ROCE_V2_PORT;
    IcrcSeed::new(&match (path.source, path.dest) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => PathHeader::V4 {
            src: src.octets(),
            dst: dst.octets(),
            sport,
            dport,
        },
        (src, dst) => PathHeader::V6 {
            src: urxe_wire::Gid::from(src).0,
            dst: urxe_wire::Gid::from(dst).0,
            sport,
            dport,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::capture::CaptureReader;
    use crate::decode::finding::Finding;
    use urxe_seal::{Identity, KeyFile, OVERHEAD, Sealer, sealed_len};

    /// A frame of a capture of Linux's soft-RoCE (Ethernet, IPv4), and the same with its packet sealed, with a rider or without.
    fn frames(key: &KeyFile, mode: Mode, rider: Option<&[u8]>) -> (Captured, Captured) {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../wire/tests/captures/rc_send.pcap"
        );
        let file = std::fs::File::open(path).expect("the capture is committed");
        let mut reader = CaptureReader::new(file).expect("it is sound");
        let plain = reader.next().expect("it is sound").expect("it has frames");
        let mut frame = plain.clone();
        let start = 14 + 20 + UDP;
        let packet = frame.data.split_off(start);
        let ip = |at: usize| IpAddr::from(*plain.data[at..].first_chunk::<4>().expect("IPv4"));
        let path = Path {
            source: ip(14 + 12),
            dest: ip(14 + 16),
        };
        let mut sealer = Sealer::new(Keys::new(key), mode, Identity::new([1; 12]), 0);
        let sealed = match rider {
            None => {
                let mut sealed = vec![0; packet.len() + OVERHEAD];
                sealer.on(path).seal(&packet, &mut sealed);
                sealed
            }
            Some(rider) => {
                let mut sealed = vec![0; sealed_len(packet.len(), rider.len())];
                sealer.on(path).seal_with(&packet, rider, &mut sealed);
                sealed
            }
        };
        let more = (sealed.len() - packet.len()) as u16;
        let longer = |at: usize| word(&plain.data, at).expect("a length") + more;
        for (at, value) in [
            (14 + 2, longer(14 + 2)),
            (14 + 20 + 2, urxe_seal::PORT),
            (14 + 20 + 4, longer(14 + 20 + 4)),
        ] {
            frame.data[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        mend_checksum(&mut frame.data[14..34]);
        frame.data.extend(sealed);
        frame.len_on_wire = frame.data.len();
        (plain, frame)
    }

    /// An ACK to the QP of the frame's packet.
    fn ack(plain: &Captured) -> Vec<u8> {
        let mut ack = vec![
            0x11, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 7, 0x1f, 0, 0, 1,
        ];
        let bth = 14 + 20 + UDP;
        ack[5..8].copy_from_slice(&plain.data[bth + 5..bth + 8]);
        ack.extend([0; 4]);
        ack
    }

    #[test]
    fn what_is_sealed_is_shown_as_it_was_before() {
        let key = KeyFile::new(0x3fa2, [7; 32], 0);
        for mode in [Mode::Auth, Mode::Seal] {
            let (plain, frame) = frames(&key, mode, None);
            let mut sealed = Sealed::new(&key);
            // Captures of loopback have each packet twice.
            for _ in 0..2 {
                let opened = sealed.open(&frame).expect("the right key");
                assert_eq!(opened.len(), 1);
                let text = Finding::of(&opened[0]).to_string();
                assert!(text.ends_with("icrc ok"), "{text}");
                assert_eq!(text, Finding::of(&plain).to_string());
            }
            assert_eq!((sealed.opened, sealed.refused), (2, 0));
            // Plain packets stay as they are.
            assert!(sealed.open(&plain).is_none());
            let mut other = Sealed::new(&KeyFile::new(0x3fa2, [8; 32], 0));
            assert!(other.open(&frame).is_none());
            assert_eq!((other.opened, other.refused), (0, 1));
        }
    }

    #[test]
    fn a_packet_and_its_rider_are_two_frames() {
        let key = KeyFile::new(0x3fa2, [7; 32], 0);
        let (plain, _) = frames(&key, Mode::Seal, None);
        let (_, frame) = frames(&key, Mode::Seal, Some(&ack(&plain)));
        let opened = Sealed::new(&key).open(&frame).expect("the right key");
        let texts: Vec<String> = opened
            .iter()
            .map(|it| Finding::of(it).to_string())
            .collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[0].contains("Acknowledge"), "{texts:?}");
        assert!(texts[0].ends_with("icrc ok"), "{texts:?}");
        assert_eq!(texts[1], Finding::of(&plain).to_string());
    }

    #[test]
    fn cuts_and_nonsense_open_nothing() {
        let key = KeyFile::new(0x3fa2, [7; 32], 0);
        let (_, frame) = frames(&key, Mode::Seal, None);
        let mut sealed = Sealed::new(&key);
        for len in 0..frame.data.len() {
            let mut cut = frame.clone();
            cut.data.truncate(len);
            cut.len_on_wire = len;
            assert!(sealed.open(&cut).is_none(), "{len}");
        }
        for at in 0..14 + 20 + UDP {
            for value in [0, 0x45, 0xff] {
                let mut changed = frame.clone();
                changed.data[at] = value;
                // Whatever it is taken for, it is no panic.
                let _ = sealed.open(&changed);
            }
        }
    }
}
