//! Base transport header: the 12 bytes that every packet begins with.

use crate::ids::{Pkey, Qpn};
use crate::opcode::Opcode;
use crate::psn::Psn;

/// Length in bytes.
pub const BTH_LEN: usize = 12;

/// Base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// The opcode of the packet.
    pub opcode: Opcode,
    /// Raise an event at the receiver.
    pub solicited: bool,
    /// Migration state; adapters set it unless a path migrates. Ignored on receipt.
    pub mig_req: bool,
    /// Bytes of padding after the payload, 0..=3. [`crate::PacketWriter`] sets it.
    pub pad_count: u8,
    /// Transport header version: 0.
    pub tver: u8,
    /// Partition key.
    pub pkey: Pkey,
    /// Forward congestion (base transports leave it 0).
    pub fecn: bool,
    /// Backward congestion: set in a CNP.
    pub becn: bool,
    /// Reserved 6 bits beside FECN and BECN; sent as 0.
    pub reserved6: u8,
    /// Destination QP.
    pub dest_qp: Qpn,
    /// Please acknowledge.
    pub ack_req: bool,
    /// Reserved 7 bits beside AckReq; sent as 0.
    pub reserved7: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header as urxe sends it: MigReq set as adapters do, the default P_Key, and
    /// everything else off.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            mig_req: true,
            pad_count: 0,
            tver: 0,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            reserved6: 0,
            dest_qp,
            ack_req: false,
            reserved7: 0,
            psn,
        }
    }

    /// Reads the 12 bytes.
    #[inline]
    pub const fn parse(b: &[u8; BTH_LEN]) -> Bth {
        Bth {
            opcode: Opcode(b[0]),
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad_count: (b[1] >> 4) & 3,
            tver: b[1] & 0xf,
            pkey: Pkey(u16::from_be_bytes([b[2], b[3]])),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            reserved6: b[4] & 0x3f,
            dest_qp: Qpn::new(u32::from_be_bytes([0, b[5], b[6], b[7]])),
            ack_req: b[8] & 0x80 != 0,
            reserved7: b[8] & 0x7f,
            psn: Psn::new(u32::from_be_bytes([0, b[9], b[10], b[11]])),
        }
    }

    /// The 12 bytes.
    #[inline]
    pub const fn emit(&self) -> [u8; BTH_LEN] {
        let [p0, p1] = self.pkey.0.to_be_bytes();
        let [_, q0, q1, q2] = self.dest_qp.get().to_be_bytes();
        let [_, s0, s1, s2] = self.psn.get().to_be_bytes();
        [
            self.opcode.0,
            (self.solicited as u8) << 7
                | (self.mig_req as u8) << 6
                | (self.pad_count & 3) << 4
                | self.tver & 0xf,
            p0,
            p1,
            (self.fecn as u8) << 7 | (self.becn as u8) << 6 | self.reserved6 & 0x3f,
            q0,
            q1,
            q2,
            (self.ack_req as u8) << 7 | self.reserved7 & 0x7f,
            s0,
            s1,
            s2,
        ]
    }
}
