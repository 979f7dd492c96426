//! 24-bit serial numbers: the only place that masks them.

use core::fmt;
use core::ops::{Add, Sub};

const MASK: u32 = 0xff_ffff;
const HALF: u32 = 1 << 23;

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// The number 0.
            pub const ZERO: $name = $name(0);

            /// Takes the low 24 bits.
            #[inline]
            pub const fn new(number: u32) -> $name {
                $name(number & MASK)
            }

            /// The number.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The number after this one.
            #[inline]
            pub const fn next(self) -> $name {
                self.add(1)
            }

            /// The number before this one.
            #[inline]
            pub const fn prev(self) -> $name {
                $name::new(self.0.wrapping_sub(1))
            }

            /// `count` numbers on, around the end.
            #[inline]
            pub const fn add(self, count: u32) -> $name {
                $name::new(self.0.wrapping_add(count))
            }

            /// How many steps lead from `earlier` to here, modulo 2^24.
            #[inline]
            pub const fn distance_from(self, earlier: $name) -> u32 {
                self.0.wrapping_sub(earlier.0) & MASK
            }

            /// The signed distance from `other`, in -2^23..2^23.
            #[inline]
            pub const fn diff(self, other: $name) -> i32 {
                ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
            }

            /// True if this comes before `other`, in serial order.
            #[inline]
            pub const fn is_before(self, other: $name) -> bool {
                self.0.wrapping_sub(other.0) & HALF != 0
            }

            /// True if this comes after `other`, in serial order.
            #[inline]
            pub const fn is_after(self, other: $name) -> bool {
                self.diff(other) > 0
            }
        }

        impl Add<u32> for $name {
            type Output = $name;
            #[inline]
            fn add(self, count: u32) -> $name {
                $name::add(self, count)
            }
        }

        impl Sub<u32> for $name {
            type Output = $name;
            #[inline]
            fn sub(self, count: u32) -> $name {
                $name::new(self.0.wrapping_sub(count))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        /// In decimal, as Wireshark shows it.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

serial! {
    /// Packet sequence number.
    Psn
}
serial! {
    /// Message sequence number; send sequence numbers are of the same kind.
    Msn
}
