//! Received requests. No state is created for one until the listener's backlog has room for it.

use core::net::IpAddr;

use urxe_wire::cm::{
    CmMessage, IpCmHeader, PortSpace, RejMessage, RejReason, Req, SidrReq, SidrStatus,
};
use urxe_wire::{MadHeader, Pkey, Qpn};

use super::agent::Agent;
use super::bounds::{ack_timeout, response_ns, timewait_ns};
use super::conn::{Conn, Holder, State};
use super::event::CmEvent;
use super::listeners::ListenerId;
use super::message;
use super::terms::{Incoming, MadPath, Terms, Transport};
use crate::qp::attr::Mtu;
use crate::time::Time;

/// Of datagram requests: no device has this number, so they are not mixed with connections.
const DATAGRAM_GUID: u64 = u64::MAX;

/// Where a service is: its port space and port.
pub(super) fn port_of(service_id: u64) -> (PortSpace, u16) {
    (PortSpace((service_id >> 16) as u16), service_id as u16)
}

impl Agent {
    /// True if the request is for this agent: it came before, or there is a listener.
    pub(super) fn expects(&self, path: MadPath, guid: u64, id: u32, service_id: u64) -> bool {
        self.listeners.find(service_id, path.local).is_some()
            || self.conns.find_remote(path.remote, guid, id).is_some()
    }

    pub(super) fn expects_req(&self, path: MadPath, req: &Req) -> bool {
        self.expects(path, req.local_ca_guid, req.local_comm_id, req.service_id)
    }

    pub(super) fn expects_sidr_req(&self, path: MadPath, req: &SidrReq) -> bool {
        self.expects(path, DATAGRAM_GUID, req.request_id, req.service_id)
    }

    pub(super) fn on_req(&mut self, now: Time, path: MadPath, header: &MadHeader, req: &Req) {
        let guid = req.local_ca_guid;
        if req.local_comm_id == 0 || guid == DATAGRAM_GUID {
            self.counts.malformed += 1;
            return;
        }
        if let Err(reason) = self.take_req(now, path, header, req) {
            self.refuse_req(path, header, req, reason);
        }
    }

    fn take_req(
        &mut self,
        now: Time,
        path: MadPath,
        header: &MadHeader,
        req: &Req,
    ) -> Result<(), RejReason> {
        let guid = req.local_ca_guid;
        let state_at = |agent: &Agent, place| agent.conns.at(place).map(|conn| conn.state);
        if let Some(place) = self.conns.find_remote(path.remote, guid, req.local_comm_id) {
            if state_at(self, place) == Some(State::Timewait) {
                return Err(RejReason::STALE_CONNECTION);
            }
            self.repeat(place);
            return Ok(());
        }
        let listener = self.listeners.find(req.service_id, path.local);
        let listener = listener.ok_or(RejReason::INVALID_SERVICE_ID)?;
        if self.is_hello(req) {
            return self.take_hello(path, header, req);
        }
        if let Some(place) = self.conns.find_remote_qpn(path.remote, guid, req.local_qpn)
            && state_at(self, place).is_some_and(|state| state != State::Dead)
        {
            // The peer has forgotten that connection, or it would not use the QP again. Or a stranger
            // says so: only the peer can tell.
            self.probe(now, place);
            return Err(RejReason::STALE_CONNECTION);
        }
        let incoming = read_req(path, header, req, listener)?;
        let mut conn = Conn::new(incoming.path, State::ReqReceived);
        conn.transaction_id = header.transaction_id;
        conn.service_id = req.service_id;
        conn.timeout_ns = response_ns(req.local_cm_response_timeout);
        conn.timewait_ns = timewait_ns(incoming.ack_timeout);
        conn.max_retries = req.max_cm_retries;
        self.admit(conn, (req.local_comm_id, guid, req.local_qpn), incoming)
            .ok_or(RejReason::NO_RESOURCES)
    }

    /// Keeps a request of this peer (its id, device and QP); `None` if the listener's backlog is full, or there is no place.
    fn admit(
        &mut self,
        mut conn: Conn,
        (id, guid, qpn): (u32, u64, Qpn),
        incoming: Incoming,
    ) -> Option<()> {
        let listener = incoming.listener;
        if !self.listeners.admit(listener) {
            return None;
        }
        conn.holder = Holder::Listener(listener);
        let Ok(place) = self.insert(conn) else {
            self.listeners.release(listener);
            return None;
        };
        self.conns.know_remote(place, id, guid, qpn);
        let id = self.conns.at(place).expect("just put in").id;
        self.events
            .push_back(CmEvent::Request(id, Box::new(incoming)));
        Some(())
    }

    /// Refuses a request of which nothing is kept.
    pub(super) fn refuse_req(
        &mut self,
        path: MadPath,
        header: &MadHeader,
        req: &Req,
        reason: RejReason,
    ) {
        self.counts.refused += 1;
        let rej = message::rej(0, req.local_comm_id, RejMessage::REQ, reason);
        self.answer(path, CmMessage::Rej(rej).emit_mad(header.transaction_id));
    }

    pub(super) fn on_sidr_req(&mut self, path: MadPath, header: &MadHeader, req: &SidrReq) {
        if req.request_id == 0 {
            self.counts.malformed += 1;
            return;
        }
        let known = self
            .conns
            .find_remote(path.remote, DATAGRAM_GUID, req.request_id);
        if let Some(place) = known {
            return self.repeat_datagram(place);
        }
        let Some(listener) = self.listeners.find(req.service_id, path.local) else {
            return self.refuse_sidr(path, header, req, SidrStatus::UNSUPPORTED);
        };
        let Some((remote_port, private_data)) = read_header(path, &req.private_data) else {
            return self.refuse_sidr(path, header, req, SidrStatus::REJECT);
        };
        let (space, local_port) = port_of(req.service_id);
        let incoming = Incoming {
            listener,
            path,
            space,
            local_port,
            remote_port,
            terms: Terms::default(),
            transport: None,
            path_mtu: Mtu::Mtu4096,
            ack_timeout: 0,
            private_data,
        };
        let mut conn = Conn::new(path, State::SidrReceived);
        conn.transaction_id = header.transaction_id;
        conn.service_id = req.service_id;
        let peer = (req.request_id, DATAGRAM_GUID, Qpn::new(0));
        if self.admit(conn, peer, incoming).is_none() {
            self.refuse_sidr(path, header, req, SidrStatus::REJECT);
        }
    }

    /// The answer may have been lost. While there is none, there is nothing to say.
    fn repeat_datagram(&mut self, place: usize) {
        let waits = |conn: &Conn| conn.state == State::SidrReceived;
        if self.conns.at(place).is_some_and(waits) {
            self.counts.duplicates += 1;
        } else {
            self.repeat(place);
        }
    }

    pub(super) fn refuse_sidr(
        &mut self,
        path: MadPath,
        header: &MadHeader,
        req: &SidrReq,
        status: SidrStatus,
    ) {
        self.counts.refused += 1;
        let mad = message::sidr_refusal(
            req.request_id,
            req.service_id,
            status,
            &[],
            header.transaction_id,
        );
        if let Ok(mad) = mad {
            self.answer(path, mad);
        }
    }
}

/// What a REQ says, if it can be granted.
fn read_req(
    path: MadPath,
    header: &MadHeader,
    req: &Req,
    listener: ListenerId,
) -> Result<Incoming, RejReason> {
    let transport = match (req.transport_service_type, req.extended_transport_type) {
        (0, _) => Transport::Rc,
        (1, _) => Transport::Uc,
        (3, 1) => Transport::Xrc,
        _ => return Err(RejReason::INVALID_TRANSPORT_TYPE),
    };
    if !req.pkey.matches(Pkey::DEFAULT) || req.local_qpn.get() < 2 {
        return Err(RejReason::NO_QP);
    }
    let path_mtu = Mtu::from_number(req.path_mtu.into()).ok_or(RejReason::INVALID_MTU)?;
    let (remote_port, private_data) =
        read_header(path, &req.private_data).ok_or(RejReason::INVALID_GID)?;
    let (space, local_port) = port_of(req.service_id);
    Ok(Incoming {
        listener,
        path: MadPath {
            tos: req.primary_path.traffic_class,
            ..path
        },
        space,
        local_port,
        remote_port,
        terms: message::terms_of_req(req, header.attribute_modifier),
        transport: Some(transport),
        path_mtu,
        ack_timeout: ack_timeout(req.primary_path.local_ack_timeout),
        private_data,
    })
}

/// The other side's port, and what its program sent. The addresses must be those of the
/// packet: otherwise the answers would go elsewhere.
pub(super) fn read_header(path: MadPath, private_data: &[u8]) -> Option<(u16, Box<[u8]>)> {
    let header = IpCmHeader::parse(private_data).ok()?;
    let is_same = |a: IpAddr, b: IpAddr| a.to_canonical() == b.to_canonical();
    let fits = is_same(header.src_ip(), path.remote) && is_same(header.dst_ip(), path.local);
    let rest = private_data.get(IpCmHeader::LEN..)?;
    fits.then(|| (header.src_port, rest.into()))
}
