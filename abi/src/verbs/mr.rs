//! Memory regions.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};

use urxe::Access;

use crate::errno::{Errno, number, pointer};
use crate::layout::{ibv_mr, ibv_pd};
use crate::object::{Mr, Pd, Users, delete, new};

/// Rights that mean something here: local and remote, and the two of FLUSH.
const RIGHTS: u32 = 0xf | 0x300;
/// `IBV_ACCESS_HUGETLB`: about how memory is mapped, which nobody looks at.
const HUGETLB: u32 = 1 << 7;
/// `IBV_ACCESS_ZERO_BASED`
const ZERO_BASED: u32 = 1 << 5;
/// `IBV_ACCESS_OPTIONAL_RANGE`: may be ignored.
const OPTIONAL: u32 = 0x3ff0_0000;

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the same rules.
    unsafe { register(pd, addr, length, addr as u64, access as u32) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the same rules.
    unsafe { register(pd, addr, length, iova, access as u32) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the same rules.
    unsafe { register(pd, addr, length, iova, access) }
}

/// # Safety
/// As `ibv_reg_mr` wants it: memory that stays mapped.
unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: a PD, by the rules of the function.
    let owner = unsafe { Pd::of(pd) };
    let iova = if access & ZERO_BASED == 0 { iova } else { 0 };
    let rights = check_access(access);
    let urxe = rights.and_then(|access| {
        // SAFETY: the program keeps the memory mapped, or finds its requests failing; C knows no references.
        unsafe { owner.urxe.reg_raw(addr.cast(), length, iova, access) }.map_err(Errno::from)
    });
    pointer(urxe.map(|urxe| {
        owner.users.add();
        new(Mr {
            ibv: UnsafeCell::new(ibv_mr {
                // SAFETY: the PD's part of the program, whose context never changes.
                context: unsafe { (*owner.ibv.get()).context },
                pd,
                addr,
                length,
                handle: 0,
                lkey: urxe.lkey().0,
                rkey: urxe.rkey().0,
            }),
            urxe,
            users: Users::default(),
        })
    }))
}

/// What is neither known nor optional is refused.
fn check_access(access: u32) -> Result<Access, Errno> {
    let known = RIGHTS | HUGETLB | ZERO_BASED | OPTIONAL;
    if access & !known != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    Ok(Access(access & RIGHTS))
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: a region, by the rules of the function.
    let object = unsafe { Mr::of(mr) };
    if let Err(busy) = object.users.check_none() {
        return number(Err(busy));
    }
    // SAFETY: its PD cannot be destroyed before it.
    unsafe { Pd::of((*object.ibv.get()).pd) }.users.remove();
    // SAFETY: nobody uses it any more, by the rules of the function.
    unsafe { delete::<Mr>(mr) };
    0
}
