//! What the peer of a QP decides: whether packets go to it through memory, whether it takes pairs, and whether it is on this host at all.

use std::net::IpAddr;

use urxe_core::qpn_table::QpnChunk;
use urxe_core::table::QpIndex;
use urxe_wire::Qpn;

use crate::engine::drive::shard_state::ShardState;

impl ShardState {
    /// A QP has got its peer.
    #[cold]
    pub(in crate::engine) fn note_peer(&mut self, index: QpIndex, remote: IpAddr, dest: Qpn) {
        let has_ring = self.prepare(remote, QpnChunk::of(dest));
        let membership = self.membership.as_ref();
        let found = membership.and_then(|it| it.find(dest, remote, self.now));
        self.shard
            .set_near(index, found.map(|found| found.direct_port));
        if self.faults().is_some() {
            // They meet packets one by one, and an ICRC shows what they did.
            return self.shard.set_takes_pairs(index, false);
        }
        self.shard.set_takes_pairs(
            index,
            has_ring || found.is_some_and(|found| found.gets_trains_whole),
        );
        // What is sealed has no ICRC either: the tag is in its place.
        let has_no_icrc = has_ring || self.is_sealed();
        self.shard.set_in_memory(index, has_no_icrc);
    }
}
