//! Writes packets into the caller's buffer.

use crate::bth::{BTH_LEN, Bth};
use crate::extensions::for_extensions;
use crate::icrc::IcrcSeed;
use crate::opcode::OpcodeInfo;
use crate::packet::{ICRC_LEN, Packet};

/// Bytes of a packet with so much payload, from the BTH to the ICRC.
#[inline]
pub const fn packet_len(info: &OpcodeInfo, payload_len: usize) -> usize {
    info.header_len as usize + payload_len.next_multiple_of(4) + ICRC_LEN
}

/// Writes one packet, front to back, into a slice of exactly [`packet_len`] bytes.
/// Headers come in the order of [`crate::Headers::ORDER`].
///
/// # Panics
/// Methods panic when more is written than the slice holds: its length follows from
/// the opcode and the payload, so that is a bug of the caller.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> PacketWriter<'a> {
    /// Begins a packet. The BTH's pad count follows from the payload's length.
    #[inline]
    pub fn new(bytes: &'a mut [u8], bth: &Bth) -> PacketWriter<'a> {
        bytes[..BTH_LEN].copy_from_slice(&bth.emit());
        PacketWriter { bytes, at: BTH_LEN }
    }

    /// Takes room for the payload, to be filled in place.
    #[inline]
    pub fn payload_mut(&mut self, len: usize) -> &mut [u8] {
        let start = self.at;
        self.at += len;
        let pad = len.next_multiple_of(4) - len;
        self.bytes[1] = self.bytes[1] & !0x30 | (pad as u8) << 4;
        &mut self.bytes[start..start + len]
    }

    /// Adds padding and an ICRC for a packet that will travel under the IPv4
    /// Identification `ident`; returns the packet's length.
    #[inline]
    pub fn finish(self, seed: &IcrcSeed, ident: u16) -> usize {
        let (bytes, end) = self.pad();
        let icrc = seed.compute(ident, &bytes[..end]);
        bytes[end..].copy_from_slice(&icrc.to_le_bytes());
        bytes.len()
    }

    fn finish_into(self, icrc: [u8; ICRC_LEN]) -> &'a mut [u8] {
        let (bytes, end) = self.pad();
        bytes[end..].copy_from_slice(&icrc);
        bytes
    }

    #[inline]
    fn pad(self) -> (&'a mut [u8], usize) {
        let end = self.bytes.len() - ICRC_LEN;
        assert!(end - self.at < 4, "the slice has the packet's length");
        // Most have none, and a call to fill nothing costs as much as a header.
        if self.at != end {
            self.bytes[self.at..end].fill(0);
        }
        (self.bytes, end)
    }

    #[inline]
    fn put(&mut self, header: &[u8]) {
        self.bytes[self.at..self.at + header.len()].copy_from_slice(header);
        self.at += header.len();
    }
}

macro_rules! writers {
    ($($method:ident: $type:ty = $header:ident;)*) => {
        impl PacketWriter<'_> {
            $(
                #[doc = concat!("Adds the header ", stringify!($header), ".")]
                #[inline]
                pub fn $method(&mut self, header: &$type) {
                    self.put(&header.emit());
                }
            )*

            /// Adds all that another packet has.
            fn extensions_of(&mut self, packet: &Packet<'_>) {
                $(
                    if let Some(header) = packet.$method() {
                        self.$method(&header);
                    }
                )*
            }
        }
    };
}

for_extensions!(writers);

impl Packet<'_> {
    /// Writes the packet again, from the values of its headers, at the start of `out`,
    /// with its own padding and ICRC: a parsed packet gives the same bytes. Returns the
    /// length.
    ///
    /// # Panics
    /// If `out` is shorter than the packet.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.bytes().len();
        let mut writer = PacketWriter::new(&mut out[..len], &self.bth());
        writer.extensions_of(self);
        writer
            .payload_mut(self.payload().len())
            .copy_from_slice(self.payload());
        let bytes = writer.finish_into(self.icrc());
        let pad_at = len - ICRC_LEN - self.pad().len();
        bytes[pad_at..len - ICRC_LEN].copy_from_slice(self.pad());
        len
    }
}
