//! Multicast groups: datagrams to QPN 0xffffff go to every attached QP.

use core::net::IpAddr;
use std::collections::BTreeMap;

use urxe_wire::{Gid, Packet, Pkey, Qpn, Service};

use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::error::DropReason;
use crate::memory::Memory;
use crate::path::RxPath;
use crate::qp::Arrival;
use crate::shard::Shard;
use crate::table::QpIndex;

/// The group that a GID names: an IPv6 multicast address, or an IPv4 one in either of
/// the forms that are in use, `::ffff:239.1.2.3` (RoCEv2) and `ff0e::ffff:239.1.2.3`
/// (RoCEv1, and programs written for it). `None` if it is no group.
pub fn group_of(gid: Gid) -> Option<IpAddr> {
    const ROCE_V1_FORM: [u8; 12] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let addr = match gid.0.split_first_chunk::<12>() {
        Some((&ROCE_V1_FORM, &[a, b, c, d])) => IpAddr::from([a, b, c, d]),
        _ => IpAddr::from(gid),
    };
    addr.is_multicast().then_some(addr)
}

/// Why a QP could not be attached or detached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McastError {
    /// The address is not a group's.
    #[error("{0} is not a multicast address")]
    NotAGroup(IpAddr),
    /// Only datagrams go to groups.
    #[error("only QPs of type UD can be attached to a multicast group")]
    NotDatagrams,
    /// It was not attached.
    #[error("the QP is not attached to {0}")]
    NotAttached(IpAddr),
    /// There are enough groups.
    #[error("QPs are attached to {0} groups already")]
    TooManyGroups(usize),
    /// No such QP.
    #[error("the QP does not exist")]
    NoQp,
}

/// Which QP is attached to which group.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<IpAddr, Vec<QpIndex>>,
    /// Addresses that packets of this shard's QPs come from.
    own: Vec<IpAddr>,
}

impl Groups {
    /// A QP is gone.
    pub(crate) fn forget(&mut self, index: QpIndex) {
        self.members.retain(|_, members| {
            members.retain(|&member| member != index);
            !members.is_empty()
        });
    }
}

impl Shard {
    /// Groups that QPs can be attached to at once.
    pub const GROUPS_MAX: usize = 256;

    /// Says which addresses packets of this shard come from, so that a QP that does not
    /// want its own datagrams back can tell them.
    pub fn set_own_addresses(&mut self, own: Vec<IpAddr>) {
        self.groups.own = own;
    }

    /// Attaches a QP to a group: it receives a copy of every datagram to it. To attach it
    /// again changes nothing. Returns true if it is the group's first member: then the
    /// caller must see to it that the group's packets arrive.
    ///
    /// # Errors
    /// [`McastError`]; nothing has changed.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_mcast(&mut self, index: QpIndex, group: IpAddr) -> Result<bool, McastError> {
        let qp = self.qps.at(index).ok_or(McastError::NoQp)?;
        if !group.is_multicast() {
            return Err(McastError::NotAGroup(group));
        }
        if qp.service != Service::Ud {
            return Err(McastError::NotDatagrams);
        }
        let groups = &mut self.groups.members;
        if groups.len() >= Self::GROUPS_MAX && !groups.contains_key(&group) {
            return Err(McastError::TooManyGroups(groups.len()));
        }
        let members = groups.entry(group).or_default();
        if !members.contains(&index) {
            members.push(index);
            return Ok(members.len() == 1);
        }
        Ok(false)
    }

    /// Detaches a QP from a group. Returns true if the group has no members any more.
    ///
    /// # Errors
    /// [`McastError::NotAttached`].
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&mut self, index: QpIndex, group: IpAddr) -> Result<bool, McastError> {
        let absent = McastError::NotAttached(group);
        let members = self.groups.members.get_mut(&group).ok_or(absent)?;
        let place = members.iter().position(|&member| member == index);
        members.remove(place.ok_or(absent)?);
        let none_left = members.is_empty();
        if none_left {
            self.groups.members.remove(&group);
        }
        Ok(none_left)
    }

    /// True if a QP is attached to the group.
    pub fn has_members(&self, group: IpAddr) -> bool {
        self.groups.members.contains_key(&group)
    }

    /// Takes a packet to a number that no QP has: a group's, or an unknown one.
    #[cold]
    pub(crate) fn handle_stray<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        env: &mut Env<'_, M, C>,
    ) {
        if let Err(reason) = self.handle_multicast(path, ident_hint, packet, env) {
            self.common.stats.drop_packet(reason);
        }
    }

    fn handle_multicast<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        env: &mut Env<'_, M, C>,
    ) -> Result<(), DropReason> {
        let bth = packet.bth();
        let members = self.groups.members.get(&path.local).map_or(0, Vec::len);
        if bth.dest_qp != Qpn::MULTICAST || members == 0 {
            return Err(DropReason::NoQp);
        }
        if packet.info().service != Service::Ud {
            return Err(DropReason::Service);
        }
        if !bth.pkey.matches(Pkey::DEFAULT) {
            return Err(DropReason::Pkey);
        }
        let mut arrival = self.common.fit_datagram(path, ident_hint, packet.bytes())?;
        // Once for all members, if one of them would take it.
        if self.is_for_members(path.local, packet) {
            if !self.common.believes(arrival, env.now) {
                return Err(DropReason::Icrc);
            }
            arrival.is_believed = true;
        }
        for place in 0..members {
            let index = self.groups.members[&path.local][place];
            self.deliver_copy(index, arrival, packet, env);
        }
        Ok(())
    }

    /// True if a member of the group has the packet's Q_Key.
    fn is_for_members(&self, group: IpAddr, packet: &Packet<'_>) -> bool {
        let qkey = packet.deth().map(|deth| deth.qkey);
        let members = self.groups.members.get(&group);
        let mut qps = members.into_iter().flatten().map(|&i| self.qps.at(i));
        qps.any(|qp| qp.map(|qp| qp.attr.qkey) == qkey)
    }

    /// One attached QP's copy; what keeps this one from receiving it does not matter to
    /// the others.
    fn deliver_copy<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        arrival: Arrival<'_>,
        packet: &Packet<'_>,
        env: &mut Env<'_, M, C>,
    ) {
        let Some(qp) = self.qps.at_mut(index) else {
            return;
        };
        if !qp.state().takes_requests() {
            return self.common.stats.drop_packet(DropReason::State);
        }
        let is_own = qp.init.block_self_mcast_lb
            && packet.deth().is_some_and(|deth| deth.src_qp == qp.link.qpn)
            && self.groups.own.contains(&arrival.path.source);
        if is_own {
            return;
        }
        qp.handle_unreliable(arrival, packet, &mut Cx::new(env, &mut self.common));
        self.settle(index);
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use super::*;

    #[test]
    fn gids_of_groups() {
        let gid = |text: &str| Gid(text.parse::<Ipv6Addr>().expect("an address").octets());
        let group = |text| group_of(gid(text)).map(|addr| addr.to_string());
        assert_eq!(group("::ffff:239.1.2.3").as_deref(), Some("239.1.2.3"));
        assert_eq!(group("ff0e::ffff:239.1.2.3").as_deref(), Some("239.1.2.3"));
        assert_eq!(group("ff12::17").as_deref(), Some("ff12::17"));
        assert_eq!(group("::ffff:10.1.2.3"), None);
        assert_eq!(group("ff0e::ffff:10.1.2.3"), None);
        assert_eq!(group("fd00::1"), None);
    }
}
