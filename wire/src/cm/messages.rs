//! The messages, field by field in the order of the wire. Widths are in bits.

use super::CM_BODY_LEN;
use super::reasons::{MraMessage, RejMessage, RejReason, SidrStatus};
use crate::field::{field_as, fields};
use crate::ids::{Gid, Pkey, Qkey, Qpn};
use crate::psn::Psn;

/// Makes a message of [`fields`]: adds its attribute and name.
macro_rules! message {
    ($(#[$doc:meta])* $name:ident = $attribute:literal, $text:literal; $($fields:tt)*) => {
        fields! { $(#[$doc])* $name, CM_BODY_LEN, pub fn parse; $($fields)* }

        impl $name {
            /// The attribute of its MAD header.
            pub const ATTRIBUTE: u16 = $attribute;
            /// Its name.
            pub const NAME: &'static str = $text;
        }
    };
}

fields! {
    /// A path, primary or alternate, in a [`Req`]. An alternate path of all zeros is none.
    CmPath, 44, pub fn parse;
    /// Local LID; 0xffff on routed RoCE.
    local_lid: u16 = 16;
    /// Remote LID; 0xffff on routed RoCE.
    remote_lid: u16 = 16;
    /// Local GID: the sender's address.
    local_gid: Gid = 128;
    /// Remote GID.
    remote_gid: Gid = 128;
    /// IPv6 flow label, 20 bits.
    flow_label: u32 = 20;
    /// Reserved 6 bits; sent as 0.
    reserved_flow: u8 = 6;
    /// Packet rate code, 6 bits.
    packet_rate: u8 = 6;
    /// Traffic class.
    traffic_class: u8 = 8;
    /// Hop limit.
    hop_limit: u8 = 8;
    /// Service level, 4 bits.
    sl: u8 = 4;
    /// Both ends are in one subnet.
    subnet_local: bool = 1;
    /// Reserved 3 bits; sent as 0.
    reserved_sl: u8 = 3;
    /// Exponent of the ACK timeout, 5 bits: 4.096 us times 2 to its power.
    local_ack_timeout: u8 = 5;
    /// Reserved 3 bits; sent as 0.
    reserved_timeout: u8 = 3;
}

field_as!(CmPath: [u8; 44], |bytes| CmPath::parse(&bytes), |path| path.emit());

message! {
    /// Request for communication.
    Req = 0x10, "REQ";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// Reserved; sent as 0.
    reserved4: u8 = 8;
    /// Vendor id for enhanced connection establishment; else 0.
    vendor_id: u32 = 24;
    /// The requested service; see [`super::service_id`].
    service_id: u64 = 64;
    /// GUID of the sender's device.
    local_ca_guid: u64 = 64;
    /// Reserved; sent as 0.
    reserved24: u32 = 32;
    /// Q_Key, for datagrams.
    local_qkey: Qkey = 32;
    /// The sender's QP.
    local_qpn: Qpn = 24;
    /// READs and atomics that the sender can serve at once.
    responder_resources: u8 = 8;
    /// EE context (RD).
    local_eecn: u32 = 24;
    /// READs and atomics that the sender wants to start at once.
    initiator_depth: u8 = 8;
    /// EE context (RD).
    remote_eecn: u32 = 24;
    /// Exponent of the time that the receiver may take to answer, 5 bits.
    remote_cm_response_timeout: u8 = 5;
    /// Service: 0 RC, 1 UC, 2 RD, 3 see `extended_transport_type`.
    transport_service_type: u8 = 2;
    /// The sender's receive queue gives end-to-end credits.
    end_to_end_flow_control: bool = 1;
    /// PSN that the *receiver* of this message is to send with first.
    starting_psn: Psn = 24;
    /// Exponent of the time that the sender takes to answer, 5 bits.
    local_cm_response_timeout: u8 = 5;
    /// Retries of the receiver's QP, 3 bits.
    retry_count: u8 = 3;
    /// Partition.
    pkey: Pkey = 16;
    /// Path MTU: 1 to 5 for 256 to 4096, 4 bits.
    path_mtu: u8 = 4;
    /// RD channel exists.
    rdc_exists: bool = 1;
    /// RNR retries of the receiver's QP, 3 bits.
    rnr_retry_count: u8 = 3;
    /// How often a message may be sent again, 4 bits.
    max_cm_retries: u8 = 4;
    /// The sender's QP has a shared receive queue.
    srq: bool = 1;
    /// Service when `transport_service_type` is 3: 1 is XRC. 3 bits.
    extended_transport_type: u8 = 3;
    /// Path to use.
    primary_path: CmPath = 352;
    /// Path to migrate to; zeros for none.
    alternate_path: CmPath = 352;
    /// For the listener; RDMA-CM puts an [`super::IpCmHeader`] first.
    private_data: [u8; 92] = 736;
}

message! {
    /// Reply to a request.
    Rep = 0x13, "REP";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id, from its REQ.
    remote_comm_id: u32 = 32;
    /// Q_Key, for datagrams.
    local_qkey: Qkey = 32;
    /// The sender's QP.
    local_qpn: Qpn = 24;
    /// High byte of the vendor id for enhanced connection establishment.
    vendor_id_high: u8 = 8;
    /// EE context (RD).
    local_eecn: u32 = 24;
    /// Middle byte of the vendor id.
    vendor_id_middle: u8 = 8;
    /// PSN that the *receiver* of this message is to send with first.
    starting_psn: Psn = 24;
    /// Low byte of the vendor id.
    vendor_id_low: u8 = 8;
    /// READs and atomics that the sender can serve at once.
    responder_resources: u8 = 8;
    /// READs and atomics that the sender wants to start at once.
    initiator_depth: u8 = 8;
    /// Exponent of the delay of the sender's ACKs, 5 bits.
    target_ack_delay: u8 = 5;
    /// Whether the alternate path was taken: 0 yes, 1 no, 2 not supported.
    failover_accepted: u8 = 2;
    /// The sender's receive queue gives end-to-end credits.
    end_to_end_flow_control: bool = 1;
    /// RNR retries of the receiver's QP, 3 bits.
    rnr_retry_count: u8 = 3;
    /// The sender's QP has a shared receive queue.
    srq: bool = 1;
    /// Reserved 4 bits; sent as 0.
    reserved27: u8 = 4;
    /// GUID of the sender's device.
    local_ca_guid: u64 = 64;
    /// For the application.
    private_data: [u8; 196] = 1568;
}

message! {
    /// Ready to use: the connection is there.
    Rtu = 0x14, "RTU";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id.
    remote_comm_id: u32 = 32;
    /// For the application.
    private_data: [u8; 224] = 1792;
}

message! {
    /// Message receipt acknowledgement: the answer will take a while.
    Mra = 0x11, "MRA";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id.
    remote_comm_id: u32 = 32;
    /// Which message arrived, 2 bits.
    message: MraMessage = 2;
    /// Reserved 6 bits; sent as 0.
    reserved8: u8 = 6;
    /// Exponent of the time to wait, 5 bits.
    service_timeout: u8 = 5;
    /// Reserved 3 bits; sent as 0.
    reserved9: u8 = 3;
    /// For the application.
    private_data: [u8; 222] = 1776;
}

message! {
    /// Reject.
    Rej = 0x12, "REJ";
    /// The sender's id of this connection; 0 if it has none.
    local_comm_id: u32 = 32;
    /// The receiver's id; 0 if the message that is refused had none.
    remote_comm_id: u32 = 32;
    /// Which message is refused, 2 bits.
    message: RejMessage = 2;
    /// Reserved 6 bits; sent as 0.
    reserved8: u8 = 6;
    /// Bytes of `additional_info` that count, 7 bits.
    info_length: u8 = 7;
    /// Reserved bit; sent as 0.
    reserved9: bool = 1;
    /// Why.
    reason: RejReason = 16;
    /// Details, by reason.
    additional_info: [u8; 72] = 576;
    /// For the application.
    private_data: [u8; 148] = 1184;
}

message! {
    /// Request to disconnect.
    Dreq = 0x15, "DREQ";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id.
    remote_comm_id: u32 = 32;
    /// The receiver's QP.
    remote_qpn: Qpn = 24;
    /// Reserved; sent as 0.
    reserved11: u8 = 8;
    /// For the application.
    private_data: [u8; 220] = 1760;
}

message! {
    /// Reply to a request to disconnect.
    Drep = 0x16, "DREP";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id.
    remote_comm_id: u32 = 32;
    /// For the application.
    private_data: [u8; 224] = 1792;
}

message! {
    /// Load alternate path.
    Lap = 0x19, "LAP";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id.
    remote_comm_id: u32 = 32;
    /// Reserved; sent as 0.
    reserved8: u32 = 32;
    /// The receiver's QP.
    remote_qpn: Qpn = 24;
    /// Exponent of the time that the receiver may take to answer, 5 bits.
    remote_cm_response_timeout: u8 = 5;
    /// Reserved 3 bits; sent as 0.
    reserved15: u8 = 3;
    /// Reserved; sent as 0.
    reserved16: u32 = 32;
    /// Local LID.
    local_lid: u16 = 16;
    /// Remote LID.
    remote_lid: u16 = 16;
    /// Local GID.
    local_gid: Gid = 128;
    /// Remote GID.
    remote_gid: Gid = 128;
    /// IPv6 flow label, 20 bits.
    flow_label: u32 = 20;
    /// Reserved 4 bits; sent as 0.
    reserved58: u8 = 4;
    /// Traffic class.
    traffic_class: u8 = 8;
    /// Hop limit.
    hop_limit: u8 = 8;
    /// Reserved 2 bits; sent as 0.
    reserved61: u8 = 2;
    /// Packet rate code, 6 bits.
    packet_rate: u8 = 6;
    /// Service level, 4 bits.
    sl: u8 = 4;
    /// Both ends are in one subnet.
    subnet_local: bool = 1;
    /// Reserved 3 bits; sent as 0.
    reserved62: u8 = 3;
    /// Exponent of the ACK timeout, 5 bits.
    local_ack_timeout: u8 = 5;
    /// Reserved 3 bits; sent as 0.
    reserved63: u8 = 3;
    /// For the application.
    private_data: [u8; 168] = 1344;
}

message! {
    /// Alternate path response.
    Apr = 0x1a, "APR";
    /// The sender's id of this connection.
    local_comm_id: u32 = 32;
    /// The receiver's id.
    remote_comm_id: u32 = 32;
    /// Bytes of `additional_info` that count.
    info_length: u8 = 8;
    /// 0 if the path was loaded.
    status: u8 = 8;
    /// Reserved; sent as 0.
    reserved10: u16 = 16;
    /// Details, by status.
    additional_info: [u8; 72] = 576;
    /// For the application.
    private_data: [u8; 148] = 1184;
}

message! {
    /// Service id resolution request: which UD QP serves this?
    SidrReq = 0x17, "SIDR_REQ";
    /// The sender's id of this request.
    request_id: u32 = 32;
    /// Partition.
    pkey: Pkey = 16;
    /// Reserved; sent as 0.
    reserved6: u16 = 16;
    /// The requested service.
    service_id: u64 = 64;
    /// For the listener; RDMA-CM puts an [`super::IpCmHeader`] first.
    private_data: [u8; 216] = 1728;
}

message! {
    /// Service id resolution reply.
    SidrRep = 0x18, "SIDR_REP";
    /// The receiver's id, from its request.
    request_id: u32 = 32;
    /// The status: whether the service has a QP.
    status: SidrStatus = 8;
    /// Bytes of `additional_info` that count.
    info_length: u8 = 8;
    /// High two bytes of the vendor id for enhanced connection establishment.
    vendor_id_high: u16 = 16;
    /// The QP.
    qpn: Qpn = 24;
    /// Low byte of the vendor id.
    vendor_id_low: u8 = 8;
    /// The requested service.
    service_id: u64 = 64;
    /// Q_Key to send with.
    qkey: Qkey = 32;
    /// Details, by status.
    additional_info: [u8; 72] = 576;
    /// For the application.
    private_data: [u8; 136] = 1088;
}
