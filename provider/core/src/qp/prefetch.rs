//! A software prefetch of a QP, without unsafe code.
//!
//! Where thousands of QPs take turns, each packet finds its QP out of the cache: a dozen lines, and the code asks for
//! them one after the other, each time waiting for memory. Asked for all at once, and for all packets of a batch,
//! they come at once.
//! (Safe Rust has no prefetch instruction; a load that nothing waits for does the same. `urxe scale` shows what it
//! is worth.)

use core::hint::black_box;

use super::Qp;

/// With fewer QPs they all stay in the cache, and asking is in vain.
pub(crate) const MANY: usize = 256;

impl Qp {
    /// Reads a field of each cache line that a packet may need. Nothing waits for them.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let Qp {
            req, resp, attr, ..
        } = self;
        let state = attr.qp_state as u64;
        let req = u64::from(req.retry.waits_for_rnr())
            ^ req.sq.tail()
            ^ u64::from(req.sq.len())
            ^ u64::from(req.next_psn.get())
            ^ u64::from(req.read_chunk);
        let resp = u64::from(resp.ack.is_owed())
            ^ resp.rq.prefetch()
            ^ u64::from(resp.replay.is_due())
            ^ u64::from(resp.nak_owed.is_some());
        let rest = u64::from(self.link.mtu)
            ^ u64::from(self.link.dest.source_port)
            ^ u64::from(self.share.owes)
            ^ u64::from(self.init.sq_sig_all);
        black_box(state ^ req ^ resp ^ rest);
    }
}
