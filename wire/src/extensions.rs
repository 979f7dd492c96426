//! The extension headers, as a table for code that has something to do with each.

/// Calls a macro with all extension headers, in the order of the wire: method, type, and place in
/// [`crate::Headers`].
macro_rules! for_extensions {
    ($each:ident) => {
        $each! {
            deth: crate::deth::Deth = DETH;
            xrceth: crate::xrceth::XrcEth = XRCETH;
            feth: crate::feth::Feth = FETH;
            reth: crate::reth::Reth = RETH;
            atomic_eth: crate::atomic_eth::AtomicEth = ATOMIC_ETH;
            aeth: crate::aeth::Aeth = AETH;
            atomic_ack_eth: crate::atomic_ack_eth::AtomicAckEth = ATOMIC_ACK_ETH;
            imm: crate::immdt::ImmDt = IMM;
            ieth: crate::ieth::Ieth = IETH;
        }
    };
}

pub(crate) use for_extensions;
