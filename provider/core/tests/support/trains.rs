//! Packets that arrive together and were one train are handled as one.

use core::sync::atomic::AtomicU32;

use urxe_core::{Env, MiddlePackets, RxBytes, RxPath, Shard};

use super::{Cqs, ROWS, Travelling, VecMemory};

/// How the middle of a message is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Each packet by itself.
    None,
    /// In rows.
    Own,
    /// In rows, out of memory that others may write to.
    Shared,
}

/// Packets to one node, all as long as the first one, and with Identifications in a row.
pub struct Train {
    pub(super) to: usize,
    first: u16,
    size: usize,
    bytes: Vec<u8>,
}

impl Train {
    pub(super) fn of(packet: Travelling) -> Train {
        Train {
            to: packet.to,
            first: packet.ident,
            size: packet.bytes.len(),
            bytes: packet.bytes,
        }
    }

    /// Of these packets, to that node.
    pub fn of_all(to: usize, packets: &[Vec<u8>]) -> Train {
        Train {
            to,
            first: 0,
            size: packets[0].len(),
            bytes: packets.concat(),
        }
    }

    /// Takes the next packet, or gives it back if it is none of the train.
    pub(super) fn push(&mut self, packet: Travelling) -> Result<(), Travelling> {
        let next = usize::from(self.first) + self.bytes.len() / self.size;
        let follows = (packet.to, usize::from(packet.ident)) == (self.to, next);
        if !follows || packet.bytes.len() != self.size {
            return Err(packet);
        }
        self.bytes.extend(packet.bytes);
        Ok(())
    }

    /// Has a shard take it, as a driver does.
    pub(super) fn handle(
        &self,
        path: &RxPath,
        shard: &mut Shard,
        env: &mut Env<'_, VecMemory, Cqs>,
    ) {
        let mut at = 0;
        while at * self.size < self.bytes.len() {
            let rest = &self.bytes[at * self.size..];
            let words: Vec<AtomicU32> = match ROWS.get() {
                Rows::Shared => words(rest).collect(),
                _ => Vec::new(),
            };
            let rest = MiddlePackets {
                bytes: match ROWS.get() {
                    Rows::Shared => RxBytes::Shared(&words),
                    _ => RxBytes::Own(rest),
                },
                size: self.size,
                stride: self.size,
                place: self.first + at as u16,
            };
            if ROWS.get() != Rows::None && rest.is_likely() {
                at += shard.handle_middle(path, rest, env);
            }
            let place = self.first + at as u16;
            if let Some(packet) = self.bytes.get(at * self.size..(at + 1) * self.size) {
                shard.handle_one_of(path, place, packet, env);
            }
            at += 1;
        }
        shard.settle_rest();
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = AtomicU32> {
    let chunks = bytes.as_chunks().0.iter();
    chunks.map(|chunk| AtomicU32::new(u32::from_ne_bytes(*chunk)))
}
