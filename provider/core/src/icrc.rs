//! Checks a packet's ICRC. Over IPv4 it may be right under an Identification
//! that is not its sender's (`qp/ident.rs`), so that it matters which packets taught what the sender's
//! are. Each of these is learnt from packets that did what the next line says, and doubts
//! come from packets that could have:
//!
//! - a reliable connection, from requests with the expected PSN that were executed, and responses
//!   that completed something: as much as a stranger needs to put data into the connection;
//! - an unreliable one, where PSNs protect nothing, from packets that were executed;
//! - datagrams, from those that had the Q_Key and a receive;
//! - QP 1, where the Q_Key is public, from messages that its agent took; what they show
//!   is kept apart, and says nothing about other datagrams.
//!
//! Over IPv6 there is no Identification: the ICRC is right or wrong.

use core::net::IpAddr;

use urxe_wire::{IcrcPolicy, IcrcVerdict, Packet, Psn, Service};

use crate::context::Common;
use crate::error::DropReason;
use crate::path::RxPath;
use crate::qp::state::QpType;
use crate::qp::{Arrival, Qp, SourceIdents};
use crate::time::Time;

/// How a packet's ICRC fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// The Identification that it fits with.
    pub(crate) ident: u16,
    /// That is more than the QP knows, if the packet is executed.
    pub(crate) is_news: bool,
}

impl Common {
    /// Verifies a packet to a QP.
    #[inline]
    pub(crate) fn verify(
        &mut self,
        qp: &mut Qp,
        path: &RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        now: Time,
    ) -> Option<Fit> {
        if qp.link.is_direct(path) {
            return self.verify_direct(path, packet);
        }
        let verdict = path
            .seed
            .verify_with(self.config.icrc, ident_hint, packet.bytes());
        let IcrcVerdict::Ok { ident } = verdict else {
            if qp.ident.can_learn() && qp.is_in_reach(packet) {
                qp.ident.confirm();
            }
            return None;
        };
        // Datagrams are judged by their sender, once it is known to have the Q_Key.
        if !self.solves(path) || qp.service == Service::Ud {
            let is_news = false;
            return Some(Fit { ident, is_news });
        }
        if qp.link.dest.in_memory {
            // Nothing was learnt of the peer, as its packets come through memory. Should one come by a socket after all, it is of this host,
            // and has the Identification of its place.
            let is_news = false;
            return (ident == ident_hint).then_some(Fit { ident, is_news });
        }
        if qp.ident.judge(ident, ident_hint, now)
            || self.sources.has_counter(path.source, ident, now)
        {
            let is_news = qp.ident.can_learn();
            return Some(Fit { ident, is_news });
        }
        if qp.is_in_reach(packet) {
            qp.ident.doubt(ident, now);
        }
        None
    }

    /// Verifies a lone packet of a neighbour on this host, which counts its Identifications.
    #[inline]
    fn verify_direct(&mut self, path: &RxPath, packet: &Packet<'_>) -> Option<Fit> {
        let expected = self.direct_ident;
        match path
            .seed
            .verify_with(self.config.icrc, expected, packet.bytes())
        {
            IcrcVerdict::Ok { ident } => {
                self.direct_ident = ident.wrapping_add(1);
                let is_news = false;
                Some(Fit { ident, is_news })
            }
            IcrcVerdict::Bad => None,
        }
    }

    /// A packet to a connection that was news was executed, or completed something.
    #[inline(never)]
    pub(crate) fn learn(&mut self, qp: &mut Qp, source: IpAddr, seen: (u16, u16), now: Time) {
        let sources = &self.sources;
        let has_moved = qp
            .ident
            .learn(seen, now, || sources.has_counter(source, seen.0, now));
        if has_moved && !qp.is_unreliable() {
            self.sources.note(source, seen.0, now);
        }
    }

    /// Verifies a datagram that no QP is found for by its number.
    pub(crate) fn fit_datagram<'p>(
        &self,
        path: &'p RxPath,
        ident_hint: u16,
        bytes: &[u8],
    ) -> Result<Arrival<'p>, DropReason> {
        match path.seed.verify_with(self.config.icrc, ident_hint, bytes) {
            IcrcVerdict::Ok { ident } => Ok(Arrival {
                path,
                ident,
                ident_hint,
                is_news: false,
                is_believed: false,
            }),
            IcrcVerdict::Bad => Err(DropReason::Icrc),
        }
    }

    /// True if the host that sent a datagram, about which all else is right, is likely to
    /// have used the Identification that its ICRC fits with.
    pub(crate) fn believes(&mut self, arrival: Arrival<'_>, now: Time) -> bool {
        let (path, ident) = (arrival.path, arrival.ident);
        let hint = arrival.ident_hint;
        if !self.solves(path) || self.sources.judge(path.source, ident, hint, now) {
            return true;
        }
        self.sources.doubt(path.source, ident, now);
        false
    }

    /// A datagram was delivered.
    pub(crate) fn learn_datagram(&mut self, arrival: Arrival<'_>, now: Time) {
        if self.solves(arrival.path) {
            let (ident, hint) = (arrival.ident, arrival.ident_hint);
            self.sources.learn(arrival.path.source, ident, hint, now);
        }
    }

    /// [`Common::believes`] for QP 1, with what it knows beside.
    pub(crate) fn believes_mad(
        &self,
        mads: &mut SourceIdents,
        arrival: Arrival<'_>,
        now: Time,
    ) -> bool {
        let (source, ident) = (arrival.path.source, arrival.ident);
        let is_likely = !self.solves(arrival.path)
            || mads.judge(source, ident, arrival.ident_hint, now)
            || self.sources.has_counter(source, ident, now);
        if !is_likely {
            mads.doubt(source, ident, now);
        }
        is_likely
    }

    /// True if ICRCs of packets on this path are solved for their Identification.
    #[inline]
    pub(crate) fn solves(&self, path: &RxPath) -> bool {
        self.config.icrc == IcrcPolicy::SolveIdent
            && path.source.is_ipv4()
            && !path.seed.is_in_memory()
    }
}

impl Qp {
    /// What moves when a packet of an acknowledged service is executed, or completes
    /// something.
    #[inline]
    pub(crate) fn progress(&self) -> (Psn, Psn) {
        (self.resp.epsn, self.req.una)
    }

    /// True if the packet's PSN is one that the peer may well send now: a stranger hits it
    /// by chance only. A request may be one that is repeated because its answer was lost.
    #[cold]
    fn is_in_reach(&self, packet: &Packet<'_>) -> bool {
        /// As many packets as are under way.
        const REACH: u32 = 1024;
        let (info, psn) = (packet.info(), packet.bth().psn);
        if info.service == Service::Cnp {
            return false;
        }
        if self.is_unreliable() {
            return true;
        }
        if info.is_response() {
            return self.init.qp_type != QpType::XrcRecv
                && !psn.is_before(self.req.una)
                && psn.is_before(self.req.sent_end);
        }
        self.init.qp_type != QpType::XrcSend
            && (psn.diff(self.resp.epsn).unsigned_abs() <= REACH
                || self.resp.replay.find(psn).is_some())
    }
}
