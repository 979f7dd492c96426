//! The table of live objects: whether a program's pointer is one of them.
//!
//! Linux finds objects by their handles, and says `ENOENT` of one that is gone. Here calls that make something of an
//! object, change it or destroy it look at this table first. The data path does not: it goes by the pointer.

use core::alloc::Layout;
use core::any::TypeId;
use core::ffi::c_int;
use std::alloc::dealloc;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use crate::errno::{Errno, number};
use crate::lock::lock;
use crate::object::{Kind, Object, new};

/// In a tree, which has no memory left when thousands of objects are gone.
struct Table {
    objects: BTreeMap<usize, Entry>,
    /// Memory of objects that are gone, the latest last.
    gone: VecDeque<Memory>,
}

struct Entry {
    kind: TypeId,
    handle: u32,
}

struct Memory {
    addr: *mut u8,
    layout: Layout,
}

// SAFETY: the program has given it up, and the table alone has its address.
unsafe impl Send for Memory {}

/// For so many the memory stays as it was: functions of the C header read an object's context before they call the
/// library, and its address is no other object's so soon.
const GONE_MAX: usize = 64;

fn table() -> MutexGuard<'static, Table> {
    static TABLE: Mutex<Table> = Mutex::new(Table {
        objects: BTreeMap::new(),
        gone: VecDeque::new(),
    });
    lock(&TABLE)
}

impl Table {
    /// As the kernel says it: `ENOENT` if there is none, `EINVAL` if it is of another kind.
    fn find<T: Kind>(&self, ptr: *mut T::C) -> Result<(), Errno> {
        let entry = self.objects.get(&ptr.addr()).ok_or(Errno::NO_ENTRY)?;
        if entry.kind != TypeId::of::<T>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: an object in the table lives, and stays as long as that is locked.
        if unsafe { T::handle(ptr) } != entry.handle {
            return Err(Errno::NO_ENTRY);
        }
        Ok(())
    }
}

pub(crate) fn give<T: Object>(object: T) -> *mut T::C {
    let ptr = new(object);
    // SAFETY: just made.
    unsafe { add::<T>(ptr) };
    ptr
}

/// The object behind a program's pointer, if there is one.
///
/// # Safety
/// The object must not be destroyed while the reference is used.
pub(crate) unsafe fn find<'a, T: Object>(ptr: *mut T::C) -> Result<&'a T, Errno> {
    table().find::<T>(ptr)?;
    // SAFETY: it lives; and the caller's promise.
    Ok(unsafe { T::of(ptr) })
}

/// The object behind a program's pointer, which may be null: then there is none.
///
/// # Safety
/// As for [`find`].
pub(crate) unsafe fn find_some<'a, T: Object>(ptr: *mut T::C) -> Result<Option<&'a T>, Errno> {
    // SAFETY: the caller's promise.
    let found = (!ptr.is_null()).then(|| unsafe { find(ptr) });
    found.transpose()
}

/// Begins to destroy an object, if there is one and it may go: from now on nothing finds it.
///
/// # Safety
/// As for [`find`].
pub(crate) unsafe fn take<'a, T: Object>(ptr: *mut T::C) -> Result<&'a T, Errno> {
    let mut table = table();
    table.find::<T>(ptr)?;
    // SAFETY: it lives; and the caller's promise.
    let object = unsafe { T::of(ptr) };
    object.may_go()?;
    table.objects.remove(&ptr.addr());
    Ok(object)
}

/// Destroys an object, if there is one and it may go: `end` does what its kind asks for once nothing finds it. What it
/// was made of is free then ([`crate::object::Hold`]). Returns 0 or the number of an error, as C's functions do.
///
/// # Safety
/// The program does not use it again.
pub(crate) unsafe fn destroy<T: Object>(ptr: *mut T::C, end: impl FnOnce(&T)) -> c_int {
    // SAFETY: the caller's promise.
    let taken = unsafe { take::<T>(ptr) };
    number(taken.map(|object| {
        end(object);
        // SAFETY: taken just now, and the reference is not used again.
        unsafe { bury::<T>(ptr) };
    }))
}

/// Lets look-ups find an object; also one that was taken, and does not go after all.
///
/// # Safety
/// It lives.
pub(crate) unsafe fn add<T: Kind>(ptr: *mut T::C) {
    let entry = Entry {
        kind: TypeId::of::<T>(),
        // SAFETY: the caller's promise.
        handle: unsafe { T::handle(ptr) },
    };
    table().objects.insert(ptr.addr(), entry);
}

/// [`take`] of what may go at any time.
pub(crate) fn remove<T: Kind>(ptr: *mut T::C) -> Result<(), Errno> {
    let mut table = table();
    table.find::<T>(ptr)?;
    table.objects.remove(&ptr.addr());
    Ok(())
}

/// Ends an object that was taken.
///
/// # Safety
/// It was taken, and there is no reference to it any more.
pub(crate) unsafe fn bury<T: Object>(ptr: *mut T::C) {
    // SAFETY: the caller's promise; C's part is at offset 0.
    unsafe { bury_at(ptr.cast::<T>()) };
}

/// Buries an object that does not begin with C's part.
///
/// # Safety
/// As for [`bury`].
pub(crate) unsafe fn bury_at<T>(object: *mut T) {
    // SAFETY: the caller's promise: it is dropped once, and its memory is given back once.
    unsafe { object.drop_in_place() };
    let mut table = table();
    table.gone.push_back(Memory {
        addr: object.cast(),
        layout: Layout::new::<T>(),
    });
    if table.gone.len() > GONE_MAX
        && let Some(Memory { addr, layout }) = table.gone.pop_front()
    {
        // SAFETY: from the `Box` of an object that was dropped.
        unsafe { dealloc(addr, layout) };
    }
}

#[cfg(test)]
mod tests {
    use core::cell::UnsafeCell;

    use super::*;
    use crate::object::Users;

    /// Two kinds of objects, with a handle.
    #[repr(C)]
    struct Sort<const N: usize> {
        ibv: UnsafeCell<u32>,
        users: Users,
        _more: Box<u32>,
    }

    // SAFETY: repr(C), and `ibv` is first.
    unsafe impl<const N: usize> Object for Sort<N> {
        fn may_go(&self) -> Result<(), Errno> {
            self.users.check_none()
        }
    }

    impl<const N: usize> Kind for Sort<N> {
        type C = u32;

        unsafe fn handle(ptr: *const u32) -> u32 {
            // SAFETY: the caller's promise.
            unsafe { *ptr }
        }
    }

    fn make(handle: u32) -> *mut u32 {
        give(Sort::<0> {
            ibv: UnsafeCell::new(handle),
            users: Users::default(),
            _more: Box::new(handle),
        })
    }

    fn end(ptr: *mut u32) -> Result<(), Errno> {
        // SAFETY: found nowhere else.
        unsafe {
            take::<Sort<0>>(ptr)?;
            bury::<Sort<0>>(ptr);
        }
        Ok(())
    }

    #[test]
    fn an_object_is_found_by_its_kind_and_handle_until_it_goes() {
        let ptr = make(7);
        // SAFETY: it goes below, and the references are not kept.
        unsafe {
            assert!(find::<Sort<0>>(ptr).is_ok());
            assert_eq!(find::<Sort<1>>(ptr).err(), Some(Errno::INVAL));
            ptr.write(8);
            assert_eq!(find::<Sort<0>>(ptr).err(), Some(Errno::NO_ENTRY));
            ptr.write(7);
            let users = &Sort::<0>::of(ptr).users;
            users.add();
            assert_eq!(take::<Sort<0>>(ptr).err(), Some(Errno::BUSY));
            users.remove();
        }
        assert_eq!(end(ptr), Ok(()));
        assert_eq!(end(ptr), Err(Errno::NO_ENTRY));
        // SAFETY: as above.
        assert!(unsafe { find::<Sort<0>>(ptr) }.is_err());
    }

    #[test]
    fn an_address_is_not_used_again_so_soon_and_memory_is_given_back_in_the_end() {
        let gone = make(0);
        assert_eq!(end(gone), Ok(()));
        // The other test ends an object too.
        for handle in 1..GONE_MAX as u32 / 2 {
            let ptr = make(handle);
            assert_ne!(ptr, gone);
            // SAFETY: its memory stays as it was.
            assert_eq!(unsafe { *gone }, 0);
            assert_eq!(end(ptr), Ok(()));
        }
        (0..GONE_MAX as u32).for_each(|handle| assert_eq!(end(make(handle)), Ok(())));
        assert!(table().gone.len() <= GONE_MAX);
    }
}
