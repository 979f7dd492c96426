//! Congestion notification packet (RoCEv2 annex A17): asks a sender to slow down.

use crate::bth::Bth;
use crate::emit::PacketWriter;
use crate::icrc::IcrcSeed;
use crate::ids::Qpn;
use crate::opcode::Opcode;
use crate::psn::Psn;

/// Length of a CNP: BTH, 16 zero bytes and the ICRC.
pub const CNP_LEN: usize = 32;

/// The header of a CNP that slows down `dest_qp`: BECN set, nothing to acknowledge, a
/// PSN that belongs to no sequence. As a ConnectX-4 Lx sends it, MigReq is off.
pub const fn cnp_bth(dest_qp: Qpn) -> Bth {
    let mut bth = Bth::new(Opcode::CNP, dest_qp, Psn::ZERO);
    bth.mig_req = false;
    bth.becn = true;
    bth
}

/// A whole CNP.
pub fn cnp(dest_qp: Qpn, seed: &IcrcSeed, ident: u16) -> [u8; CNP_LEN] {
    let mut bytes = [0; CNP_LEN];
    let mut writer = PacketWriter::new(&mut bytes, &cnp_bth(dest_qp));
    writer.payload_mut(16).fill(0);
    writer.finish(seed, ident);
    bytes
}
