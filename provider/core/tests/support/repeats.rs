//! What Linux's rxe repeats of a READ: a part of the request, which begins no earlier than the part that it repeated last. It drops
//! any other without a word.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

use std::collections::BTreeMap;

use urxe_wire::{Operation, Packet, Psn};

/// A request.
#[derive(Debug)]
struct Asked {
    end: u32,
    /// Where the last repetition began.
    begin: u32,
}

/// The READ requests that came to a peer, by the number of their first packet.
#[derive(Debug)]
pub struct Repeats {
    mtu: u32,
    /// The PSN of packet 0.
    first: Psn,
    asked: BTreeMap<u32, Asked>,
}

impl Repeats {
    pub fn new(mtu: u32, first: Psn) -> Repeats {
        Repeats {
            mtu,
            first,
            asked: BTreeMap::new(),
        }
    }

    /// True if the packet is a request that the peer drops.
    pub fn refuse(&mut self, bytes: &[u8]) -> bool {
        let packet = Packet::parse(bytes).expect("shards send packets");
        let Some(reth) = packet
            .reth()
            .filter(|_| packet.info().operation == Operation::ReadRequest)
        else {
            return false;
        };
        let begin = packet.bth().psn.distance_from(self.first);
        let end = begin + reth.dma_len.div_ceil(self.mtu).max(1);
        let before = self.asked.range_mut(..=begin).next_back();
        match before.filter(|(_, asked)| begin < asked.end) {
            Some((_, asked)) if begin < asked.begin || end > asked.end => true,
            Some((_, asked)) => {
                asked.begin = begin;
                false
            }
            None => {
                self.asked.insert(begin, Asked { end, begin });
                false
            }
        }
    }
}
