//! Memory regions of numbers.

use core::marker::PhantomData;
use core::ops::{Deref, RangeBounds};

use memmap2::MmapMut;
use urxe_core::mr::Access;
use urxe_core::work::Sge;

use crate::error::Error;
use crate::mr::Mr;
use crate::pd::Pd;
use crate::remote_mr::{RemoteMr, bounds};

/// A number that a region can hold: every pattern of its bytes is one, also when a peer wrote it.
pub trait Element: Copy + private::Load {}

mod private {
    use crate::mr::Mr;

    pub trait Load {
        const SIZE: usize;
        /// Of exactly as many bytes.
        fn from_bytes(bytes: &[u8]) -> Self;
        fn load(mr: &Mr, offset: usize) -> Self;
        fn store(self, mr: &Mr, offset: usize);
    }
}

/// Numbers of up to four bytes, and of sixteen.
macro_rules! copied {
    ($($number:ty)*) => {$(
        impl Element for $number {}

        impl private::Load for $number {
            const SIZE: usize = size_of::<$number>();

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("SIZE bytes"))
            }

            #[track_caller]
            fn load(mr: &Mr, offset: usize) -> Self {
                let mut bytes = [0; size_of::<$number>()];
                mr.read(offset, &mut bytes);
                Self::from_ne_bytes(bytes)
            }

            #[track_caller]
            fn store(self, mr: &Mr, offset: usize) {
                mr.write(offset, &self.to_ne_bytes());
            }
        }
    )*};
}

/// Numbers of eight bytes.
macro_rules! words {
    ($($number:ty)*) => {$(
        impl Element for $number {}

        impl private::Load for $number {
            const SIZE: usize = 8;

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("SIZE bytes"))
            }

            fn load(mr: &Mr, offset: usize) -> Self {
                Self::from_ne_bytes(mr.load_u64(offset).to_ne_bytes())
            }

            fn store(self, mr: &Mr, offset: usize) {
                mr.store_u64(offset, u64::from_ne_bytes(self.to_ne_bytes()));
            }
        }
    )*};
}

copied!(u8 i8 u16 i16 u32 i32 f32 u128 i128);
words!(u64 i64 f64);

/// Registered memory that holds numbers, in the host's byte order: an [`Mr`] with indexes in place of offsets.
///
/// Peers may write at any time, so elements are loaded and stored by value. One of eight bytes is loaded and stored
/// whole, as by [`Mr::load_u64`]: so a counter can be polled on that a peer's atomics change.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.43".parse().unwrap())?;
/// # let pd = context.alloc_pd()?;
/// use urxe::Access;
///
/// let counters = pd.reg_array(&[0u64; 100], Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
/// counters.set(7, 42);
/// assert_eq!(counters.get(7), 42);
///
/// // What a peer needs for an atomic on element 7, and a work request to send elements 8 and 9:
/// let target = counters.remote(7..8);
/// let two = counters.sge(8..10);
/// assert_eq!((target.addr, target.len), (counters.addr() + 56, 8));
/// assert_eq!((two.addr, two.length), (counters.addr() + 64, 16));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MrArray<T> {
    mr: Mr,
    len: usize,
    elements: PhantomData<T>,
}

impl Pd {
    /// Registers memory that begins with a copy of these numbers, aligned to a page.
    ///
    /// # Errors
    /// When the rights contradict each other, or there is no room for more regions.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_array<T: Element>(
        &self,
        elements: &[T],
        access: Access,
    ) -> Result<MrArray<T>, Error> {
        // A mapping has at least one byte.
        let len = size_of_val(elements).max(1);
        let map = MmapMut::map_anon(len).map_err(Error::io("mapping memory"))?;
        let array = MrArray {
            mr: self.reg_mapped(map, access)?,
            len: elements.len(),
            elements: PhantomData,
        };
        for (index, &element) in elements.iter().enumerate() {
            array.set(index, element);
        }
        Ok(array)
    }
}

impl<T: Element> MrArray<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An element as it is now.
    ///
    /// # Panics
    /// If there is none of this index, as with slices.
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        T::load(&self.mr, self.offset(index))
    }

    /// Changes an element.
    ///
    /// # Panics
    /// If there is none of this index, as with slices.
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        value.store(&self.mr, self.offset(index));
    }

    /// The elements of a range as they are now, one after the other.
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Vec<T> {
        let (start, end) = bounds(range, self.len);
        (start..end).map(|index| self.get(index)).collect()
    }

    /// A scatter/gather entry for a range of elements.
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let (start, end) = bounds(range, self.len);
        self.mr.sge(start * T::SIZE..end * T::SIZE)
    }

    /// A range of elements, for peers: see [`Mr::remote`].
    ///
    /// # Panics
    /// If the range is not inside, as with slices.
    pub fn remote(&self, range: impl RangeBounds<usize>) -> RemoteMr {
        let (start, end) = bounds(range, self.len);
        self.mr.remote(start * T::SIZE..end * T::SIZE)
    }

    /// Deregisters the memory and gives the elements back, with what peers wrote until then.
    ///
    /// # Errors
    /// See [`Mr::dereg`]: the region comes back as one of bytes.
    pub fn into_vec(self) -> Result<Vec<T>, (Mr, Error)> {
        let bytes = self.mr.into_bytes()?;
        let elements = bytes.chunks_exact(T::SIZE).take(self.len);
        Ok(elements.map(T::from_bytes).collect())
    }

    #[track_caller]
    fn offset(&self, index: usize) -> usize {
        assert!(index < self.len, "element {index} of {}", self.len);
        index * T::SIZE
    }
}

/// The keys, and the bytes by their offsets.
impl<T> Deref for MrArray<T> {
    type Target = Mr;

    fn deref(&self) -> &Mr {
        &self.mr
    }
}
