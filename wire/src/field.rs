//! Fields of any number of bits at any bit of a message, and the macro that makes a
//! value struct of a list of them.
//!
//! Headers and messages are declared as consecutive fields, so that no bit can be left out: the
//! widths must add up to the message's length, which the compiler checks.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::ids::{Gid, Pkey, Qkey, Qpn, Rkey};
use crate::opcode::Opcode;
use crate::psn::{Msn, Psn};
use crate::syndrome::Syndrome;

/// A type that fields have.
pub(crate) trait Field: Copy {
    /// Reads `width` bits at `bit`, most significant first.
    fn read(bytes: &[u8], bit: usize, width: usize) -> Self;
    /// Writes them, over zeros.
    fn write(self, bytes: &mut [u8], bit: usize, width: usize);
}

/// Up to eight bytes as a number.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[8 - bytes.len()..].copy_from_slice(bytes);
    u64::from_be_bytes(all)
}

// Places and widths are constants where these are inlined: what is left of a field of whole bytes is a load or a store.

#[inline]
fn read_bits(bytes: &[u8], bit: usize, width: usize) -> u64 {
    let end = bit + width;
    let whole = number(&bytes[bit / 8..end.div_ceil(8)]);
    whole >> (end.next_multiple_of(8) - end) & u64::MAX >> (64 - width)
}

#[inline]
fn write_bits(bytes: &mut [u8], bit: usize, width: usize, value: u64) {
    let end = bit + width;
    let place = &mut bytes[bit / 8..end.div_ceil(8)];
    let value = (value & u64::MAX >> (64 - width)) << (end.next_multiple_of(8) - end);
    let whole = (number(place) | value).to_be_bytes();
    place.copy_from_slice(&whole[8 - place.len()..]);
}

impl Field for u64 {
    #[inline]
    fn read(bytes: &[u8], bit: usize, width: usize) -> u64 {
        read_bits(bytes, bit, width)
    }
    #[inline]
    fn write(self, bytes: &mut [u8], bit: usize, width: usize) {
        write_bits(bytes, bit, width, self);
    }
}

/// Whole bytes.
impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn read(bytes: &[u8], bit: usize, _width: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&bytes[bit / 8..bit / 8 + N]);
        out
    }
    #[inline]
    fn write(self, bytes: &mut [u8], bit: usize, _width: usize) {
        bytes[bit / 8..bit / 8 + N].copy_from_slice(&self);
    }
}

/// Makes a type a field that has the form of another one.
macro_rules! field_as {
    ($type:ty: $form:ty, $from:expr, $to:expr) => {
        impl crate::field::Field for $type {
            #[inline]
            fn read(bytes: &[u8], bit: usize, width: usize) -> $type {
                let from: fn($form) -> $type = $from;
                from(crate::field::Field::read(bytes, bit, width))
            }
            #[inline]
            fn write(self, bytes: &mut [u8], bit: usize, width: usize) {
                let to: fn($type) -> $form = $to;
                crate::field::Field::write(to(self), bytes, bit, width);
            }
        }
    };
}

pub(crate) use field_as;

field_as!(bool: u64, |v| v != 0, u64::from);
field_as!(u8: u64, |v| v as u8, u64::from);
field_as!(u16: u64, |v| v as u16, u64::from);
field_as!(u32: u64, |v| v as u32, u64::from);
field_as!(Ipv4Addr: u32, Ipv4Addr::from_bits, Ipv4Addr::to_bits);
field_as!(Qpn: u32, Qpn::new, Qpn::get);
field_as!(Psn: u32, Psn::new, Psn::get);
field_as!(Msn: u32, Msn::new, Msn::get);
field_as!(Qkey: u32, Qkey, |key| key.0);
field_as!(Rkey: u32, Rkey, |key| key.0);
field_as!(Opcode: u8, Opcode, |opcode| opcode.0);
field_as!(Syndrome: u8, Syndrome, |syndrome| syndrome.0);
field_as!(Pkey: u16, Pkey, |key| key.0);
field_as!(Gid: [u8; 16], Gid, |gid| gid.0);
field_as!(Ipv6Addr: [u8; 16], Ipv6Addr::from, |addr| addr.octets());

/// Declares a struct of consecutive fields, `name: type = width in bits`, with the function that reads it. Bits that are the
/// same in every value come first: they are written, and taken to be so when it is read.
macro_rules! fields {
    (
        $(#[$doc:meta])*
        $name:ident, $len:expr, $vis:vis fn $parse:ident
            $(, after $fixed:literal: $fixed_type:ty = $fixed_width:literal)?;
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $width:expr;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = assert!(0 $(+ $fixed_width)? $(+ $width)* == $len * 8, "fields and length disagree");

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;

            /// Reads the bytes. Every combination of bits is a value.
            #[inline]
            $vis fn $parse(bytes: &[u8; $len]) -> $name {
                let mut at = 0 $(+ $fixed_width)?;
                $(
                    let $field = crate::field::Field::read(bytes, at, $width);
                    at += $width;
                )*
                let _ = at;
                $name { $($field,)* }
            }

            /// The bytes.
            #[inline]
            pub fn emit(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                let mut at = 0;
                $(
                    let fixed: $fixed_type = $fixed;
                    crate::field::Field::write(fixed, &mut bytes, at, $fixed_width);
                    at += $fixed_width;
                )?
                $(
                    crate::field::Field::write(self.$field, &mut bytes, at, $width);
                    at += $width;
                )*
                let _ = at;
                bytes
            }
        }

        impl Default for $name {
            /// All bits 0.
            fn default() -> $name {
                $name::$parse(&[0; $len])
            }
        }
    };
}

pub(crate) use fields;
