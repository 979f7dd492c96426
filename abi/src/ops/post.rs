//! `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::{MaybeUninit, offset_of};
use core::{iter, ptr, slice};

use urxe::{
    BadWr, Error, Qkey, Qpn, RecvWr, Rkey, SendFlags, SendWr, SendWrFields, Sge, WrData, WrOpcode,
};

use crate::errno::Errno;
use crate::layout::{array, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq};
use crate::object::{Ah, Names, Object, Qp, Srq};
use crate::verbose::invalid_wr;
use crate::verbs::mw::bind_request;

/// Flags of a request that mean something beside INLINE.
const KNOWN_FLAGS: SendFlags =
    SendFlags(SendFlags::FENCE.0 | SendFlags::SIGNALED.0 | SendFlags::SOLICITED.0);

/// `IBV_WR_BIND_MW`
const BIND_MW: c_int = 8;

/// Most inline bytes of a request: what several entries are gathered into.
pub(crate) const INLINE_MAX: usize = 1024;

// The engine takes C's scatter/gather lists as they are.
const _: () = {
    assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a live QP, by the rules of `ibv_post_send`.
    let qp = unsafe { Qp::of(qp) };
    // SAFETY: a list of requests that is not changed meanwhile, by the same rules.
    let result = unsafe {
        if !wr.is_null() && (*wr).next.is_null() {
            post_one_send(qp, wr)
        } else {
            post_sends(qp, wr)
        }
    };
    // SAFETY: the program passes a place for it.
    unsafe { report(result, bad_wr) }
}

/// Where posting stopped, and why.
type Posted<T> = Result<(), (*mut T, c_int)>;

/// # Safety
/// `bad_wr` must be null or point to a place for a pointer.
#[inline]
unsafe fn report<T>(result: Posted<T>, bad_wr: *mut *mut T) -> c_int {
    let Err((bad, errno)) = result else {
        return 0;
    };
    if !bad_wr.is_null() {
        // SAFETY: the caller's promise.
        unsafe { bad_wr.write(bad) };
    }
    errno
}

/// # Safety
/// As for [`send_wr`].
#[inline]
unsafe fn post_one_send(qp: &Qp, at: *mut ibv_send_wr) -> Posted<ibv_send_wr> {
    // SAFETY: the caller's promise.
    let wr = unsafe { &*at };
    if is_apart(wr) {
        // SAFETY: the caller's promise.
        return unsafe { post_apart(qp, at) };
    }
    // SAFETY: the caller's promise.
    let wr = unsafe { send_wr(qp, wr) }.map_err(|errno| (at, errno))?;
    qp.urxe
        .post_send(&wr)
        .map_err(|error| (at, Errno::from(error).0))
}

/// Requests that are posted alone: inline bytes in several places, which have to be brought together first, and binds,
/// after which the window has another key.
#[inline]
fn is_apart(wr: &ibv_send_wr) -> bool {
    wr.send_flags & SendFlags::INLINE.0 != 0 && wr.num_sge > 1 || wr.opcode == BIND_MW
}

/// # Safety
/// As for [`send_wr`].
#[cold]
unsafe fn post_apart(qp: &Qp, at: *mut ibv_send_wr) -> Posted<ibv_send_wr> {
    // SAFETY: the caller's promise.
    unsafe {
        match (*at).opcode {
            BIND_MW => post_bind(qp, &*at).map_err(|errno| (at, errno)),
            _ => post_gathered(qp, at),
        }
    }
}

/// # Safety
/// As for [`send_wr`].
unsafe fn post_bind(qp: &Qp, wr: &ibv_send_wr) -> Result<(), c_int> {
    let bind = &wr.bind_mw;
    // SAFETY: a live window and a live region, or null, by the caller's promise.
    let fields = unsafe { bind_request(qp, wr.wr_id, bind.mw, bind.rkey, &bind.bind_info) }?;
    let flags = SendFlags(wr.send_flags & KNOWN_FLAGS.0);
    let posted = qp
        .urxe
        .post_send(&SendWr::from(SendWrFields { flags, ..fields }));
    posted.map_err(|error| Errno::from(error).0)?;
    // SAFETY: as above; the program does not touch the window during this call.
    unsafe { (*bind.mw).rkey = fields.rkey.0 };
    Ok(())
}

/// # Safety
/// As for [`send_wr`].
unsafe fn post_gathered(qp: &Qp, at: *mut ibv_send_wr) -> Posted<ibv_send_wr> {
    // SAFETY: the caller's promise.
    let wr = unsafe { &*at };
    let mut bytes = [0; INLINE_MAX];
    // SAFETY: the caller's promise.
    let length = unsafe { gather(wr, &mut bytes) }.map_err(|errno| (at, errno))?;
    let mut whole = ibv_sge {
        addr: bytes.as_ptr().expose_provenance() as u64,
        length: length as u32,
        lkey: 0,
    };
    let one = ibv_send_wr {
        sg_list: &raw mut whole,
        num_sge: 1,
        ..*wr
    };
    // SAFETY: as before, with inline bytes of our own.
    let wr = unsafe { send_wr(qp, &one) }.map_err(|errno| (at, errno))?;
    qp.urxe
        .post_send(&wr)
        .map_err(|error| (at, Errno::from(error).0))
}

/// # Safety
/// As for [`send_wr`].
unsafe fn gather(wr: &ibv_send_wr, bytes: &mut [u8; INLINE_MAX]) -> Result<usize, c_int> {
    let mut length = 0;
    // SAFETY: the caller's promise.
    for sge in unsafe { sges(wr.sg_list, wr.num_sge) }? {
        let part = sge.length as usize;
        let room = bytes
            .get_mut(length..)
            .and_then(|rest| rest.get_mut(..part));
        let room = room.ok_or_else(|| invalid_wr("more inline bytes than any QP takes"))?;
        // SAFETY: inline data is readable at these addresses, by the caller's promise.
        unsafe { ptr::copy(address(sge.addr), room.as_mut_ptr(), part) };
        length += part;
    }
    Ok(length)
}

/// A list of more than one: its packets leave together.
///
/// # Safety
/// As for [`send_wr`], for each of the list.
unsafe fn post_sends(qp: &Qp, first: *mut ibv_send_wr) -> Posted<ibv_send_wr> {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        if is_apart(unsafe { &*next }) {
            // SAFETY: the caller's promise.
            next = unsafe {
                post_one_send(qp, next)?;
                (*next).next
            };
            continue;
        }
        // As many as can be posted as they are, each translated when its turn comes.
        let (from, mut bad) = (next, None);
        let wrs = iter::from_fn(|| {
            // SAFETY: the caller's promise.
            let wr = unsafe { next.as_ref() }.filter(|wr| !is_apart(wr))?;
            // SAFETY: the caller's promise.
            match unsafe { send_wr(qp, wr) } {
                Ok(sent) => {
                    next = wr.next;
                    Some(sent)
                }
                Err(errno) => {
                    bad = Some((next, errno));
                    None
                }
            }
        });
        let posted = qp.urxe.post_send_iter(wrs);
        // SAFETY: the caller's promise.
        posted.map_err(|bad| unsafe { at_index(from, |wr| wr.next, bad) })?;
        if let Some(bad) = bad {
            return Err(bad);
        }
    }
    Ok(())
}

/// # Safety
/// A list as a post takes it, at least as long as the refused request's place says.
#[cold]
unsafe fn at_index<T>(first: *mut T, next: fn(&T) -> *mut T, bad: BadWr) -> (*mut T, c_int) {
    // SAFETY: the caller's promise.
    let at = (0..bad.index).fold(first, |at, _| unsafe { at.as_ref() }.map_or(first, next));
    (at, Errno::from(Error::from(bad)).0)
}

/// C's request as the engine's.
///
/// # Safety
/// The request must be what `ibv_post_send` takes: its list of entries readable, its inline data too.
#[inline]
unsafe fn send_wr<'a>(qp: &Qp, wr: &'a ibv_send_wr) -> Result<SendWr<'a>, c_int> {
    let Some(opcode) = opcode(wr.opcode) else {
        return local_wr(wr);
    };
    // SAFETY: the caller's promise.
    let sges = unsafe { sges(wr.sg_list, wr.num_sge) }?;
    let data = if wr.send_flags & SendFlags::INLINE.0 == 0 {
        WrData::Sges(sges)
    } else {
        // SAFETY: the caller's promise. Several entries were made one before.
        WrData::Inline(sges.first().map_or(&[], |sge| unsafe { bytes(sge) }))
    };
    let (remote_addr, rkey, compare_add, swap) = remote(wr, opcode);
    let with_inv = opcode == WrOpcode::SendWithInv;
    let posted = SendWr::from(SendWrFields {
        flags: SendFlags(wr.send_flags & KNOWN_FLAGS.0),
        remote_addr,
        rkey: Rkey(if with_inv { wr.imm_data } else { rkey }),
        imm: wr.imm_data.to_ne_bytes(),
        compare_add,
        swap,
        ..SendWrFields::new(wr.wr_id, opcode, data)
    });
    match qp.names {
        Names::Nothing => Ok(posted),
        // SAFETY: the caller's promise.
        Names::Datagram => unsafe { with_ud(posted, wr) },
        Names::Srq => Ok(posted.to_srq(Qpn::new(wr.qp_type))),
    }
}

/// Requests that concern no peer, but for binds: taking back memory windows.
#[cold]
fn local_wr(wr: &ibv_send_wr) -> Result<SendWr<'_>, c_int> {
    const LOCAL_INV: c_int = 7;
    if wr.opcode != LOCAL_INV {
        return Err(invalid_wr("an opcode that there is not"));
    }
    let fields = SendWrFields::local_inv(wr.wr_id, Rkey(wr.imm_data));
    let flags = SendFlags(wr.send_flags & KNOWN_FLAGS.0);
    Ok(SendWr::from(SendWrFields { flags, ..fields }))
}

/// # Safety
/// As for [`send_wr`], of a datagram QP.
unsafe fn with_ud<'a>(posted: SendWr<'a>, wr: &'a ibv_send_wr) -> Result<SendWr<'a>, c_int> {
    // SAFETY: any bytes are numbers and a pointer.
    let ud = unsafe { wr.wr.ud };
    if ud.ah.is_null() {
        return Err(invalid_wr("a datagram without an address handle"));
    }
    // SAFETY: a live address handle, by the caller's promise.
    let ah = unsafe { Ah::of(ud.ah) };
    Ok(posted.ud_addr(&ah.urxe, Qpn::new(ud.remote_qpn), Qkey(ud.remote_qkey)))
}

/// Remote address, rkey, and an atomic's operands.
#[inline]
fn remote(wr: &ibv_send_wr, opcode: WrOpcode) -> (u64, u32, u64, u64) {
    if opcode.is_atomic() {
        // SAFETY: all of the union's members are numbers and pointers, for which any bytes will do.
        let a = unsafe { wr.wr.atomic };
        (a.remote_addr, a.rkey, a.compare_add, a.swap)
    } else {
        // SAFETY: as above.
        let r = unsafe { wr.wr.rdma };
        (r.remote_addr, r.rkey, 0, 0)
    }
}

#[inline]
fn opcode(number: c_int) -> Option<WrOpcode> {
    Some(match number {
        0 => WrOpcode::RdmaWrite,
        1 => WrOpcode::RdmaWriteWithImm,
        2 => WrOpcode::Send,
        3 => WrOpcode::SendWithImm,
        4 => WrOpcode::RdmaRead,
        5 => WrOpcode::AtomicCmpAndSwp,
        6 => WrOpcode::AtomicFetchAndAdd,
        9 => WrOpcode::SendWithInv,
        15 => WrOpcode::AtomicWrite,
        _ => return None,
    })
}

/// More entries than any QP takes.
const SGES_MAX: usize = 64;

thread_local! {
    /// Entries of a list that is not aligned.
    static ALIGNED: UnsafeCell<[MaybeUninit<Sge>; SGES_MAX]> = const { UnsafeCell::new([MaybeUninit::uninit(); SGES_MAX]) };
}

/// A list in a packed structure (libiscsi), which C on this processor takes as any other: its entries in another place.
///
/// # Safety
/// As for [`sges`]; and what is returned is used before this is called again in the thread.
#[cold]
unsafe fn aligned<'a>(list: *const ibv_sge, count: usize) -> Result<&'a [Sge], c_int> {
    if count > SGES_MAX {
        return Err(invalid_wr("more entries than any QP takes"));
    }
    ALIGNED.with(|place| {
        let place = place.get().cast::<Sge>();
        // SAFETY: as many are readable, by the caller's promise, and there is room for them. What was there is not used any more.
        unsafe {
            ptr::copy_nonoverlapping(list.cast::<u8>(), place.cast(), count * size_of::<Sge>());
            Ok(slice::from_raw_parts(place, count))
        }
    })
}

/// # Safety
/// `count` entries must be readable at `list`, unless there are none; and of those of one call none are used when the next one is made.
#[inline]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(_) if list.is_null() => Err(invalid_wr("sg_list is null, and num_sge is not 0")),
        // SAFETY: the caller's promise.
        Ok(count) if !list.is_aligned() => unsafe { aligned(list, count) },
        // SAFETY: the caller's promise; the layouts are the same (asserted above).
        Ok(count) => Ok(unsafe { slice::from_raw_parts(list.cast(), count) }),
        Err(_) => Err(invalid_wr("num_sge is negative")),
    }
}

/// # Safety
/// The bytes must be readable.
#[inline]
unsafe fn bytes(sge: &Sge) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { array(address(sge.addr), sge.length as usize) }
}

fn address(number: u64) -> *const u8 {
    ptr::with_exposed_provenance(number as usize)
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a live QP, by the rules of `ibv_post_recv`.
    let qp = unsafe { Qp::of(qp) };
    // SAFETY: a list of requests that is not changed meanwhile, and a place for the bad one, by the same rules.
    unsafe { report(post_recvs(wr, |wrs| qp.urxe.post_recv_iter(wrs)), bad_wr) }
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a live SRQ, by the rules of `ibv_post_srq_recv`.
    let srq = unsafe { Srq::of(srq) };
    // SAFETY: as in `post_recv`.
    unsafe { report(post_recvs(wr, |wrs| srq.urxe.post_recv_iter(wrs)), bad_wr) }
}

/// The valid requests at the beginning of a list.
struct Recvs {
    next: *mut ibv_recv_wr,
    /// The first that is not valid ends the list.
    bad: Option<*mut ibv_recv_wr>,
}

impl Iterator for &mut Recvs {
    type Item = RecvWr<'static>;

    #[inline]
    fn next(&mut self) -> Option<RecvWr<'static>> {
        // SAFETY: the list that the program passed. The post copies what it gets before it returns, so
        // nothing lives longer than the list.
        let wr = unsafe { self.next.as_ref() }?;
        // SAFETY: as above.
        let Ok(sges) = (unsafe { sges(wr.sg_list, wr.num_sge) }) else {
            self.bad = Some(self.next);
            return None;
        };
        self.next = wr.next;
        Some(RecvWr::new(wr.wr_id, sges))
    }
}

/// # Safety
/// `first` must be a list as `ibv_post_recv` takes it.
#[inline]
unsafe fn post_recvs(
    first: *mut ibv_recv_wr,
    post: impl FnOnce(&mut Recvs) -> Result<(), BadWr>,
) -> Posted<ibv_recv_wr> {
    let mut recvs = Recvs {
        next: first,
        bad: None,
    };
    // SAFETY: the caller's promise.
    post(&mut recvs).map_err(|bad| unsafe { at_index(first, |wr| wr.next, bad) })?;
    match recvs.bad {
        None => Ok(()),
        Some(bad) => Err((bad, libc::EINVAL)),
    }
}
