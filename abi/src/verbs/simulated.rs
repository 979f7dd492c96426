//! How the library for `LD_PRELOAD` asks a simulation for what is not about verbs (`preload/src/simulated`).

use core::slice;

use urxe::network::remote;

/// Joins the simulation; others are `urxe::network::remote`'s and the simulation's.
const JOIN: u32 = u32::MAX;

/// A number for what is asked for, three more, bytes that go and a place for bytes that come. The answer is 0 or more, or an error
/// number as `-errno`.
pub(crate) unsafe extern "C" fn urxe_simulated_call(
    number: u32,
    args: *const [u64; 3],
    bytes: *const u8,
    len: usize,
    out: *mut u8,
    room: usize,
) -> i64 {
    if number == JOIN {
        let joined = remote::join();
        return joined.map_or_else(|error| -i64::from(errno_of(&error)), |()| 0);
    }
    // SAFETY: three numbers, so many bytes and a place for so many that are not null, by the rules of the function.
    unsafe {
        let bytes = slice::from_raw_parts(bytes, len);
        remote::call(number, *args, bytes, slice::from_raw_parts_mut(out, room))
    }
}

fn errno_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}
