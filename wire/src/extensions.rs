//! The extension headers, and a table of them for code that has something to do with each.

use crate::field::fields;
use crate::ids::{Qkey, Qpn, Rkey};
use crate::psn::Msn;
use crate::syndrome::Syndrome;

fields! {
    /// Datagram extended transport header.
    Deth, 8, pub fn parse;
    /// Queue key.
    qkey: Qkey = 32;
    /// Reserved byte; sent as 0.
    reserved: u8 = 8;
    /// Source QP.
    src_qp: Qpn = 24;
}

fields! {
    /// XRC extended transport header.
    XrcEth, 4, pub fn parse;
    /// Reserved byte; sent as 0.
    reserved: u8 = 8;
    /// Number of the shared receive queue.
    srqn: Qpn = 24;
}

fields! {
    /// RDMA extended transport header: where a READ or WRITE goes.
    Reth, 16, pub fn parse;
    /// Virtual address of the first byte.
    va: u64 = 64;
    /// Remote key.
    rkey: Rkey = 32;
    /// Length of the whole message.
    dma_len: u32 = 32;
}

fields! {
    /// Atomic extended transport header. On the wire the swap value stands before the compare value.
    AtomicEth, 28, pub fn parse;
    /// Virtual address, a multiple of 8.
    va: u64 = 64;
    /// Remote key.
    rkey: Rkey = 32;
    /// Value to swap in, or to add.
    swap_add: u64 = 64;
    /// Value to compare with; 0 for fetch-and-add.
    compare: u64 = 64;
}

fields! {
    /// Acknowledge extended transport header.
    Aeth, 4, pub fn parse;
    /// Acknowledged, not ready, or refused.
    syndrome: Syndrome = 8;
    /// Messages that the responder has completed.
    msn: Msn = 24;
}

fields! {
    /// Atomic acknowledge extended transport header.
    AtomicAckEth, 8, pub fn parse;
    /// The 8 bytes of memory before the operation.
    original: u64 = 64;
}

fields! {
    /// Invalidate extended transport header.
    Ieth, 4, pub fn parse;
    /// Remote key to invalidate.
    rkey: Rkey = 32;
}

/// Calls a macro with all extension headers, in the order of the wire: method, type, and place in
/// [`crate::Headers`].
macro_rules! for_extensions {
    ($each:ident) => {
        $each! {
            deth: crate::Deth = DETH;
            xrceth: crate::XrcEth = XRCETH;
            feth: crate::Feth = FETH;
            reth: crate::Reth = RETH;
            atomic_eth: crate::AtomicEth = ATOMIC_ETH;
            aeth: crate::Aeth = AETH;
            atomic_ack_eth: crate::AtomicAckEth = ATOMIC_ACK_ETH;
            imm: crate::ImmDt = IMM;
            ieth: crate::Ieth = IETH;
        }
    };
}

pub(crate) use for_extensions;
