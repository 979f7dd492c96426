//! Sets of flags, with the bits that verbs give them.

/// What all such sets can do.
macro_rules! bit_set {
    ($name:ident) => {
        impl $name {
            /// True if every bit of `other` is set.
            #[inline]
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = $name;
            #[inline]
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}
