//! Creating, changing and destroying objects. These calls wait for the engine's lock:
//! what they change is no longer in use when they return.

mod agreeing;
pub(super) mod cm;
pub(super) mod handshakes;
pub(super) mod keys;
mod last_ack;
mod peer;
pub(super) mod privilege;
pub(super) mod purge;

use core::ops::Range;
use std::net::IpAddr;
use std::sync::Arc;

use urxe_core::congestion::{CongestionControl, CongestionError};
use urxe_core::qp::attr::{AddressVector, AttrMask, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::qpn_table::QpnChunk;
use urxe_core::{CreateQpError, Driver, ErrorDetail, QpInit};

use crate::engine::calls::inlets::QpSlot;
use crate::engine::calls::post::QpShared;
use crate::engine::carrier::sockets::ListensAt;
use crate::engine::drive::doorbell::Guard;
use crate::engine::drive::shard_state::ShardState;
use crate::engine::{Engine, ErrorKind};
use crate::error::Error;
use crate::limits::LIMITS;
use crate::network::Act;
use crate::queues::{CqCore, CqInit};

/// The bits of a traffic class that say whether switches may mark, and have marked,
/// congestion. Where a connection sets them, those of its packets are looked at.
const ECN_BITS: u8 = 3;

/// What failed when a socket does not report the traffic class of what it receives.
pub(in crate::engine) const REPORT_TOS: &str = "asking for the traffic class of packets";

/// Q_Keys with this bit are given to QPs by privileged programs only (IBTA 10.2.5).
const CONTROLLED_QKEY: u32 = 1 << 31;

impl Engine {
    pub(in crate::engine) fn enter(&self) -> Result<Guard<'_, ShardState>, Error> {
        self.check_process()?;
        let mut state = self.combiner.lock()?;
        state.start_turn();
        state.settle_strict();
        Ok(state)
    }

    /// Creates a QP; also returns where it is, if there are so many that it pays to know.
    pub(crate) fn create_qp(
        &self,
        init: &QpInit,
    ) -> Result<(Arc<QpShared>, Option<Range<usize>>), Error> {
        if init.qp_type == QpType::Ud {
            self.report_tos_of_all()?;
        }
        let (mut state, index, qpn) = loop {
            let mut state = self.enter()?;
            match state.shard.create_qp(init) {
                Ok((index, qpn)) => break (state, index, qpn),
                Err(CreateQpError::NoQpn) => {
                    drop(state);
                    let chunk = self.another_chunk()?;
                    self.enter()?.shard.grant_qpns(chunk);
                }
                Err(error) => return Err(error.into()),
            }
        };
        let shared = Arc::new(QpShared::new(
            index,
            qpn,
            &init.cap,
            state.shard.rules(init),
        ));
        let place = index.0 as usize;
        if state.inlets.qps.len() <= place {
            state.inlets.qps.resize_with(place + 1, || None);
        }
        state.inlets.qps[place] = Some(QpSlot {
            shared: shared.clone(),
            listens_at: ListensAt::Nowhere,
        });
        state.strict_mut(|strict, _, _| strict.on_qp_created(index, qpn, init));
        state.note(&Act::Created {
            qpn: qpn.get(),
            kind: init.qp_type,
            signals_all: init.sq_sig_all,
            shares_receives: init.srq.is_some(),
        });
        self.combiner
            .reserve(state.inlets.qps.len() + state.inlets.srqs.len())?;
        let place = state.shard.has_many().then(|| state.shard.place_of(index));
        Ok((shared, place.flatten()))
    }

    /// More QPNs, from those that all owners of the address share.
    fn another_chunk(&self) -> Result<QpnChunk, Error> {
        let none = || Error::from(CreateQpError::NoQpn);
        if let Some(network) = self.network() {
            return network.grant_qpns().map(QpnChunk).ok_or_else(none);
        }
        let membership = self.membership.as_ref().ok_or_else(none)?;
        let granted = membership.grant(self.random()?, self.sockets.each());
        granted
            .map_err(Error::io("taking QPNs from the registry of this host"))?
            .ok_or_else(none)
    }

    pub(crate) fn destroy_qp(&self, qp: &QpShared) {
        // After a fork or a panic there is nothing to destroy.
        let Ok(mut state) = self.enter() else { return };
        state.say_last_ack(qp.index);
        state.settle_carrier();
        let queues = state.shard.query_qp(qp.index);
        let queues = queues.map(|(_, init)| [init.send_cq, init.recv_cq]);
        state.strict_mut(|strict, shard, cqs| strict.on_qp_destroyed(qp.qpn, shard, cqs));
        if let Some(queues) = queues {
            let left = state.cqs.purge(qp.qpn, queues);
            state.strict_mut(|strict, _, _| strict.on_completions_lost(qp.qpn, left));
        }
        state.note(&Act::Destroyed { qpn: qp.qpn.get() });
        state.shard.destroy_qp(qp.index);
        self.note_gone(state.shard.occupancy());
        state.mrs.unbind_qp(qp.qpn);
        state.unbind_pair(qp.qpn);
        self.combiner.forget(&qp.bell);
        if let Some(Some(slot)) = state
            .inlets
            .qps
            .get_mut(qp.index.0 as usize)
            .map(Option::take)
        {
            self.sockets.remove_user(slot.listens_at);
        }
        state.leave_groups();
    }

    pub(crate) fn modify_qp(
        &self,
        qp: &QpShared,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), Error> {
        if mask.contains(AttrMask::AV)
            && let Some(path) = attr.ah_attr
        {
            self.check_path(&path)?;
        }
        if mask.contains(AttrMask::QKEY) && attr.qkey.0 & CONTROLLED_QKEY != 0 {
            privilege::check_net_raw()?;
        }
        let mut state = self.enter()?;
        // Posts that came before this call count as posted before it, and what was received
        // before it is acknowledged.
        state.serve_bells();
        if mask.contains(AttrMask::STATE) && matches!(attr.qp_state, QpState::Reset | QpState::Err)
        {
            state.say_last_ack(qp.index);
        } else {
            state.transmit(Driver::Visitor);
        }
        state.with(|shard, env| shard.modify_qp(qp.index, attr, mask, env))?;
        if let Some((attr, init)) = state.shard.query_qp(qp.index) {
            qp.set_state(attr.qp_state);
            if attr.qp_state == QpState::Reset {
                state.cqs.purge(qp.qpn, [init.send_cq, init.recv_cq]);
                state.unbind_pair(qp.qpn);
            }
            state.strict_mut(|strict, _, _| strict.on_modified(qp.qpn, attr.qp_state));
            state.note(&Act::Modified {
                qpn: qp.qpn.get(),
                attr: &attr,
            });
            if mask.contains(AttrMask::AV)
                && let Some(path) = attr.ah_attr
            {
                state.note_peer(qp.index, path.remote, attr.dest_qp_num);
            }
            let at = match (init.qp_type, attr.ah_attr) {
                (QpType::Ud, _) => ListensAt::Everywhere,
                (_, Some(path)) => ListensAt::Address(path.local),
                (_, None) => ListensAt::Nowhere,
            };
            self.listen(&mut state, qp, attr.qp_state, at);
        }
        // What was staged meanwhile meets the new state.
        qp.serve(&mut state);
        state.transmit(Driver::Visitor);
        Ok(())
    }

    /// The path begins at one of the context's addresses; its socket then reports what
    /// the path needs.
    pub(in crate::engine) fn check_path(&self, path: &AddressVector) -> Result<(), Error> {
        if !self.sockets.has(path.local) {
            return Err(ErrorKind::ForeignAddress(path.local).into());
        }
        if path.traffic_class & ECN_BITS != 0 {
            self.report_tos(path.local)?;
        }
        Ok(())
    }

    /// What is received at an address comes with its traffic class: the marks of congested switches, and what the
    /// header before a datagram says.
    fn report_tos(&self, local: IpAddr) -> Result<(), Error> {
        // A network says it of every packet.
        let Some(socket) = self.sockets.of(local) else {
            return Ok(());
        };
        socket.report_tos().map_err(Error::io(REPORT_TOS))
    }

    fn report_tos_of_all(&self) -> Result<(), Error> {
        self.sockets
            .addrs()
            .try_for_each(|local| self.report_tos(local))
    }

    pub(crate) fn set_congestion_control(
        &self,
        qp: &QpShared,
        control: CongestionControl,
    ) -> Result<(), Error> {
        let mut state = self.enter()?;
        let now = state.now;
        state.shard.set_congestion_control(qp.index, control, now)?;
        if matches!(control, CongestionControl::Dcqcn(_)) {
            // The QP's path may not be known yet.
            self.report_tos_of_all()?;
        }
        state.transmit(Driver::Visitor);
        Ok(())
    }

    /// The QP's peer can be offered to tell each other what is lost.
    pub(crate) fn may_be_selective(&self, qp: &QpShared) -> Result<bool, Error> {
        Ok(self.enter()?.shard.may_be_selective(qp.index))
    }

    /// The two sides have agreed on it.
    pub(crate) fn set_selective_peer(&self, qp: &QpShared) -> Result<(), Error> {
        self.enter()?.shard.set_selective_peer(qp.index);
        Ok(())
    }

    pub(crate) fn congestion_control(&self, qp: &QpShared) -> Result<CongestionControl, Error> {
        let control = self.enter()?.shard.congestion_control(qp.index);
        control.ok_or_else(|| CongestionError::NoQp.into())
    }

    /// Sees to it that packets for the QP are fetched if its state takes any.
    fn listen(&self, state: &mut ShardState, qp: &QpShared, qp_state: QpState, at: ListensAt) {
        let Some(Some(slot)) = state.inlets.qps.get_mut(qp.index.0 as usize) else {
            return;
        };
        let listens_at = match qp_state {
            QpState::Reset | QpState::Init => ListensAt::Nowhere,
            // Until it is destroyed or reset, a peer may hear of the failure.
            QpState::Err => slot.listens_at,
            _ => at,
        };
        if listens_at == slot.listens_at {
            return;
        }
        let old = std::mem::replace(&mut slot.listens_at, listens_at);
        self.sockets.remove_user(old);
        if self.sockets.add_user(listens_at) {
            // A sleeping thread must sleep on one more socket.
            self.progress.activated.notify();
            self.progress.kick();
        }
    }

    pub(crate) fn query_qp(&self, qp: &QpShared) -> Result<(QpAttr, QpInit), Error> {
        let state = self.enter()?;
        state
            .shard
            .query_qp(qp.index)
            .ok_or_else(|| urxe_core::qp::state::ModifyError::NoQp.into())
    }

    pub(crate) fn last_error(&self, qp: &QpShared) -> Result<Option<ErrorDetail>, Error> {
        Ok(self.enter()?.shard.last_error(qp.index).cloned())
    }

    pub(crate) fn create_cq(&self, init: CqInit) -> Result<Arc<CqCore>, Error> {
        let mut state = self.enter()?;
        let cq = state.cqs.create(init);
        cq.map_err(|_| ErrorKind::TooManyCqs(LIMITS.max_cq).into())
    }

    /// Another shard's queue, under the same number.
    pub(crate) fn adopt_cq(&self, cq: &Arc<CqCore>) -> Result<(), Error> {
        self.enter()?.cqs.adopt(cq);
        Ok(())
    }

    pub(crate) fn destroy_cq(&self, cq: &CqCore) {
        if let Ok(mut state) = self.enter() {
            state.strict_mut(|strict, _, _| strict.on_cq_destroyed(cq));
            state.shard.forget_cq(cq.id);
            state.cqs.remove(cq.id);
        }
    }
}
