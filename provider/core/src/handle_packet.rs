//! Receiving: what a packet must pass before it reaches its QP.

use urxe_wire::{Packet, Pkey, Service};

use crate::congestion::CONGESTION_EXPERIENCED;
use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::error::DropReason;
use crate::icrc::Fit;
use crate::memory::Memory;
use crate::path::RxPath;
use crate::qp::Arrival;
use crate::qpn_table::{PROBE, QpnChunk};
use crate::shard::{Foreign, Handled, Shard};
use crate::table::QpIndex;
use crate::time::Time;

impl Shard {
    /// Takes one packet (a UDP payload). Whatever is wrong with it is counted and
    /// changes nothing else. `ident_hint` is the IPv4 Identification that it
    /// probably has: its index in the train that it was received in.
    pub fn handle_packet<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        bytes: &[u8],
        env: &mut Env<'_, M, C>,
    ) -> Handled {
        let handled = self.handle_one_of(path, ident_hint, bytes, env);
        self.settle_rest();
        handled
    }

    /// [`Shard::handle_packet`] for one of several packets that are handled one after the other: what they bring about for the same QP is
    /// settled once. After the last of them [`Shard::settle_rest`] must be called, before anything else.
    #[inline]
    pub fn handle_one_of<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        bytes: &[u8],
        env: &mut Env<'_, M, C>,
    ) -> Handled {
        let handled = match Packet::parse(bytes) {
            Ok(packet) => self.handle_parsed(path, ident_hint, &packet, env),
            Err(_) if self.is_shared(path) && bytes.starts_with(&PROBE) => {
                Handled::OfAnother(Foreign::Probe)
            }
            Err(_) => {
                self.common.stats.drop_packet(DropReason::Malformed);
                Handled::Here
            }
        };
        self.common.stats.rcvd_pkts += u64::from(handled == Handled::Here);
        handled
    }

    /// Ends a series of [`Shard::handle_one_of`].
    #[inline]
    pub fn settle_rest(&mut self) {
        if let Some(index) = self.unsettled.take() {
            self.settle(index);
        }
    }

    /// A packet was for this QP, and more may be.
    #[inline]
    pub(crate) fn settle_later(&mut self, index: QpIndex) {
        if self.unsettled != Some(index) {
            self.settle_rest();
            self.unsettled = Some(index);
        }
    }

    #[inline]
    fn handle_parsed<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        env: &mut Env<'_, M, C>,
    ) -> Handled {
        if self.is_management(path, packet) {
            return self.handle_management(path, ident_hint, packet, env.now);
        }
        match self.admit(path, ident_hint, packet, env.now) {
            Err(DropReason::NoQp | DropReason::Malformed) if self.is_of_another(path, packet) => {
                let chunk = QpnChunk::of(packet.bth().dest_qp);
                return Handled::OfAnother(Foreign::Qp(chunk));
            }
            Err(DropReason::NoQp) => self.handle_stray(path, ident_hint, packet, env),
            Err(reason) => self.common.stats.drop_packet(reason),
            Ok(None) => self.common.stats.rcvd_cnp += 1,
            Ok(Some((index, fit))) => {
                let qp = self.qps.at_mut(index).expect("admit() found it");
                if qp.is_unreliable() {
                    let arrival = Arrival {
                        path,
                        ident: fit.ident,
                        ident_hint,
                        is_news: fit.is_news,
                        is_believed: false,
                    };
                    qp.handle_unreliable(arrival, packet, &mut Cx::new(env, &mut self.common));
                    self.settle_later(index);
                } else {
                    let before = fit.is_news.then(|| qp.progress());
                    let mut cx = Cx::new(env, &mut self.common);
                    match qp.service {
                        Service::Xrc => qp.handle_xrc(packet, &mut cx),
                        _ => qp.handle_packet(packet, &mut cx),
                    }
                    let reconsiders = qp.req.reconsiders;
                    if before.is_some_and(|before| before != qp.progress()) {
                        let seen = (fit.ident, ident_hint);
                        self.common.learn(qp, path.source, seen, env.now);
                    }
                    if reconsiders {
                        self.reconsider(index, env.now);
                    }
                    if path.ecn() == CONGESTION_EXPERIENCED {
                        self.on_marked(index, env.now);
                    }
                    self.settle_later(index);
                }
            }
        }
        Handled::Here
    }

    /// Others may have the address too. (Of a group's packets every sharer gets copies.)
    fn is_shared(&self, path: &RxPath) -> bool {
        self.common.config.shares_qpns && !path.local.is_multicast()
    }

    /// True if the QPN that the packet is for belongs to another sharer of the space.
    #[cold]
    fn is_of_another(&self, path: &RxPath, packet: &Packet<'_>) -> bool {
        self.is_shared(path) && !self.qps.is_ours(packet.bth().dest_qp)
    }

    /// Every check that must pass before a packet may change anything: nothing that
    /// a stranger sends gets beyond this, but datagrams. Returns the packet's QP and how
    /// its ICRC fits; `None` for a congestion notification.
    #[inline]
    fn admit(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        now: Time,
    ) -> Result<Option<(QpIndex, Fit)>, DropReason> {
        let bth = packet.bth();
        if bth.tver != 0 {
            return Err(DropReason::Malformed);
        }
        let index = self.qps.find(bth.dest_qp).ok_or(DropReason::NoQp)?;
        let qp = self.qps.at_mut(index).ok_or(DropReason::NoQp)?;
        let info = packet.info();
        if info.service != qp.service && info.service != Service::Cnp {
            return Err(DropReason::Service);
        }
        let state = qp.state();
        let wanted = if info.is_response() {
            state.takes_responses()
        } else {
            state.takes_requests()
        };
        if !wanted {
            return Err(DropReason::State);
        }
        if (path.source != qp.link.dest.remote || path.local != qp.link.dest.local)
            && !qp.hears_anyone(path)
        {
            return Err(DropReason::Address);
        }
        if !bth.pkey.matches(Pkey::DEFAULT) {
            return Err(DropReason::Pkey);
        }
        let fit = self.common.verify(qp, path, ident_hint, packet, now);
        let fit = fit.ok_or(DropReason::Icrc)?;
        if fit.ident != ident_hint && qp.ident.knows_trains() && !qp.link.is_direct(path) {
            self.common.stats.split_pkts += u64::from(path.source.is_ipv4());
        }
        if info.service == Service::Cnp {
            qp.on_cnp(now);
            return Ok(None);
        }
        Ok(Some((index, fit)))
    }
}
