//! Multicast groups by RDMA-CM. On Ethernet no peer has to be asked: joining is an affair of
//! the host, and the events are its own.

use core::net::IpAddr;

use urxe_core::qp::attr::AddressVector;
use urxe_core::qp::state::QpType;
use urxe_wire::Qpn;

use super::error::CmError;
use super::event_kind::{EventKind, EventParam};
use super::id::Id;
use super::param::UdParam;
use super::qp::HOP_LIMIT;
use crate::error::Error;

impl Id {
    /// Joins a multicast group; [`EventKind::MulticastJoin`] says what to send with, and has
    /// `token`. An attached QP is attached to the group.
    ///
    /// # Errors
    /// [`CmError::State`] without a device, [`CmError::Member`]; or if it is no group.
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: IpAddr, token: u64) -> Result<(), Error> {
        let context = self.context()?;
        if self.qp_type() != QpType::Ud {
            return Err(CmError::State("groups are of datagrams").into());
        }
        if !group.is_multicast() {
            return Err(urxe_core::multicast::McastError::NotAGroup(group).into());
        }
        let (ah_attr, qkey) = {
            let mut state = self.state();
            if state.groups.contains(&group) {
                let is_member = true;
                return Err(CmError::Member { is_member, group }.into());
            }
            // Bound to a device by its own address, or by the way to a peer.
            let own = state.local.map(|addr| addr.ip());
            let fits = |addr: &IpAddr| addr.is_ipv4() == group.is_ipv4();
            let local = own.filter(|addr| fits(addr) && !addr.is_unspecified());
            let local = local.or_else(|| context.address_like(group));
            let local = local.ok_or(CmError::Family)?;
            state.groups.push(group);
            let ah_attr = AddressVector {
                local,
                remote: group,
                traffic_class: state.options.tos,
                hop_limit: HOP_LIMIT,
            };
            (ah_attr, state.qkey)
        };
        if let Some(qp) = self.attached()
            && let Err(error) = qp.attach_mcast(group.into())
        {
            self.state().groups.retain(|other| *other != group);
            return Err(error);
        }
        let param = UdParam {
            private_data: Vec::new(),
            ah_attr,
            qp_num: Qpn::MULTICAST,
            qkey,
            token,
        };
        self.tell(EventKind::MulticastJoin, 0, EventParam::Ud(param));
        Ok(())
    }

    /// Leaves it again.
    ///
    /// # Errors
    /// [`CmError::Member`].
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: IpAddr) -> Result<(), Error> {
        {
            let mut state = self.state();
            let place = state.groups.iter().position(|other| *other == group);
            let is_member = false;
            let place = place.ok_or(CmError::Member { is_member, group })?;
            state.groups.swap_remove(place);
        }
        match self.attached() {
            Some(qp) => qp.detach_mcast(group.into()),
            None => Ok(()),
        }
    }
}
