//! QP 1 of a shard: management datagrams in and out, for the agent. They share with
//! other QPs only the form of the packets, so they have a path of their own.

use urxe_wire::{
    Bth, Deth, MAD_LEN, Opcode, Packet, PacketWriter, Pkey, Psn, Qkey, Qpn, packet_len,
};

use super::agent::{Agent, AgentConfig};
use super::event::{CmEvent, Handshake};
use super::farewell::Farewell;
use super::shrink::CmPlaces;
use super::terms::MadPath;
use crate::error::DropReason;
use crate::path::RxPath;
use crate::path::icrc_seed;
use crate::qp::{Arrival, SourceIdents};
use crate::qpn_table::QpnChunk;
use crate::shard::{Handled, Shard};
use crate::table::QpIndex;
use crate::time::Time;
use crate::transmit::{TxBatch, TxDest};

/// The agent of a shard, if it has one, and what the shard looks at all the time.
#[derive(Debug)]
pub(crate) struct Management {
    agent: Option<Box<Agent>>,
    /// When the agent has something to do.
    pub(crate) due: Time,
    /// The agent has something to send.
    pub(crate) has_mail: bool,
    /// The agent has something to tell.
    has_news: bool,
    /// Connections of the agent began or ended.
    has_farewells: bool,
    /// The agent has messages of handshakes.
    has_handshakes: bool,
    next_psn: Psn,
    /// What hosts that send messages use as Identifications.
    idents: Option<SourceIdents>,
}

impl Default for Management {
    fn default() -> Management {
        Management {
            agent: None,
            due: Time(u64::MAX),
            has_mail: false,
            has_news: false,
            has_farewells: false,
            has_handshakes: false,
            next_psn: Psn::new(0),
            idents: None,
        }
    }
}

impl Management {
    pub(crate) fn agent(&self) -> Option<&Agent> {
        self.agent.as_deref()
    }

    /// The agent took a message.
    fn learn(&mut self, arrival: Arrival<'_>, now: Time) {
        if let Some(idents) = &mut self.idents {
            let source = arrival.path.source;
            idents.learn(source, arrival.ident, arrival.ident_hint, now);
        }
    }

    /// Makes tables smaller that were large; returns how large they are.
    pub(crate) fn shrink(&mut self) -> Option<CmPlaces> {
        Some(self.agent.as_deref_mut()?.shrink())
    }
}

impl Shard {
    /// Gives it a QP 1, with an agent behind it. Without one, packets to QP 1 are dropped.
    pub fn start_cm(&mut self, config: AgentConfig) {
        self.management.agent = Some(Box::new(Agent::new(config)));
        self.management.idents = Some(SourceIdents::default());
        self.common.has_cm = true;
    }

    /// Lets the caller do something with the agent; `None` without one. What it has to send
    /// leaves by [`Shard::poll_transmit`], and its timers are the shard's.
    pub fn cm<R>(&mut self, act: impl FnOnce(&mut Agent) -> R) -> Option<R> {
        let result = act(self.management.agent.as_deref_mut()?);
        self.settle_cm();
        Some(result)
    }

    /// What the agent has to tell.
    #[inline]
    pub fn poll_cm_event(&mut self) -> Option<CmEvent> {
        if !self.management.has_news {
            return None;
        }
        let event = self.management.agent.as_deref_mut()?.poll_event();
        self.management.has_news = event.is_some();
        event
    }

    /// What [`Agent::poll_farewell`] says.
    #[inline]
    pub fn poll_farewell(&mut self) -> Option<(usize, Option<Farewell>)> {
        if !self.management.has_farewells {
            return None;
        }
        let farewell = self.management.agent.as_deref_mut()?.poll_farewell();
        self.management.has_farewells = farewell.is_some();
        farewell
    }

    /// A message of a handshake that goes before a request.
    #[inline]
    pub fn poll_cm_handshake(&mut self) -> Option<Handshake> {
        if !self.management.has_handshakes {
            return None;
        }
        let handshake = self.management.agent.as_deref_mut()?.poll_handshake();
        self.management.has_handshakes = handshake.is_some();
        handshake
    }

    /// After everything that the agent did.
    fn settle_cm(&mut self) {
        let Some(agent) = self.management.agent.as_deref_mut() else {
            return;
        };
        self.management.has_mail = agent.front().is_some();
        self.management.has_news = agent.has_events();
        self.management.has_farewells = agent.has_farewells();
        self.management.has_handshakes = agent.has_handshakes();
        self.management.due = agent.next_timeout().unwrap_or(Time(u64::MAX));
        while let Some(qpn) = agent.poll_released() {
            self.qps.give_back(qpn);
        }
        let counts = agent.take_counts();
        let stats = &mut self.common.stats;
        stats.cm_rcvd_msgs += counts.received;
        stats.cm_malformed += counts.malformed;
        stats.cm_stray_msgs += counts.stray;
        stats.cm_duplicate_msgs += counts.duplicates;
        stats.cm_retries += counts.retries;
        stats.cm_refused_reqs += counts.refused;
        stats.cm_evicted += counts.evicted;
    }

    /// True if the packet is for QP 1 and there is one. (A group's packets are not.)
    #[inline]
    pub(crate) fn is_management(&self, path: &RxPath, packet: &Packet<'_>) -> bool {
        packet.bth().dest_qp == Qpn::GSI
            && self.management.agent.is_some()
            && !path.local.is_multicast()
    }

    /// Takes a packet to QP 1.
    #[cold]
    pub(crate) fn handle_management(
        &mut self,
        path: &RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        now: Time,
    ) -> Handled {
        let (mad, arrival) = match self.open_mad(path, ident_hint, packet, now) {
            Ok(mad) => mad,
            Err(reason) => {
                self.common.stats.drop_packet(reason);
                return Handled::Here;
            }
        };
        let path = mad_path(path);
        let refused = self.refused_mads();
        let handled = self.cm(|agent| agent.handle_mad(now, path, &mad));
        if handled == Some(Handled::Here) && refused == self.refused_mads() {
            self.management.learn(arrival, now);
        }
        handled.unwrap_or(Handled::Here)
    }

    /// Messages that the agent could not use.
    fn refused_mads(&self) -> u64 {
        let stats = &self.common.stats;
        stats.cm_malformed + stats.cm_stray_msgs + stats.cm_refused_reqs
    }

    /// Answers a CM datagram ([`Handled::OfAnother`]) that no sharer of this address owns:
    /// rejects the request.
    pub fn handle_unowned_mad(&mut self, path: &RxPath, bytes: &[u8], now: Time) {
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        self.common.stats.rcvd_pkts += 1;
        let path = mad_path(path);
        self.cm(|agent| agent.handle_unowned(now, path, packet.payload()));
    }

    /// The datagram of a packet that is what it says it is.
    fn open_mad<'p>(
        &mut self,
        path: &'p RxPath,
        ident_hint: u16,
        packet: &Packet<'_>,
        now: Time,
    ) -> Result<([u8; MAD_LEN], Arrival<'p>), DropReason> {
        let bth = packet.bth();
        if bth.opcode != Opcode::UD_SEND_ONLY {
            return Err(DropReason::Service);
        }
        if bth.tver != 0 {
            return Err(DropReason::Malformed);
        }
        if !bth.pkey.matches(Pkey::DEFAULT) {
            return Err(DropReason::Pkey);
        }
        if packet.deth().is_none_or(|deth| deth.qkey != Qkey::GSI) {
            return Err(DropReason::Qkey);
        }
        let mad: [u8; MAD_LEN] = packet
            .payload()
            .try_into()
            .map_err(|_| DropReason::Malformed)?;
        let arrival = self.common.fit_datagram(path, ident_hint, packet.bytes())?;
        if let Some(idents) = &mut self.management.idents
            && !self.common.believes_mad(idents, arrival, now)
        {
            return Err(DropReason::Icrc);
        }
        Ok((mad, arrival))
    }

    /// Does what is due for the agent.
    #[cold]
    pub(crate) fn handle_cm_timeout(&mut self, now: Time) {
        self.cm(|agent| agent.handle_timeout(now));
    }

    /// Puts the agent's messages into the batch. False if it is full.
    #[cold]
    pub(crate) fn send_mads(&mut self, batch: &mut TxBatch) -> bool {
        let gsi = Qpn::GSI;
        let source_port = self.common.config.source_ports.port(gsi, gsi);
        let info = Opcode::UD_SEND_ONLY.info().expect("it is in the table");
        let Some(agent) = self.management.agent.as_deref_mut() else {
            return true;
        };
        while let Some(outgoing) = agent.front() {
            let MadPath { local, remote, tos } = outgoing.path;
            let dest = TxDest {
                local,
                remote,
                tos,
                source_port,
                chunk: QpnChunk::of(gsi),
                in_memory: false,
                near_port: None,
            };
            let Some(slot) = batch.reserve(&dest, packet_len(info, MAD_LEN)) else {
                return false;
            };
            let bth = Bth::new(Opcode::UD_SEND_ONLY, gsi, self.management.next_psn);
            let mut writer = PacketWriter::new(slot.bytes, &bth);
            writer.deth(&Deth {
                qkey: Qkey::GSI,
                reserved: 0,
                src_qp: gsi,
            });
            writer.payload_mut(MAD_LEN).copy_from_slice(&*outgoing.mad);
            writer.finish(&icrc_seed(local, source_port, remote), slot.ident);
            self.management.next_psn = self.management.next_psn.next();
            self.common.stats.sent_pkts += 1;
            self.common.stats.cm_sent_msgs += 1;
            agent.pop();
        }
        self.management.has_mail = false;
        true
    }

    /// A QP is about to be destroyed; true if its number must rest.
    pub(crate) fn cm_rests(&mut self, index: QpIndex) -> bool {
        let Some(qpn) = self.qps.at(index).map(|qp| qp.link.qpn) else {
            return false;
        };
        let agent = self.management.agent.as_deref_mut();
        agent.is_some_and(|agent| agent.on_qp_destroyed(qpn))
    }

    /// The first packet of a QP's peer arrived: so the peer is ready.
    pub(crate) fn on_heard(&mut self, index: QpIndex) {
        if let Some(qpn) = self.qps.at(index).map(|qp| qp.link.qpn) {
            self.cm(|agent| agent.on_data_of(qpn));
        }
    }
}

/// The way of an answer.
fn mad_path(path: &RxPath) -> MadPath {
    MadPath {
        local: path.local,
        remote: path.source,
        tos: 0,
    }
}
