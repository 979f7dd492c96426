//! The structures of `infiniband/verbs.h` and `rdma/rdma_cma.h`, byte for byte.
//!
//! Programs reach into them: `ibv_poll_cq` and its like are inline functions of the header that call through
//! pointers in these structures. Names are those of the header. Sizes are asserted here, and a test compares every
//! offset with what a C compiler makes of the installed header.
//!
//! Structures that grew at their end over the releases have their newest form here. Old programs never see the
//! rest; where a program passes one in, it says how large its own is.

mod attrs;
mod cm;
#[allow(non_snake_case, reason = "fields are named as in the header")]
mod objects;
mod work;

#[cfg(test)]
mod tests;

pub(crate) use attrs::*;
pub(crate) use cm::*;
pub(crate) use objects::*;
pub(crate) use work::*;

/// A structure with numbers, pointers, and function pointers that may be null as its fields.
///
/// # Safety
/// All bytes zero must be a value of the type.
pub(crate) unsafe trait CStruct: Sized {
    /// For the test: name, offset and size of each field.
    #[cfg(test)]
    const FIELDS: &'static [(&'static str, usize, usize)];

    /// As `calloc` gives it.
    fn zeroed() -> Self {
        // SAFETY: the trait's promise.
        unsafe { core::mem::zeroed() }
    }
}

/// An array of C, which may be null if it has no entries.
///
/// # Safety
/// So many entries, which do not change meanwhile.
#[inline]
pub(crate) unsafe fn array<'a, T>(first: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first, len) }
}

/// An array to write to, which may be null if it has no entries.
///
/// # Safety
/// So many entries that no other code uses.
pub(crate) unsafe fn array_mut<'a, T>(first: *mut T, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(first, len) }
}

macro_rules! c_structs {
    (#![$of_all:meta] $($(#[$meta:meta])* struct $name:ident [$size:literal] { $($fields:tt)* })*) => {
        c_structs! { $(#[$of_all] $(#[$meta])* struct $name [$size] { $($fields)* })* }
    };
    ($($(#[$meta:meta])* struct $name:ident [$size:literal] {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub(crate) struct $name {
                $($(#[$field_meta])* pub(crate) $field: $type,)*
            }

            const _: () = assert!(size_of::<$name>() == $size, stringify!($name));

            // SAFETY: only numbers, raw pointers, arrays and structures of them, and options of function pointers.
            unsafe impl $crate::layout::CStruct for $name {
                #[cfg(test)]
                const FIELDS: &'static [(&'static str, usize, usize)] = &[
                    $((
                        stringify!($field),
                        core::mem::offset_of!($name, $field),
                        $crate::layout::size_of_field(|s: &$name| &raw const s.$field),
                    ),)*
                ];
            }
        )*

        /// Name, size and fields of each structure.
        #[cfg(test)]
        pub(super) const STRUCTS: &[super::tests::Struct] = &[
            $((stringify!($name), size_of::<$name>(), <$name as $crate::layout::CStruct>::FIELDS),)*
        ];
    };
}
use c_structs;

/// Size of the field that a projection gives.
#[cfg(test)]
const fn size_of_field<S, F>(_: fn(&S) -> *const F) -> usize {
    size_of::<F>()
}
