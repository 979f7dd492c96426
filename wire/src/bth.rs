//! Base transport header: the 12 bytes that every packet begins with.

use crate::field::fields;
use crate::ids::{Pkey, Qpn};
use crate::opcode::Opcode;
use crate::psn::Psn;

/// Length in bytes.
pub const BTH_LEN: usize = 12;

fields! {
    /// Base transport header.
    Bth, BTH_LEN, pub fn parse;
    /// The opcode of the packet.
    opcode: Opcode = 8;
    /// Raise an event at the receiver.
    solicited: bool = 1;
    /// Migration state; adapters set it unless a path migrates. Ignored on receipt.
    mig_req: bool = 1;
    /// Bytes of padding after the payload, 0..=3. [`crate::PacketWriter`] sets it.
    pad_count: u8 = 2;
    /// Transport header version: 0.
    tver: u8 = 4;
    /// Partition key.
    pkey: Pkey = 16;
    /// Forward congestion (base transports leave it 0).
    fecn: bool = 1;
    /// Backward congestion: set in a CNP.
    becn: bool = 1;
    /// Reserved 6 bits beside FECN and BECN; sent as 0.
    reserved6: u8 = 6;
    /// Destination QP.
    dest_qp: Qpn = 24;
    /// Please acknowledge.
    ack_req: bool = 1;
    /// Reserved 7 bits beside AckReq; sent as 0.
    reserved7: u8 = 7;
    /// Packet sequence number.
    psn: Psn = 24;
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
}
