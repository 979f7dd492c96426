//! `rdma_set_option`.

use core::ffi::{c_int, c_void};

use urxe::cm::CmOption;

use super::id::Id;
use crate::errno::{Errno, minus_one};
use crate::layout::rdma_cm_id;
use crate::object::Object;

/// `RDMA_OPTION_ID`, the one level with settings that RoCE has.
const LEVEL_ID: c_int = 0;
const TOS: c_int = 0;
const REUSEADDR: c_int = 1;
const AFONLY: c_int = 2;
const ACK_TIMEOUT: c_int = 3;

pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    if optval.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: an id and a value of the length that is told, by the rules of the function.
    let (id, option) = unsafe { (Id::of(id), parse(level, optname, optval, optlen)) };
    minus_one(option.and_then(|option| Ok(id.urxe.set_option(option)?)))
}

/// # Safety
/// So many readable bytes.
unsafe fn parse(
    level: c_int,
    optname: c_int,
    value: *const c_void,
    len: usize,
) -> Result<CmOption, Errno> {
    // SAFETY: the caller's promise.
    let byte = || (len == 1).then(|| unsafe { value.cast::<u8>().read() });
    let flag = || {
        // SAFETY: as above.
        let number =
            (len == size_of::<c_int>()).then(|| unsafe { value.cast::<c_int>().read_unaligned() });
        number.map(|number| number != 0)
    };
    let option = match (level, optname) {
        (LEVEL_ID, TOS) => byte().map(CmOption::Tos),
        (LEVEL_ID, REUSEADDR) => flag().map(CmOption::ReuseAddr),
        (LEVEL_ID, AFONLY) => flag().map(CmOption::AfOnly),
        (LEVEL_ID, ACK_TIMEOUT) => byte().map(CmOption::AckTimeout),
        _ => return Err(Errno(libc::ENOSYS)),
    };
    option.ok_or(Errno::INVAL)
}
