//! Memory regions.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::sync::Arc;

use urxe::{Access, Advice, Rereg};

use crate::errno::{Errno, number, pointer};
use crate::layout::{ibv_mr, ibv_pd, ibv_sge};
use crate::live::{self, bury};
use crate::object::{Hold, Memory, Mr, MrState, Object, Pd};
use crate::ops::sges;

/// `IBV_ACCESS_*` that are known; those beyond are optional, or refused.
const KNOWN: u32 = 0x3ff;
/// `IBV_ACCESS_OPTIONAL_RANGE`: may be ignored.
const OPTIONAL: u32 = 0x3ff0_0000;
/// `IBV_REREG_MR_CHANGE_*`
const CHANGE_TRANSLATION: c_int = 1 << 0;
const CHANGE_PD: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;
/// `IBV_REREG_MR_ERR_INPUT`, `IBV_REREG_MR_ERR_CMD`: nothing has changed.
const ERR_INPUT: c_int = -1;
const ERR_CMD: c_int = -4;

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
    let owner = unsafe { Pd::find(pd) };
    pointer(owner.and_then(|owner| {
        let access = check_access(access)?;
        if !access.contains(Access::ON_DEMAND) {
            check_mapped(addr, length)?;
        }
        // SAFETY: the program keeps the memory mapped, or finds its requests failing; C knows no references.
        let memory = unsafe {
            if addr.is_null() && length == usize::MAX && access.contains(Access::ON_DEMAND) {
                Memory::All(owner.urxe.reg_implicit(access)?)
            } else {
                let addr = addr.cast();
                Memory::Region(owner.urxe.reg_raw(addr, length, iova, access)?)
            }
        };
        Ok(give(pd, owner, memory, addr, length))
    }))
}

/// `EFAULT` if there is no memory at some place of a range. A driver would find out when it pins the pages.
fn check_mapped(addr: *mut c_void, length: usize) -> Result<(), Errno> {
    // SAFETY: takes a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096);
    let offset = addr as usize % page;
    let mut left = length.saturating_add(offset);
    let mut at = addr.wrapping_byte_sub(offset);
    // What mincore says of the pages is not looked at. (msync is cheaper, but is a use of the bytes to Valgrind.)
    let mut pages = [0_u8; 16 << 10];
    while left > 0 {
        let part = left.min(pages.len() * page);
        // SAFETY: the system looks at the range itself, and writes a byte for each page of it.
        let code = unsafe { libc::mincore(at, part, pages.as_mut_ptr()) };
        if code != 0 && Errno::last() == Errno(libc::ENOMEM) {
            return Err(Errno(libc::EFAULT));
        }
        at = at.wrapping_byte_add(part);
        left -= part;
    }
    Ok(())
}

/// What is neither known nor optional is refused.
fn check_access(access: u32) -> Result<Access, Errno> {
    if access & !(KNOWN | OPTIONAL) != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    Ok(Access(access & KNOWN))
}

pub(super) fn give(
    pd: *mut ibv_pd,
    owner: &Pd,
    memory: Memory,
    addr: *mut c_void,
    length: usize,
) -> *mut ibv_mr {
    let (lkey, rkey) = match &memory {
        Memory::Region(mr) => (mr.lkey().0, mr.rkey().0),
        Memory::All(mr) => (mr.lkey().0, mr.rkey().0),
        // It has no rkey.
        Memory::Null(mr) => (mr.lkey().0, 0),
    };
    let hold = Hold::of(&owner.users);
    let state = Arc::new(MrState::new(lkey, rkey, length, memory, hold));
    owner
        .context()
        .registry()
        .mrs
        .insert(lkey, Arc::downgrade(&state));
    handle(pd, owner, addr, state)
}

/// A handle of a region, which may have others.
pub(super) fn handle(
    pd: *mut ibv_pd,
    owner: &Pd,
    addr: *mut c_void,
    state: Arc<MrState>,
) -> *mut ibv_mr {
    live::give(Mr {
        ibv: UnsafeCell::new(ibv_mr {
            context: owner.c_context(),
            pd,
            addr,
            length: state.length(),
            handle: state.lkey,
            lkey: state.lkey,
            rkey: state.rkey,
        }),
        state,
    })
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: a region, by the rules of the function.
    let object = match unsafe { live::take::<Mr>(mr) } {
        Ok(object) => object,
        Err(errno) => return number(Err(errno)),
    };
    let mut memory = object.state.lock();
    match memory.take() {
        Some((Memory::Region(region), pd)) => {
            if let Err((region, busy)) = region.dereg() {
                *memory = Some((Memory::Region(region), pd));
                // SAFETY: taken above.
                unsafe { live::add::<Mr>(mr) };
                return number(Err(busy.into()));
            }
        }
        Some(other) => drop(other),
        // By another handle, before. The number may be another region's now.
        None => {
            drop(memory);
            // SAFETY: the program does not use this handle again, by the rules of the function.
            unsafe { bury::<Mr>(mr) };
            return 0;
        }
    }
    drop(memory);
    object.context().registry().mrs.remove(&object.state.lkey);
    // SAFETY: it is no longer used, by the rules of the function.
    unsafe { bury::<Mr>(mr) };
    0
}

/// Keeps the keys. Returns 0, or one of `enum ibv_rereg_mr_err_code`, and `errno`.
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the same rules.
    let changed = unsafe { reregister(mr, flags, pd, addr, length, access as u32) };
    changed.map_or_else(
        |(code, errno)| {
            errno.set();
            code
        },
        |()| 0,
    )
}

/// # Safety
/// As `ibv_rereg_mr` wants it.
unsafe fn reregister(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
) -> Result<(), (c_int, Errno)> {
    let input = |errno| (ERR_INPUT, errno);
    // SAFETY: a region, by the rules of the function.
    let object = unsafe { Mr::find(mr) }.map_err(input)?;
    let has = |bit| flags & bit != 0;
    let is_known = flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) == 0 && flags != 0;
    let needs_memory = has(CHANGE_TRANSLATION) && (addr.is_null() || length == 0);
    if !is_known || needs_memory || (has(CHANGE_PD) && pd.is_null()) {
        return Err(input(Errno::INVAL));
    }
    if has(CHANGE_TRANSLATION) {
        check_mapped(addr, length).map_err(input)?;
    }
    let mut change = Rereg::new();
    if has(CHANGE_ACCESS) {
        change = change.access(check_access(access).map_err(input)?);
    }
    if has(CHANGE_PD) {
        // SAFETY: a PD, by the rules of the function.
        change = change.pd(&unsafe { Pd::of(pd) }.urxe);
    }
    if has(CHANGE_TRANSLATION) {
        // SAFETY: as in `register`.
        change = unsafe { change.raw(addr.cast(), length, addr as u64) };
    }
    let mut memory = object.state.lock();
    let changed = match memory.as_mut() {
        Some((Memory::Region(region), _)) => region.rereg(change).map_err(Errno::from),
        _ => Err(Errno::INVAL),
    };
    changed.map_err(|errno| (ERR_CMD, errno))?;
    // SAFETY: the program's part, which it does not touch during this call; and PDs, by the rules of the function.
    unsafe {
        let ibv = &mut *object.ibv.get();
        if has(CHANGE_PD) {
            if let Some((_, hold)) = memory.as_mut() {
                *hold = Hold::of(&Pd::of(pd).users);
            }
            ibv.pd = pd;
        }
        if has(CHANGE_TRANSLATION) {
            (ibv.addr, ibv.length) = (addr, length);
            object.state.set_length(length);
        }
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: a PD, by the rules of `ibv_alloc_null_mr`.
    let owner = unsafe { Pd::find(pd) };
    pointer(owner.and_then(|owner| {
        let memory = Memory::Null(owner.urxe.alloc_null_mr()?);
        Ok(give(pd, owner, memory, ptr::null_mut(), usize::MAX))
    }))
}

pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    const FLUSH: u32 = 1 << 0;
    let advice = match advice {
        0 => Advice::Prefetch,
        1 => Advice::PrefetchWrite,
        2 => Advice::PrefetchNoFault,
        _ => return number(Err(Errno::NOT_SUPPORTED)),
    };
    let count = c_int::try_from(count).unwrap_or(-1);
    if flags & !FLUSH != 0 || count <= 0 {
        return number(Err(Errno::INVAL));
    }
    // SAFETY: a PD and a list of entries, by the rules of `ibv_advise_mr`.
    let (owner, list) = unsafe { (Pd::of(pd), sges(list, count)) };
    number(list.map_err(Errno).and_then(|list| {
        let advised = owner.urxe.advise_mr(advice, list);
        advised.map_err(Errno::from)
    }))
}
