//! What Linux's rxe repeats of a READ: a part of the request, which begins no earlier than the part that it repeated last. It drops
//! any other without a word.

use std::collections::BTreeMap;

use urxe_wire::{Operation, Packet};

/// Packets of a READ request's answer.
const PACKET: u32 = 1024;

/// A request, by its first PSN.
#[derive(Debug)]
struct Asked {
    end: u32,
    /// Where the last repetition began.
    begin: u32,
}

/// The READ requests that came to a peer. PSNs do not wrap in a test.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    asked: BTreeMap<u32, Asked>,
}

impl Repeats {
    /// True if the packet is a request that the peer drops.
    pub(crate) fn refuse(&mut self, bytes: &[u8]) -> bool {
        let packet = Packet::parse(bytes).expect("shards send packets");
        let Some(reth) = packet
            .reth()
            .filter(|_| packet.info().operation == Operation::ReadRequest)
        else {
            return false;
        };
        let begin = packet.bth().psn.get();
        let end = begin + reth.dma_len.div_ceil(PACKET).max(1);
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
