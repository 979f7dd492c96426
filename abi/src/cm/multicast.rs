//! Multicast groups of ids.

use core::ffi::{c_int, c_void};
use core::net::IpAddr;

use urxe::cm::EventParam;

use super::address::read;
use super::id::Id;
use crate::errno::{Errno, minus_one};
use crate::layout::{rdma_cm_id, rdma_cm_join_mc_attr_ex};
use crate::object::Object;

/// A group that an id asked for.
pub(super) struct Group {
    addr: IpAddr,
    /// The id's QP gets its messages.
    is_attached: bool,
}

pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an id and an address, by the rules of the function.
    minus_one(unsafe { read(addr).and_then(|addr| Id::of(id).join(addr.ip(), context)) })
}

pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    const ADDRESS: u32 = 1 << 0;
    const JOIN_FLAGS: u32 = 1 << 1;
    /// The number of the first one that there is not: full members, and those that only send.
    const RESERVED: u32 = 2;
    // SAFETY: null, or attributes, by the rules of the function.
    let Some(attr) = (unsafe { attr.as_ref() }) else {
        return minus_one(Err(Errno::INVAL));
    };
    if attr.comp_mask & !(ADDRESS | JOIN_FLAGS) != 0 || attr.join_flags >= RESERVED {
        return minus_one(Err(Errno::NOT_SUPPORTED));
    }
    if attr.comp_mask != ADDRESS | JOIN_FLAGS {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: an id and an address, by the rules of the function.
    minus_one(unsafe { read(attr.addr).and_then(|addr| Id::of(id).join(addr.ip(), context)) })
}

impl Id {
    fn join(&self, addr: IpAddr, context: *mut c_void) -> Result<(), Errno> {
        let token = context.expose_provenance() as u64;
        self.state().groups.push(Group {
            addr,
            is_attached: false,
        });
        if let Err(error) = self.urxe.join_multicast(addr, token) {
            self.take_group(addr);
            return Err(error.into());
        }
        self.finish()
    }

    fn take_group(&self, addr: IpAddr) -> Option<Group> {
        let groups = &mut self.state().groups;
        let index = groups.iter().rposition(|group| group.addr == addr)?;
        Some(groups.remove(index))
    }

    fn leave(&self, addr: IpAddr) -> Result<(), Errno> {
        let group = self.take_group(addr).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        if let Some(qp) = self.qp().filter(|_| group.is_attached) {
            qp.urxe.detach_mcast(addr.into())?;
        }
        Ok(self.urxe.leave_multicast(addr)?)
    }
}

/// The id is a member: so is its QP.
pub(super) fn joined(id: &Id, with: &EventParam) -> Result<(), Errno> {
    let (EventParam::Ud(ud), Some(qp)) = (with, id.qp()) else {
        return Ok(());
    };
    let gid = urxe::Gid::from(ud.ah_attr.remote);
    qp.urxe.attach_mcast(gid)?;
    let mut state = id.state();
    let same = |group: &&mut Group| urxe::Gid::from(group.addr) == gid;
    if let Some(group) = state.groups.iter_mut().find(same) {
        group.is_attached = true;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
) -> c_int {
    // SAFETY: an id and an address, by the rules of the function.
    minus_one(unsafe { read(addr).and_then(|addr| Id::of(id).leave(addr.ip())) })
}
