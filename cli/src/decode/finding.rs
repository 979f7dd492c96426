//! What a captured frame turns out to be, and the sum over all of them.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use urxe_wire::{Frame, Layer, LinkType, ParseError, RoceFrame};

use super::capture::Captured;

/// The longest frame that is completed for display when the capture cut it off: no datagram is longer.
const FRAME_LEN_MAX: usize = 1 << 17;

#[derive(Debug)]
pub(crate) enum Finding {
    /// A packet of the InfiniBand transport, as text.
    Roce { text: String, icrc: Icrc },
    /// Something else, as far as it is known.
    Other(String),
    /// It claims to be RoCE, and is broken.
    Broken { error: ParseError },
}

/// What became of the ICRC check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Icrc {
    Ok,
    Bad {
        found: u32,
        expected: u32,
    },
    /// The capture holds only the beginning of the packet.
    NotChecked,
    /// So it does, and does not say so: the IP header tells of more bytes.
    CutShort {
        have: usize,
        whole: usize,
    },
}

impl Finding {
    pub(crate) fn of(captured: &Captured) -> Finding {
        let (link_type, len_on_wire) = (captured.link_type, captured.len_on_wire);
        let Some(link) = LinkType::from_pcap(link_type) else {
            let text = format!("frame of link type {link_type}, which is not known");
            return Finding::Other(text);
        };
        let is_cut = captured.is_truncated();
        let mut bytes = Cow::Borrowed(captured.data.as_slice());
        if is_cut && len_on_wire <= FRAME_LEN_MAX {
            // The headers are in front: with zeros for the rest the packet can be shown, if not checked.
            bytes.to_mut().resize(len_on_wire, 0);
        }
        match Frame::parse(link, &bytes) {
            Ok(Frame::Roce(frame)) => {
                let found = u32::from_le_bytes(frame.packet.icrc());
                let icrc = match frame.icrc_expected {
                    _ if is_cut => Icrc::NotChecked,
                    expected if expected == found => Icrc::Ok,
                    expected => Icrc::Bad { found, expected },
                };
                Finding::of_roce(frame, icrc)
            }
            Ok(other) => Finding::Other(other.to_string()),
            Err(ParseError::NotRoce { layer, number }) => {
                Finding::Other(format!("not RoCE: {layer} carries {number:#06x}"))
            }
            Err(error) if is_cut => {
                Finding::Other(format!("cut off by the capture before its end: {error}"))
            }
            Err(error) if is_below_udp(error) => Finding::of_short(link, &bytes, error)
                .unwrap_or_else(|| Finding::Other(format!("not RoCE: {error}"))),
            Err(error) => Finding::Broken { error },
        }
    }

    /// What it is, without the ICRC.
    pub(crate) fn text(&self) -> String {
        match self {
            Finding::Roce { text, .. } => text.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn icrc(&self) -> Option<Icrc> {
        match self {
            Finding::Roce { icrc, .. } => Some(*icrc),
            Finding::Other(_) | Finding::Broken { .. } => None,
        }
    }

    fn of_roce(frame: RoceFrame<'_>, icrc: Icrc) -> Finding {
        // The verdict is told here, with more in it than the frame's own text has.
        let shown = RoceFrame {
            icrc_expected: u32::from_le_bytes(frame.packet.icrc()),
            ..frame
        };
        let text = shown.to_string();
        Finding::Roce { text, icrc }
    }

    /// Of a frame with fewer bytes than its IP header tells of: a packet of RoCE, if the ports say so.
    fn of_short(link: LinkType, bytes: &[u8], error: ParseError) -> Option<Finding> {
        let ParseError::Truncated { needed, have, .. } = error else {
            return None;
        };
        let whole = bytes.len() + needed.checked_sub(have)?;
        let mut padded = bytes.to_vec();
        padded.resize(whole.min(FRAME_LEN_MAX), 0);
        let have = bytes.len();
        match Frame::parse(link, &padded) {
            Ok(Frame::Roce(frame)) => Some(Finding::of_roce(frame, Icrc::CutShort { have, whole })),
            Err(ParseError::NotRoce { .. }) | Ok(_) => None,
            Err(error) if is_below_udp(error) => None,
            // The port is there, and too little of the rest to show it.
            Err(_) => {
                let text = format!("RoCE, cut short: {have} of {whole} bytes");
                Some(Finding::Other(text))
            }
        }
    }
}

/// Whether the error is in a header below UDP: then nothing has shown yet that the frame carries RoCE. Hosts
/// send all sorts of things there (IGMP with IP options, fragments), and none is a fault in RoCE.
fn is_below_udp(error: ParseError) -> bool {
    let (ParseError::Truncated { layer, .. }
    | ParseError::Version { layer, .. }
    | ParseError::Length { layer, .. }
    | ParseError::Unsupported(layer)) = error
    else {
        return false;
    };
    use Layer::{Ethernet, Ipv4, Ipv6, LinuxCooked, MacControl};
    [Ethernet, LinuxCooked, MacControl, Ipv4, Ipv6].contains(&layer)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Roce { text, icrc } => write!(f, "{text}, {icrc}"),
            Finding::Other(text) => f.write_str(text),
            Finding::Broken { error } => write!(f, "BROKEN: {error}"),
        }
    }
}

impl Icrc {
    /// For programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Icrc::Ok => "ok",
            Icrc::Bad { .. } => "bad",
            Icrc::NotChecked | Icrc::CutShort { .. } => "not checked",
        }
    }
}

impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Icrc::Ok => f.write_str("icrc ok"),
            Icrc::Bad { found, expected } => {
                write!(f, "ICRC BAD ({found:#010x}, should be {expected:#010x})")
            }
            Icrc::NotChecked => f.write_str("icrc not checked (cut off by the capture)"),
            Icrc::CutShort { have, whole } => {
                write!(f, "icrc not checked (cut short: {have} of {whole} bytes)")
            }
        }
    }
}

/// Numbers of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) packets: u64,
    roce: u64,
    icrc_ok: u64,
    icrc_bad: u64,
    broken: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, finding: &Finding) {
        self.packets += 1;
        match finding {
            Finding::Roce { icrc, .. } => {
                self.roce += 1;
                self.icrc_ok += u64::from(*icrc == Icrc::Ok);
                self.icrc_bad += u64::from(matches!(icrc, Icrc::Bad { .. }));
            }
            Finding::Other(_) => {}
            Finding::Broken { .. } => {
                self.roce += 1;
                self.broken += 1;
            }
        }
    }

    /// Packets that a receiver would have dropped.
    pub(crate) fn faults(&self) -> u64 {
        self.icrc_bad + self.broken
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets, {} RoCE, ", self.packets, self.roce)?;
        write!(f, "{} ICRC ok, {} ICRC bad", self.icrc_ok, self.icrc_bad)?;
        let unchecked = self.roce - self.icrc_ok - self.icrc_bad - self.broken;
        if unchecked > 0 {
            write!(f, ", {unchecked} not checked")?;
        }
        write!(f, ", {} broken", self.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::capture::CaptureReader;

    /// The first frame of a capture of Linux's soft-RoCE: a SEND First of 256 bytes.
    fn frame() -> Captured {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../wire/tests/captures/rc_send.pcap"
        );
        let file = std::fs::File::open(path).expect("the capture is committed");
        let mut reader = CaptureReader::new(file).expect("it is sound");
        reader.next().expect("it is sound").expect("it has frames")
    }

    fn icrc_of(captured: &Captured) -> Option<Icrc> {
        Finding::of(captured).icrc()
    }

    #[test]
    fn a_cut_packet_is_shown_but_not_checked() {
        let mut captured = frame();
        assert_eq!(icrc_of(&captured), Some(Icrc::Ok));
        let whole = Finding::of(&captured).to_string();
        captured.data.truncate(captured.data.len() - 200);
        assert_eq!(icrc_of(&captured), Some(Icrc::NotChecked));
        let cut = Finding::of(&captured).to_string();
        assert_eq!(
            cut,
            whole.replace("icrc ok", "icrc not checked (cut off by the capture)")
        );
    }

    #[test]
    fn cuts_anywhere_are_no_fault() {
        let whole = frame();
        let mut summary = Summary::default();
        for len in 0..whole.data.len() {
            let mut captured = whole.clone();
            captured.data.truncate(len);
            summary.add(&Finding::of(&captured));
        }
        assert_eq!(summary.faults(), 0, "{summary}");
        assert_eq!(summary.icrc_ok, 0, "{summary}");
    }

    #[test]
    fn a_packet_that_is_shorter_than_its_ip_header_says_is_cut_short() {
        let whole = frame();
        // From where the ports are there.
        for len in 14 + 20 + 4..whole.data.len() {
            let mut captured = whole.clone();
            captured.data.truncate(len);
            captured.len_on_wire = len;
            let text = Finding::of(&captured).to_string();
            let says = format!("cut short: {len} of {} bytes", whole.data.len());
            assert!(text.contains(&says), "{text}");
        }
        let mut captured = whole;
        captured.data[36] ^= 1;
        captured.data.truncate(100);
        captured.len_on_wire = 100;
        let text = Finding::of(&captured).to_string();
        assert!(text.starts_with("not RoCE"), "another port: {text}");
    }

    #[test]
    fn an_unassigned_opcode_is_shown_and_another_port_is_not_ours() {
        let mut captured = frame();
        for (opcode, name) in [
            (0x46, "RD RDMA WRITE First"),
            (0x54, "RD FetchAdd"),
            (0x55, "RD RESYNC"),
            (0xc4, "manufacturer's opcode 0xc4 (DC or the like)"),
            (0x56, "unassigned opcode 0x56"),
            (0x18, "unassigned opcode 0x18"),
        ] {
            // Ethernet 14, IPv4 20, UDP 8: the opcode is the first byte after them.
            captured.data[42] = opcode;
            let text = Finding::of(&captured).to_string();
            assert!(text.contains(&format!("{name} QPN")), "{text}");
        }
        let Finding::Roce { icrc, .. } = Finding::of(&captured) else {
            panic!("a vendor's packet is a packet");
        };
        assert!(
            matches!(icrc, Icrc::Bad { .. }),
            "it was computed for another opcode"
        );
        captured.data[36] ^= 1;
        assert!(matches!(Finding::of(&captured), Finding::Other { .. }));
        captured.link_type = 147;
        assert!(matches!(Finding::of(&captured), Finding::Other { .. }));
    }
}
