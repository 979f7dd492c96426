//! Ethernet II header with up to two VLAN tags, for captures and simulators.

use core::fmt;

use crate::error::{Layer, ParseError};

/// Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mac({self})")
    }
}

/// The protocol in an Ethernet frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// RoCEv1: a GRH follows.
    pub const ROCE_V1: EtherType = EtherType(0x8915);
    /// MAC control: PFC and pause.
    pub const MAC_CONTROL: EtherType = EtherType(0x8808);
    /// 802.1Q VLAN tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);

    const fn is_tag(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType({:#06x})", self.0)
    }
}

/// VLAN tag (802.1Q or 802.1ad).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanTag {
    /// [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tpid: EtherType,
    /// Priority code point, 0..=7: the PFC class of the frame.
    pub pcp: u8,
    /// May be dropped first.
    pub drop_eligible: bool,
    /// VLAN number, 12 bits.
    pub vid: u16,
}

impl VlanTag {
    fn parse(tpid: EtherType, tci: [u8; 2]) -> VlanTag {
        let tci = u16::from_be_bytes(tci);
        VlanTag {
            tpid,
            pcp: (tci >> 13) as u8,
            drop_eligible: tci & 0x1000 != 0,
            vid: tci & 0x0fff,
        }
    }

    fn tci(self) -> [u8; 2] {
        let pcp = u16::from(self.pcp & 7) << 13;
        (pcp | u16::from(self.drop_eligible) << 12 | self.vid & 0x0fff).to_be_bytes()
    }
}

/// Ethernet II header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// Tags, outermost first; no gap before a tag.
    pub tags: [Option<VlanTag>; 2],
    /// The protocol of the payload.
    pub ethertype: EtherType,
}

impl Ethernet {
    /// Length without tags.
    pub const LEN_MIN: usize = 14;
    /// Length with two tags.
    pub const LEN_MAX: usize = 22;

    /// Reads the header; returns it with the bytes after it.
    ///
    /// # Errors
    /// Truncated, or more than two tags.
    pub fn parse(bytes: &[u8]) -> Result<(Ethernet, &[u8]), ParseError> {
        let truncated = |needed| ParseError::truncated(Layer::Ethernet, needed, bytes.len());
        let (head, mut rest) = bytes.split_first_chunk::<14>().ok_or(truncated(14))?;
        let &[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = head;
        let mut ethertype = EtherType(u16::from_be_bytes([t0, t1]));
        let mut tags = [None; 2];
        let mut needed = Self::LEN_MIN;
        for tag in &mut tags {
            if !ethertype.is_tag() {
                break;
            }
            needed += 4;
            let (&[c0, c1, t0, t1], after) =
                rest.split_first_chunk::<4>().ok_or(truncated(needed))?;
            *tag = Some(VlanTag::parse(ethertype, [c0, c1]));
            ethertype = EtherType(u16::from_be_bytes([t0, t1]));
            rest = after;
        }
        if ethertype.is_tag() {
            return Err(ParseError::Unsupported(Layer::Ethernet));
        }
        let dst = Mac([d0, d1, d2, d3, d4, d5]);
        let src = Mac([s0, s1, s2, s3, s4, s5]);
        Ok((
            Ethernet {
                dst,
                src,
                tags,
                ethertype,
            },
            rest,
        ))
    }

    /// Length with its tags.
    pub fn len(&self) -> usize {
        Self::LEN_MIN + 4 * self.tags.iter().flatten().count()
    }

    /// Never: a header has at least 14 bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header at the start of `out`; returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Ethernet::len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        let mut at = 12;
        for tag in self.tags.iter().flatten() {
            out[at..at + 2].copy_from_slice(&tag.tpid.0.to_be_bytes());
            out[at + 2..at + 4].copy_from_slice(&tag.tci());
            at += 4;
        }
        out[at..at + 2].copy_from_slice(&self.ethertype.0.to_be_bytes());
        at + 2
    }
}
