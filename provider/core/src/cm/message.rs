//! Writing messages.

use urxe_wire::cm::{
    Apr, CmMessage, CmPath, Drep, Dreq, IpCmHeader, Mra, MraMessage, Rej, RejMessage, RejReason,
    Rep, Req, Rtu, SidrRep, SidrReq, SidrStatus, service_id,
};
use urxe_wire::{Gid, MAD_LEN, MadHeader, Pkey, Qpn};

use super::conn::Conn;
use super::terms::{
    Answer, CmError, ConnectRequest, DatagramAnswer, DatagramRequest, HelloBytes, MadPath, Terms,
    Transport, VendorOptions,
};

/// A MAD.
pub(super) type Mad = [u8; MAD_LEN];

/// LIDs of routed RoCE.
const NO_LID: u16 = 0xffff;
/// How far packets travel.
const HOP_LIMIT: u8 = 64;
/// Exponent of the time that ACKs take here (134 ms, which is what rdma_rxe says).
const ACK_DELAY: u8 = 15;
/// Exponent of the time that an MRA asks for: Linux's.
pub(super) const SERVICE_TIMEOUT: u8 = 24;
/// Status of an APR: alternate paths are not supported.
const APR_NOT_SUPPORTED: u8 = 2;

/// Transport service of what goes before a REQ: reliable datagrams, which no device has.
pub(super) const HELLO_TRANSPORT: u8 = 2;

/// What goes before a REQ: one with other private data, of a transport service that is refused where it is not understood.
pub(super) fn hello(
    conn: &Conn,
    guid: u64,
    request: &ConnectRequest<'_>,
    bytes: &HelloBytes,
) -> Result<Mad, CmError> {
    let message = Req {
        local_comm_id: conn.id.0,
        service_id: service_id(request.space, request.remote_port),
        local_ca_guid: guid,
        local_qpn: request.terms.qpn,
        transport_service_type: HELLO_TRANSPORT,
        pkey: Pkey::DEFAULT,
        private_data: with_header(request.path, request.local_port, bytes)?,
        ..Req::default()
    };
    Ok(write(
        CmMessage::Req(message),
        conn,
        VendorOptions::default(),
    ))
}

pub(super) fn req(conn: &Conn, guid: u64, request: &ConnectRequest<'_>) -> Result<Mad, CmError> {
    let terms = &request.terms;
    let (transport_service_type, extended_transport_type) = match request.transport {
        Transport::Rc => (0, 0),
        Transport::Uc => (1, 0),
        Transport::Xrc => (3, 1),
    };
    let message = Req {
        local_comm_id: conn.id.0,
        vendor_id: terms.vendor.vendor_id & 0xff_ffff,
        service_id: service_id(request.space, request.remote_port),
        local_ca_guid: guid,
        local_qpn: terms.qpn,
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        remote_cm_response_timeout: request.patience.response_timeout.min(31),
        transport_service_type,
        end_to_end_flow_control: terms.flow_control,
        starting_psn: terms.starting_psn,
        local_cm_response_timeout: request.patience.response_timeout.min(31),
        retry_count: terms.retry_count.min(7),
        pkey: Pkey::DEFAULT,
        path_mtu: request.path_mtu as u8,
        rnr_retry_count: terms.rnr_retry_count.min(7),
        max_cm_retries: request.patience.max_retries.min(15),
        srq: terms.srq,
        extended_transport_type,
        primary_path: CmPath {
            local_lid: NO_LID,
            remote_lid: NO_LID,
            local_gid: Gid::from(request.path.local),
            remote_gid: Gid::from(request.path.remote),
            traffic_class: request.path.tos,
            hop_limit: HOP_LIMIT,
            local_ack_timeout: request.ack_timeout.min(31),
            ..CmPath::default()
        },
        private_data: with_header(request.path, request.local_port, request.private_data)?,
        ..Req::default()
    };
    Ok(write(CmMessage::Req(message), conn, terms.vendor))
}

pub(super) fn rep(conn: &Conn, guid: u64, answer: &Answer<'_>) -> Result<Mad, CmError> {
    let terms = &answer.terms;
    let [_, high, middle, low] = terms.vendor.vendor_id.to_be_bytes();
    let message = Rep {
        local_comm_id: conn.id.0,
        remote_comm_id: conn.remote_id,
        local_qpn: terms.qpn,
        vendor_id_high: high,
        vendor_id_middle: middle,
        vendor_id_low: low,
        starting_psn: terms.starting_psn,
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        target_ack_delay: ACK_DELAY,
        failover_accepted: 0,
        end_to_end_flow_control: terms.flow_control,
        rnr_retry_count: terms.rnr_retry_count.min(7),
        srq: terms.srq,
        local_ca_guid: guid,
        private_data: filled(0, answer.private_data)?,
        ..Rep::default()
    };
    Ok(write(CmMessage::Rep(message), conn, terms.vendor))
}

/// A message about a connection, which both sides' ids name.
macro_rules! about {
    ($conn:ident, $kind:ident { $($field:ident),* }) => {
        CmMessage::$kind($kind {
            local_comm_id: $conn.id.0,
            remote_comm_id: $conn.remote_id,
            $($field,)*
            ..$kind::default()
        })
        .emit_mad($conn.transaction_id)
    };
}

pub(super) fn rtu(conn: &Conn) -> Mad {
    about!(conn, Rtu {})
}

pub(super) fn mra(conn: &Conn, message: MraMessage) -> Mad {
    let service_timeout = SERVICE_TIMEOUT;
    about!(
        conn,
        Mra {
            message,
            service_timeout
        }
    )
}

pub(super) fn dreq(conn: &Conn, remote_qpn: Qpn) -> Mad {
    about!(conn, Dreq { remote_qpn })
}

/// An answer to a DREQ, also of a connection that is not known any more.
pub(super) fn drep(local: u32, remote: u32, transaction_id: u64) -> Mad {
    let message = Drep {
        local_comm_id: local,
        remote_comm_id: remote,
        ..Drep::default()
    };
    CmMessage::Drep(message).emit_mad(transaction_id)
}

/// A REJ without private data, to which the caller adds what else there is to say.
pub(super) fn rej(local: u32, remote: u32, message: RejMessage, reason: RejReason) -> Rej {
    Rej {
        local_comm_id: local,
        remote_comm_id: remote,
        message,
        reason,
        ..Rej::default()
    }
}

pub(super) fn sidr_req(conn: &Conn, request: &DatagramRequest<'_>) -> Result<Mad, CmError> {
    let message = SidrReq {
        request_id: conn.id.0,
        pkey: Pkey::DEFAULT,
        service_id: service_id(request.space, request.remote_port),
        private_data: with_header(request.path, request.local_port, request.private_data)?,
        ..SidrReq::default()
    };
    Ok(CmMessage::SidrReq(message).emit_mad(conn.transaction_id))
}

pub(super) fn sidr_rep(conn: &Conn, answer: &DatagramAnswer<'_>) -> Result<Mad, CmError> {
    let message = SidrRep {
        request_id: conn.remote_id,
        status: SidrStatus::VALID,
        vendor_id_high: (answer.vendor.vendor_id >> 8) as u16,
        vendor_id_low: answer.vendor.vendor_id as u8,
        qpn: answer.qpn,
        service_id: conn.service_id,
        qkey: answer.qkey,
        private_data: filled(0, answer.private_data)?,
        ..SidrRep::default()
    };
    Ok(write(CmMessage::SidrRep(message), conn, answer.vendor))
}

pub(super) fn sidr_refusal(
    request: u32,
    service_id: u64,
    status: SidrStatus,
    private_data: &[u8],
    transaction_id: u64,
) -> Result<Mad, CmError> {
    let message = SidrRep {
        request_id: request,
        status,
        qpn: Qpn::new(0),
        service_id,
        private_data: filled(0, private_data)?,
        ..SidrRep::default()
    };
    Ok(CmMessage::SidrRep(message).emit_mad(transaction_id))
}

/// Alternate paths are not for UDP sockets.
pub(super) fn apr_not_supported(local: u32, remote: u32, transaction_id: u64) -> Mad {
    let message = Apr {
        local_comm_id: local,
        remote_comm_id: remote,
        status: APR_NOT_SUPPORTED,
        ..Apr::default()
    };
    CmMessage::Apr(message).emit_mad(transaction_id)
}

/// What a REQ proposes, as its receiver sees it.
pub(super) fn terms_of_req(req: &Req, modifier: u32) -> Terms {
    Terms {
        qpn: req.local_qpn,
        starting_psn: req.starting_psn,
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.end_to_end_flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
        vendor: VendorOptions {
            vendor_id: req.vendor_id,
            options: modifier,
        },
    }
}

/// What a REP accepts, as its receiver sees it.
pub(super) fn terms_of_rep(rep: &Rep, modifier: u32) -> Terms {
    let vendor = [
        0,
        rep.vendor_id_high,
        rep.vendor_id_middle,
        rep.vendor_id_low,
    ];
    Terms {
        qpn: rep.local_qpn,
        starting_psn: rep.starting_psn,
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.end_to_end_flow_control,
        retry_count: 0,
        rnr_retry_count: rep.rnr_retry_count,
        srq: rep.srq,
        vendor: VendorOptions {
            vendor_id: u32::from_be_bytes(vendor),
            options: modifier,
        },
    }
}

fn write(message: CmMessage, conn: &Conn, vendor: VendorOptions) -> Mad {
    let mut header = MadHeader::cm(message.attribute_id(), conn.transaction_id);
    header.attribute_modifier = vendor.options;
    message.emit(&header)
}

fn with_header<const N: usize>(
    path: MadPath,
    local_port: u16,
    private_data: &[u8],
) -> Result<[u8; N], CmError> {
    let header = IpCmHeader::new(path.local, local_port, path.remote).ok_or(CmError::State)?;
    let mut bytes = filled(IpCmHeader::LEN, private_data)?;
    bytes[..IpCmHeader::LEN].copy_from_slice(&header.emit());
    Ok(bytes)
}

pub(super) fn filled<const N: usize>(at: usize, private_data: &[u8]) -> Result<[u8; N], CmError> {
    let mut bytes = [0; N];
    let (len, max) = (private_data.len(), N - at);
    let room = bytes.get_mut(at..at + len);
    room.ok_or(CmError::PrivateData { len, max })?
        .copy_from_slice(private_data);
    Ok(bytes)
}
