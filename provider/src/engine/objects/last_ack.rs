//! What a QP says before it goes.

use urxe_core::table::QpIndex;
use urxe_core::{Driver, LAST_ACK_COPIES};

use crate::engine::drive::shard_state::ShardState;

impl ShardState {
    /// What a QP owes leaves now: an ACK that was held back is owed all the same, for without it the peer's last message, which
    /// this side has completed, would fail there. Where packets were lost before, it may be lost too, and leaves some times more.
    pub(super) fn say_last_ack(&mut self, qp: QpIndex) {
        self.shard.owe_unasked(qp);
        let mut copies = 0..LAST_ACK_COPIES;
        while self.transmit(Driver::Visitor)
            && copies.next().is_some()
            && self.shard.owe_last_ack(qp)
        {}
    }
}
