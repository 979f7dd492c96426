//! The invariant CRC: what it covers, and how it is computed fast.
//!
//! It is the Ethernet CRC-32 over 8 bytes of ones (in place of the LRH), the IP and
//! UDP headers, and the packet up to the ICRC, with the fields that routers change
//! counted as ones. It is stored least significant byte first.
//!
//! A CRC is linear. So what the addresses and ports of a path contribute is computed
//! once ([`IcrcSeed`]), what lengths and the IPv4 Identification contribute comes
//! from small tables, and an Identification that a socket does not show can be
//! *solved for*: of the 2^32 possible differences between the ICRC that arrived and
//! the one computed for Identification 0, 2^16 belong to some Identification.

use crate::crc;
use crate::error::{Layer, ParseError};
use crate::ipv4::Ipv4;
use crate::ipv6::{Ipv6, NEXT_HEADER_BTH};
use crate::udp::{PROTOCOL_UDP, Udp};

/// The part of the IP and UDP headers that is the same for all packets of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PathHeader {
    /// IPv4, without options, with DF set.
    V4 {
        /// Source address.
        src: [u8; 4],
        /// Destination address.
        dst: [u8; 4],
        /// UDP source port.
        sport: u16,
        /// UDP destination port.
        dport: u16,
    },
    /// IPv6, without extension headers.
    V6 {
        /// Source address.
        src: [u8; 16],
        /// Destination address.
        dst: [u8; 16],
        /// UDP source port.
        sport: u16,
        /// UDP destination port.
        dport: u16,
    },
}

/// How strictly the ICRC of a received packet is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IcrcPolicy {
    /// Over IPv4 the Identification must be the expected one, or 0.
    Exact,
    /// Over IPv4 any Identification will do: 16 bits of the check remain.
    #[default]
    SolveIdent,
    /// The ICRC is not checked.
    Skip,
}

/// Result of a verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcrcVerdict {
    /// The ICRC fits.
    Ok {
        /// The IPv4 Identification that it fits with; 0 over IPv6.
        ident: u16,
    },
    /// The ICRC does not fit.
    Bad,
}

/// A path's contribution to every ICRC.
#[derive(Clone, Copy, Debug)]
pub struct IcrcSeed {
    state: u32,
    network: Network,
}

/// What packets of a path travel over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Network {
    V4,
    V6,
    Memory,
}

const IPV4_LEN: u16 = 20;
const UDP_LEN: u16 = 8;
const BTH: usize = 12;
/// BTH byte 4 (FECN, BECN, reserved) counts as ones.
const MASKED_BTH_BYTE: usize = 4;

// Bytes that follow a field within the headers that the seed covers. IPv4: 8 bytes
// of ones, 20 of IP, 8 of UDP; IPv6: 8, 40 and 8.
const AFTER_V4_TOTAL_LEN: usize = 36 - 12;
const AFTER_V4_IDENT: usize = 36 - 14;
const AFTER_V6_PAYLOAD_LEN: usize = 56 - 14;
const AFTER_UDP_LEN: usize = 2;

static V4_TOTAL_LEN: [[u32; 256]; 2] = crc::field16(AFTER_V4_TOTAL_LEN);
static V4_IDENT: [[u32; 256]; 2] = crc::field16(AFTER_V4_IDENT);
static V6_PAYLOAD_LEN: [[u32; 256]; 2] = crc::field16(AFTER_V6_PAYLOAD_LEN);
static UDP_LENGTH: [[u32; 256]; 2] = crc::field16(AFTER_UDP_LEN);

#[inline]
fn field(table: &[[u32; 256]; 2], value: u16) -> u32 {
    let [high, low] = value.to_be_bytes();
    table[0][high as usize] ^ table[1][low as usize]
}

impl IcrcSeed {
    /// Computes a path's contribution.
    pub fn new(path: &PathHeader) -> IcrcSeed {
        let mut bytes = [0xff; 56];
        match *path {
            PathHeader::V4 {
                src,
                dst,
                sport,
                dport,
            } => {
                // Version and length; TOS counts as ones; lengths and Identification 0
                // for now; DF; TTL and checksums count as ones.
                bytes[8..20]
                    .copy_from_slice(&[0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, 17, 0xff, 0xff]);
                bytes[20..24].copy_from_slice(&src);
                bytes[24..28].copy_from_slice(&dst);
                put_ports(&mut bytes[28..36], sport, dport);
                IcrcSeed {
                    state: crc::update(!0, &bytes[..36]),
                    network: Network::V4,
                }
            }
            PathHeader::V6 {
                src,
                dst,
                sport,
                dport,
            } => {
                // Version; traffic class, flow label and hop limit count as ones.
                bytes[8..16].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff, 0, 0, 17, 0xff]);
                bytes[16..32].copy_from_slice(&src);
                bytes[32..48].copy_from_slice(&dst);
                put_ports(&mut bytes[48..56], sport, dport);
                IcrcSeed {
                    state: crc::update(!0, &bytes),
                    network: Network::V6,
                }
            }
        }
    }

    /// For packets that do not leave memory, where nothing can damage them: they have four bytes of zeros in the place of
    /// the ICRC, and whatever stands there is taken for right.
    pub const IN_MEMORY: IcrcSeed = IcrcSeed {
        state: 0,
        network: Network::Memory,
    };

    /// True for [`IcrcSeed::IN_MEMORY`].
    #[inline]
    pub fn is_in_memory(&self) -> bool {
        self.network == Network::Memory
    }

    /// What changes in ICRCs when packets that were made for this path travel on `other`, both of the same IP version.
    pub fn change_to(&self, other: &IcrcSeed) -> PathChange {
        debug_assert_eq!(self.network, other.network, "other fields are covered");
        PathChange(self.state ^ other.state)
    }

    /// Writes the ICRC of a packet (from the BTH to the ICRC) that was built without it. Bytes that are too short for a packet
    /// stay as they are.
    pub fn seal(&self, ident: u16, packet: &mut [u8]) {
        if let Some((covered, icrc)) = packet.split_last_chunk_mut::<4>() {
            *icrc = self.compute(ident, covered).to_le_bytes();
        }
    }

    /// The ICRC of a packet (from the BTH to the padding) that travels under the
    /// IPv4 Identification `ident` (ignored over IPv6). On the wire it stands as
    /// `to_le_bytes()`.
    ///
    /// Packets shorter than a BTH have no ICRC; for them the value means nothing.
    #[inline]
    pub fn compute(&self, ident: u16, bth_to_pad: &[u8]) -> u32 {
        if self.is_in_memory() {
            return 0;
        }
        self.compute_for_network(ident, bth_to_pad)
    }

    fn compute_for_network(&self, ident: u16, bth_to_pad: &[u8]) -> u32 {
        let udp_len = (bth_to_pad.len() as u16).wrapping_add(UDP_LEN + 4);
        let mut state = self.state ^ field(&UDP_LENGTH, udp_len);
        state ^= if self.network == Network::V4 {
            field(&V4_TOTAL_LEN, udp_len.wrapping_add(IPV4_LEN)) ^ field(&V4_IDENT, ident)
        } else {
            field(&V6_PAYLOAD_LEN, udp_len)
        };
        let Some((bth, rest)) = bth_to_pad.split_first_chunk::<BTH>() else {
            return 0;
        };
        let mut bth = *bth;
        bth[MASKED_BTH_BYTE] = 0xff;
        !crc::update_long(crc::update_block(state, &bth), rest)
    }

    /// Verifies the ICRC at the end of `packet` (BTH to ICRC). `ident_hint` is the
    /// IPv4 Identification that it probably travelled under.
    #[inline]
    pub fn verify(&self, ident_hint: u16, packet: &[u8]) -> IcrcVerdict {
        self.verify_with(IcrcPolicy::SolveIdent, ident_hint, packet)
    }

    /// Verifies as strictly as `policy` says.
    #[inline]
    pub fn verify_with(&self, policy: IcrcPolicy, ident_hint: u16, packet: &[u8]) -> IcrcVerdict {
        if policy == IcrcPolicy::Skip || self.is_in_memory() {
            return IcrcVerdict::Ok { ident: ident_hint };
        }
        let Some((covered, icrc)) = packet.split_last_chunk::<4>() else {
            return IcrcVerdict::Bad;
        };
        if covered.len() < BTH {
            return IcrcVerdict::Bad;
        }
        let is_v4 = self.network == Network::V4;
        let ident_hint = if is_v4 { ident_hint } else { 0 };
        let difference = self.compute(ident_hint, covered) ^ u32::from_le_bytes(*icrc);
        if difference == 0 {
            return IcrcVerdict::Ok { ident: ident_hint };
        }
        if !is_v4 {
            return IcrcVerdict::Bad;
        }
        match solve_ident(difference, covered.len()) {
            Some(delta) if policy == IcrcPolicy::SolveIdent || delta == ident_hint => {
                IcrcVerdict::Ok {
                    ident: ident_hint ^ delta,
                }
            }
            _ => IcrcVerdict::Bad,
        }
    }
}

/// The change of Identification that explains a difference of ICRCs, if any does.
#[cold]
fn solve_ident(difference: u32, covered_len: usize) -> Option<u16> {
    // Undo the bytes that follow the Identification, and the Identification's own
    // two: what remains are the two bytes themselves, or no such pair exists.
    let bytes = crc::unroll(difference, covered_len + AFTER_V4_IDENT + 2);
    (bytes >> 16 == 0).then(|| (bytes as u16).swap_bytes())
}

/// Changes the ICRC at the end of `packet` (BTH to ICRC), which was computed for the
/// IPv4 Identification `from`, into the one for `to`.
pub fn reident(packet: &mut [u8], from: u16, to: u16) {
    change_icrc(packet, field(&V4_IDENT, from ^ to));
}

/// The state after the headers differs by so much.
#[inline]
fn change_icrc(packet: &mut [u8], difference: u32) {
    let len = packet.len();
    if let Some(icrc) = packet.last_chunk_mut::<4>()
        && len >= BTH + 4
    {
        let change = crc::roll(difference, len - 4);
        *icrc = (u32::from_le_bytes(*icrc) ^ change).to_le_bytes();
    }
}

/// What changes in ICRCs when packets travel on another path.
#[derive(Clone, Copy, Debug)]
pub struct PathChange(u32);

impl PathChange {
    /// Changes the ICRC at the end of `packet` (BTH to ICRC), which was computed for the path before and
    /// Identification 0, into that for the other path and the Identification `ident` (0 over IPv6); and back.
    #[inline]
    pub fn apply(&self, ident: u16, packet: &mut [u8]) {
        change_icrc(packet, self.0 ^ field(&V4_IDENT, ident));
    }
}

/// The ICRC that a whole captured packet should have, from its IP header (or GRH) on.
/// The last 4 bytes, where its own ICRC stands, are left out. Unlike [`IcrcSeed`] it
/// takes Identification, flags and lengths from the headers.
///
/// # Errors
/// Cut off, IPv4 options, or neither UDP nor (after a GRH) a BTH follows.
pub fn icrc_of_l3(bytes: &[u8]) -> Result<u32, ParseError> {
    // 8 bytes of ones in place of the LRH, then at most 48 bytes of IP and UDP.
    let mut head = [0xff; 8 + Ipv6::LEN + Udp::LEN];
    let len = match bytes.first() {
        Some(0x45) => mask_ipv4(bytes, &mut head)?,
        Some(b) if b >> 4 == 6 => mask_ipv6(bytes, &mut head)?,
        Some(b) if b >> 4 == 4 => return Err(ParseError::Unsupported(Layer::Ipv4)),
        Some(b) => return Err(ParseError::version(Layer::Ipv6, b >> 4)),
        None => return Err(ParseError::truncated(Layer::Ipv4, Ipv4::LEN, 0)),
    };
    let truncated = ParseError::truncated(Layer::Icrc, len + BTH + 4, bytes.len());
    let (covered, _icrc) = bytes[len..].split_last_chunk::<4>().ok_or(truncated)?;
    let (bth, rest) = covered.split_first_chunk::<BTH>().ok_or(truncated)?;
    let mut bth = *bth;
    bth[MASKED_BTH_BYTE] = 0xff;
    let state = crc::update(!0, &head[..8 + len]);
    Ok(!crc::update_long(crc::update_block(state, &bth), rest))
}

/// Copies IPv4 and UDP headers behind the 8 bytes of ones, the changing fields as
/// ones; returns their length.
fn mask_ipv4(bytes: &[u8], head: &mut [u8; 56]) -> Result<usize, ParseError> {
    const LEN: usize = Ipv4::LEN + Udp::LEN;
    let headers = bytes.first_chunk::<LEN>();
    let headers = headers.ok_or(ParseError::truncated(Layer::Udp, LEN, bytes.len()))?;
    if headers[9] != PROTOCOL_UDP {
        return Err(ParseError::not_roce(Layer::Ipv4, headers[9]));
    }
    head[8..8 + LEN].copy_from_slice(headers);
    // TOS, TTL, header checksum and UDP checksum.
    for at in [1, 8, 10, 11, 26, 27] {
        head[8 + at] = 0xff;
    }
    Ok(LEN)
}

/// The masked head of IPv6 and UDP, or of a GRH.
fn mask_ipv6(bytes: &[u8], head: &mut [u8; 56]) -> Result<usize, ParseError> {
    let truncated = |len| ParseError::truncated(Layer::Ipv6, len, bytes.len());
    let len = match *bytes.get(6).ok_or(truncated(Ipv6::LEN))? {
        PROTOCOL_UDP => Ipv6::LEN + Udp::LEN,
        NEXT_HEADER_BTH => Ipv6::LEN,
        other => return Err(ParseError::not_roce(Layer::Ipv6, other)),
    };
    head[8..8 + len].copy_from_slice(bytes.get(..len).ok_or(truncated(len))?);
    // Traffic class, flow label and hop limit; the version stays.
    head[8] |= 0x0f;
    for at in [1, 2, 3, 7] {
        head[8 + at] = 0xff;
    }
    if len > Ipv6::LEN {
        // The UDP checksum.
        head[8 + 46..].fill(0xff);
    }
    Ok(len)
}

fn put_ports(udp: &mut [u8], sport: u16, dport: u16) {
    udp[..2].copy_from_slice(&sport.to_be_bytes());
    udp[2..4].copy_from_slice(&dport.to_be_bytes());
    // The length is added by a table; the checksum counts as ones.
    udp[4..6].fill(0);
}
