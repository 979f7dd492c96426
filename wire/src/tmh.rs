//! The headers of tag matching, with which the payload of a SEND begins (`infiniband/tm_types.h`).
//! To the transport they are payload.

use crate::field::fields;
use crate::ids::Rkey;

fields! {
    /// Tag-matching header: the first bytes of every message of tag matching.
    Tmh, 16, pub fn parse;
    /// What kind of message it is, as [`TmhOp`] has it.
    opcode: u8 = 8;
    /// Reserved 24 bits; sent as 0.
    reserved: u32 = 24;
    /// The sender's own; the receiver's program gets it.
    app_ctx: u32 = 32;
    /// What it is matched by.
    tag: u64 = 64;
}

fields! {
    /// Rendezvous header: where the message is in its sender's memory.
    Rvh, 16, pub fn parse;
    /// Address of the first byte.
    va: u64 = 64;
    /// The key to READ it with.
    rkey: Rkey = 32;
    /// Bytes of the message.
    len: u32 = 32;
}

/// Kinds of messages of tag matching, with the numbers of `enum ibv_tmh_op`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum TmhOp {
    /// Nothing after the kind is looked at: the message goes to an ordinary receive.
    NoTag = 0,
    /// An [`Rvh`] follows: the receiver READs the message.
    Rndv = 1,
    /// The message of a rendezvous was READ. An [`Rvh`] follows, that of the request.
    Fin = 2,
    /// The message follows.
    Eager = 3,
}

impl TmhOp {
    /// The kind with this number.
    #[inline]
    pub const fn from_number(number: u8) -> Option<TmhOp> {
        match number {
            0 => Some(TmhOp::NoTag),
            1 => Some(TmhOp::Rndv),
            2 => Some(TmhOp::Fin),
            3 => Some(TmhOp::Eager),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_laid_out_as_in_the_c_structs() {
        let tmh = Tmh {
            opcode: TmhOp::Eager as u8,
            reserved: 0,
            app_ctx: 0x0102_0304,
            tag: 0x1112_1314_1516_1718,
        };
        let bytes = [
            3, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
        ];
        assert_eq!(tmh.emit(), bytes);
        assert_eq!(Tmh::parse(&bytes), tmh);
        let rvh = Rvh {
            va: 0x2122_2324_2526_2728,
            rkey: Rkey(0x3132_3334),
            len: 0x4142_4344,
        };
        let bytes = [
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42,
            0x43, 0x44,
        ];
        assert_eq!(rvh.emit(), bytes);
        assert_eq!(Rvh::parse(&bytes), rvh);
    }

    #[test]
    fn kinds_have_the_numbers_of_verbs() {
        let known = [TmhOp::NoTag, TmhOp::Rndv, TmhOp::Fin, TmhOp::Eager];
        for (number, op) in known.into_iter().enumerate() {
            assert_eq!(op as usize, number);
            assert_eq!(TmhOp::from_number(number as u8), Some(op));
        }
        assert_eq!(TmhOp::from_number(4), None);
    }
}
