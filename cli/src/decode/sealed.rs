//! Sealed packets of a capture, opened by `--key-file`: shown as what was inside, in a frame as it would have been without an envelope.

use std::net::IpAddr;

use urxe_seal::{Keys, Mode, OVERHEAD, Opener, Path};
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

    /// Puts what is in a sealed packet into its place. `None` if it is not sealed, or does not open.
    pub(crate) fn open(&mut self, captured: &mut Captured) -> Option<()> {
        if captured.is_truncated() {
            return None;
        }
        let places = Places::of(captured)?;
        let data = &mut captured.data;
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
        let total = word(data, places.total_at(data))?.checked_sub(OVERHEAD as u16)?;
        let source_port = word(data, places.udp)?;
        let mut put =
            |at: usize, value: u16| data[at..at + 2].copy_from_slice(&value.to_be_bytes());
        put(places.udp + 2, ROCE_V2_PORT);
        put(places.udp + 4, (packet.len() + UDP) as u16);
        // None: what was there belonged to other bytes.
        put(places.udp + 6, 0);
        let at = places.total_at(data);
        data[at..at + 2].copy_from_slice(&total.to_be_bytes());
        let ident = match places.path.source {
            IpAddr::V4(_) => word(data, places.ip + 4)?,
            IpAddr::V6(_) => 0,
        };
        if places.path.source.is_ipv4() {
            mend_checksum(&mut data[places.ip..places.udp]);
        }
        seed(&places.path, source_port).seal(ident, &mut packet);
        data.truncate(start);
        data.extend(packet);
        captured.len_on_wire = data.len();
        Some(())
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
    use urxe_seal::{Identity, KeyFile, Sealer};

    /// A frame of a capture of Linux's soft-RoCE (Ethernet, IPv4), and the same with its packet sealed.
    fn frames(key: &KeyFile, mode: Mode) -> (Captured, Captured) {
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
        let mut sealed = vec![0; packet.len() + OVERHEAD];
        let mut sealer = Sealer::new(Keys::new(key), mode, Identity::new([1; 12]), 0);
        sealer.on(path).seal(&packet, &mut sealed);
        let longer = |at: usize| word(&plain.data, at).expect("a length") + OVERHEAD as u16;
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

    #[test]
    fn what_is_sealed_is_shown_as_it_was_before() {
        let key = KeyFile::new(0x3fa2, [7; 32], 0);
        for mode in [Mode::Auth, Mode::Seal] {
            let (plain, frame) = frames(&key, mode);
            let mut sealed = Sealed::new(&key);
            // Captures of loopback have each packet twice.
            for _ in 0..2 {
                let mut opened = frame.clone();
                sealed.open(&mut opened).expect("the right key");
                let text = Finding::of(&opened).to_string();
                assert!(text.ends_with("icrc ok"), "{text}");
                assert_eq!(text, Finding::of(&plain).to_string());
            }
            assert_eq!((sealed.opened, sealed.refused), (2, 0));
            // Plain packets stay as they are.
            assert_eq!(sealed.open(&mut plain.clone()), None);
            let mut other = Sealed::new(&KeyFile::new(0x3fa2, [8; 32], 0));
            assert_eq!(other.open(&mut frame.clone()), None);
            assert_eq!((other.opened, other.refused), (0, 1));
        }
    }

    #[test]
    fn cuts_and_nonsense_open_nothing() {
        let key = KeyFile::new(0x3fa2, [7; 32], 0);
        let (_, frame) = frames(&key, Mode::Seal);
        let mut sealed = Sealed::new(&key);
        for len in 0..frame.data.len() {
            let mut cut = frame.clone();
            cut.data.truncate(len);
            cut.len_on_wire = len;
            assert_eq!(sealed.open(&mut cut), None, "{len}");
        }
        for at in 0..14 + 20 + UDP {
            for value in [0, 0x45, 0xff] {
                let mut changed = frame.clone();
                changed.data[at] = value;
                // Whatever it is taken for, it is no panic.
                let _ = sealed.open(&mut changed);
            }
        }
    }
}
