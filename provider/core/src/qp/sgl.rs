//! Copies bytes between packets and scatter/gather lists, with each entry checked
//! against its MR every time: a region may be deregistered between two packets.

use crate::context::Env;
use crate::cq::CqSink;
use crate::error::Fault;
use crate::memory::{Memory, MemoryFault};
use crate::mr::{Access, AccessFault, MrSpan, MrTable, PdId};
use crate::work::Sge;

impl From<AccessFault> for Fault {
    /// A refused local access.
    fn from(fault: AccessFault) -> Fault {
        match fault {
            AccessFault::Key => Fault::LocalKey,
            AccessFault::Pd => Fault::LocalPd,
            AccessFault::Bounds => Fault::LocalBounds,
            AccessFault::Access => Fault::LocalAccess,
        }
    }
}

impl From<MemoryFault> for Fault {
    fn from(_: MemoryFault) -> Fault {
        Fault::LocalMemory
    }
}

/// Checks a whole list, before anything is sent from it or placed into it.
pub(crate) fn check(mrs: &MrTable, pd: PdId, sges: &[Sge], need: Access) -> Result<(), Fault> {
    for sge in sges {
        if sge.length > 0 {
            mrs.check_local(sge.lkey, pd, sge.addr, sge.length as usize, need)?;
        }
    }
    Ok(())
}

/// Fills `dst` with the list's bytes from `offset` on.
#[inline]
pub(crate) fn gather<M: Memory, C: CqSink>(
    env: &Env<'_, M, C>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    dst: &mut [u8],
) -> Result<(), Fault> {
    if let Some((sge, addr)) = only(sges, offset, dst.len()) {
        let (lkey, len) = (sge.lkey, dst.len());
        let span = env.mrs.check_local(lkey, pd, addr, len, Access::NONE)?;
        return Ok(env.memory.copy_out(span, dst)?);
    }
    let mut at = 0;
    walk(sges, offset, dst.len(), |sge, addr, len| {
        let span = env.mrs.check_local(sge.lkey, pd, addr, len, Access::NONE)?;
        env.memory.copy_out(span, &mut dst[at..at + len])?;
        at += len;
        Ok(())
    })
}

/// Places `src` into the list's bytes from `offset` on.
#[inline]
pub(crate) fn scatter<M: Memory, C: CqSink>(
    env: &Env<'_, M, C>,
    pd: PdId,
    sges: &[Sge],
    offset: u64,
    src: &[u8],
) -> Result<(), Fault> {
    if !src.is_empty()
        && let Some((sge, addr)) = only(sges, offset, src.len())
    {
        let (lkey, len, need) = (sge.lkey, src.len(), Access::LOCAL_WRITE);
        let span = env.mrs.check_local(lkey, pd, addr, len, need)?;
        return Ok(env.memory.copy_in(span, src)?);
    }
    let mut at = 0;
    walk(sges, offset, src.len(), |sge, addr, len| {
        let span = env
            .mrs
            .check_local(sge.lkey, pd, addr, len, Access::LOCAL_WRITE)?;
        env.memory.copy_in(span, &src[at..at + len])?;
        at += len;
        Ok(())
    })
}

/// `len` bytes of the list from `offset` on, if they are in one entry, which has all of them, and may be accessed so.
#[inline]
pub(crate) fn span(
    mrs: &MrTable,
    pd: PdId,
    sges: &[Sge],
    (offset, len): (u64, usize),
    need: Access,
) -> Option<MrSpan> {
    let (sge, addr) = only(sges, offset, len)?;
    let span = mrs.check_local(sge.lkey, pd, addr, len, need).ok()?;
    // A region without bytes has fewer.
    (span.len() == len).then_some(span)
}

/// The entry of a list that has one only, as most have, and the address of the byte at `offset`, if `len` bytes are there from that on.
#[inline]
fn only(sges: &[Sge], offset: u64, len: usize) -> Option<(&Sge, u64)> {
    match sges {
        [sge] if offset + len as u64 <= u64::from(sge.length) => {
            Some((sge, sge.addr.checked_add(offset)?))
        }
        _ => None,
    }
}

/// Calls `piece` for each part of `len` bytes from `offset`; the caller has made
/// sure that the list is long enough.
#[inline]
fn walk(
    sges: &[Sge],
    mut offset: u64,
    mut len: usize,
    mut piece: impl FnMut(&Sge, u64, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for sge in sges {
        if len == 0 {
            break;
        }
        let room = u64::from(sge.length);
        if offset >= room {
            offset -= room;
            continue;
        }
        let take = ((room - offset) as usize).min(len);
        // An address beyond the end of the space is refused by the bounds check.
        let addr = sge.addr.checked_add(offset).ok_or(Fault::LocalBounds)?;
        piece(sge, addr, take)?;
        len -= take;
        offset = 0;
    }
    if len > 0 {
        Err(Fault::LocalBounds)
    } else {
        Ok(())
    }
}
