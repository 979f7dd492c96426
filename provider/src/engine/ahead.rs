//! What the engine fetches into the cache ahead of its turn, where there are [too many](Shard::has_many) QPs for the cache.

use urxe_core::Shard;
use urxe_core::table::QpIndex;

use crate::mem::many::{Steps, prefetch, prefetch_ahead};

/// The QP that a packet is for, of which the first bytes are here.
#[inline]
pub(in crate::engine) fn fetch_for_packet(shard: &Shard, packet: &[u8]) {
    if let Some(place) = shard.place_for(packet) {
        prefetch(place);
    }
}

/// Where the send that is posted after this one will be stored, if the thread goes through QPs in steps: `urxe scale` has 1.15 times
/// the rate so. (A receive is stored where one was taken a moment before.)
#[inline]
pub(in crate::engine) fn fetch_for_send(shard: &Shard, index: QpIndex) {
    thread_local! {
        static STEPS: [Steps; 2] = const { [const { Steps::new() }; 2] };
    }
    if let Some([wqe, inline]) = shard.places_of_next(index) {
        STEPS.with(|[wqes, inlines]| {
            prefetch_ahead(wqes, wqe);
            prefetch_ahead(inlines, inline);
        });
    }
}
