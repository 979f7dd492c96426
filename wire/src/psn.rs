//! 24-bit serial numbers: the only place that masks them.

use core::fmt;
use core::num::NonZeroU32;
use core::ops::{Add, Sub};

const MASK: u32 = 0xff_ffff;
const HALF: u32 = 1 << 23;
/// Set in all of them, so that none is 0: an `Option` of one takes no more room. Differences do not see it.
const PRESENT: u32 = 1 << 24;

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The number 0.
            pub const ZERO: $name = $name::new(0);

            /// Takes the low 24 bits.
            #[inline]
            pub const fn new(number: u32) -> $name {
                $name(NonZeroU32::new(number & MASK | PRESENT).expect("a bit is set"))
            }

            /// The number.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0.get() & MASK
            }

            /// The number after this one.
            #[inline]
            pub const fn next(self) -> $name {
                self.add(1)
            }

            /// The number before this one.
            #[inline]
            pub const fn prev(self) -> $name {
                $name::new(self.0.get().wrapping_sub(1))
            }

            /// `count` numbers on, around the end.
            #[inline]
            pub const fn add(self, count: u32) -> $name {
                $name::new(self.0.get().wrapping_add(count))
            }

            /// How many steps lead from `earlier` to here, modulo 2^24.
            #[inline]
            pub const fn distance_from(self, earlier: $name) -> u32 {
                self.0.get().wrapping_sub(earlier.0.get()) & MASK
            }

            /// The signed distance from `other`, in -2^23..2^23.
            #[inline]
            pub const fn diff(self, other: $name) -> i32 {
                ((self.0.get().wrapping_sub(other.0.get()) << 8) as i32) >> 8
            }

            /// True if this comes before `other`, in serial order.
            #[inline]
            pub const fn is_before(self, other: $name) -> bool {
                self.0.get().wrapping_sub(other.0.get()) & HALF != 0
            }

            /// True if this comes after `other`, in serial order.
            #[inline]
            pub const fn is_after(self, other: $name) -> bool {
                self.diff(other) > 0
            }
        }

        impl Default for $name {
            #[inline]
            fn default() -> $name {
                $name::ZERO
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
                $name::new(self.0.get().wrapping_sub(count))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.get())
            }
        }

        /// In decimal, as Wireshark shows it.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.get())
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
