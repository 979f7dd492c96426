//! What the agent sends, field by field against what Linux sends: an agent takes the place of
//! each side of captured conversations in turn.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use urxe_core::Time;
use urxe_core::cm::{
    Agent, AgentConfig, Answer, CmEvent, ConnectRequest, DatagramAnswer, DatagramRequest, MadPath,
    Patience, Reply, Scope, Terms, Transport, VendorOptions,
};
use urxe_core::qp::attr::Mtu;
use urxe_core::qpn_table::QpnChunk;
use urxe_wire::cm::{CmMessage, IpCmHeader, RejReason, Req, SidrReq};
use urxe_wire::{MadHeader, Qpn};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 3));

/// Management datagrams of a capture, with their senders.
fn capture(name: &str) -> Option<Vec<(IpAddr, [u8; 256])>> {
    let shared = std::env::var_os("URXE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = shared.join("rxe-captures").join(name);
    let Ok(bytes) = std::fs::read(&path) else {
        println!("skipped: there is no {}", path.display());
        return None;
    };
    // Classic pcap, little-endian, Ethernet: what the captures are.
    assert_eq!(
        bytes[..3],
        [0xd4, 0xc3, 0xb2],
        "{name} is of another format"
    );
    let mut mads = Vec::new();
    let mut rest = &bytes[24..];
    while rest.len() >= 16 {
        let len = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
        let frame = &rest[16..16 + len];
        rest = &rest[16 + len..];
        // Ethernet 14, IPv4 20, UDP 8, BTH 12, DETH 8.
        let is_mad = len >= 62 + 256 && frame[12..14] == [8, 0] && frame[47..50] == [0, 0, 1];
        if is_mad {
            let sender = <[u8; 4]>::try_from(&frame[26..30]).expect("four bytes");
            mads.push((
                sender.into(),
                frame[62..62 + 256].try_into().expect("a MAD"),
            ));
        }
    }
    assert!(!mads.is_empty(), "{name} has no datagrams to QP 1");
    Some(mads)
}

fn parsed(mad: &[u8]) -> (MadHeader, CmMessage) {
    CmMessage::parse(mad).expect("a message")
}

fn agent() -> Agent {
    Agent::new(AgentConfig {
        guid: 0x0275_7278_0000_0001,
        owner: QpnChunk(0x123),
        is_shared: false,
        secret: 4,
    })
}

fn path(local: IpAddr, remote: IpAddr) -> MadPath {
    MadPath {
        local,
        remote,
        tos: 0,
    }
}

fn sent(agent: &mut Agent) -> (MadHeader, CmMessage) {
    let message = parsed(&*agent.front().expect("a message").mad);
    agent.pop();
    message
}

/// What differs by nature: each side's ids, numbers of its device, transactions that it began.
fn assert_same(what: &str, ours: &CmMessage, theirs: &CmMessage) {
    let mut ours = *ours;
    match (&mut ours, theirs) {
        (CmMessage::Req(o), CmMessage::Req(t)) => {
            (o.local_comm_id, o.local_ca_guid) = (t.local_comm_id, t.local_ca_guid);
            // A hint for routers, which Linux chooses at random.
            o.primary_path.flow_label = t.primary_path.flow_label;
        }
        (CmMessage::Rep(o), CmMessage::Rep(t)) => {
            (o.local_comm_id, o.local_ca_guid) = (t.local_comm_id, t.local_ca_guid);
            o.remote_comm_id = t.remote_comm_id;
        }
        (CmMessage::Rtu(o), CmMessage::Rtu(t)) => {
            (o.local_comm_id, o.remote_comm_id) = (t.local_comm_id, t.remote_comm_id);
        }
        (CmMessage::Dreq(o), CmMessage::Dreq(t)) => {
            (o.local_comm_id, o.remote_comm_id) = (t.local_comm_id, t.remote_comm_id);
        }
        (CmMessage::Drep(o), CmMessage::Drep(t)) => {
            (o.local_comm_id, o.remote_comm_id) = (t.local_comm_id, t.remote_comm_id);
        }
        (CmMessage::SidrReq(o), CmMessage::SidrReq(t)) => o.request_id = t.request_id,
        _ => {}
    }
    assert_eq!(&ours, theirs, "{what}");
}

fn terms_of(req: &Req) -> Terms {
    Terms {
        qpn: req.local_qpn,
        starting_psn: req.starting_psn,
        responder_resources: req.responder_resources,
        initiator_depth: req.initiator_depth,
        flow_control: req.end_to_end_flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
        vendor: VendorOptions::default(),
    }
}

fn ip_header(private_data: &[u8]) -> IpCmHeader {
    IpCmHeader::parse(private_data).expect("RDMA-CM's header")
}

/// The agent takes the client's place: the same request, and it takes Linux's answer.
fn as_client(mads: &[(IpAddr, [u8; 256])]) {
    let mut agent = agent();
    let mut id = None;
    for (sender, mad) in mads {
        let (mut header, message) = parsed(mad);
        if *sender == SERVER {
            // Linux answers the id that its client had.
            let own = id.expect("the client begins");
            let answer = readdressed(message, own);
            header.transaction_id = 1;
            let bytes = answer.emit(&header);
            agent.handle_mad(Time(1), path(CLIENT, SERVER), &bytes);
            continue;
        }
        match message {
            CmMessage::Req(req) => {
                let ip = ip_header(&req.private_data);
                let request = ConnectRequest {
                    hello: None,
                    path: path(CLIENT, SERVER),
                    space: urxe_wire::cm::PortSpace((req.service_id >> 16) as u16),
                    local_port: ip.src_port,
                    remote_port: req.service_id as u16,
                    terms: terms_of(&req),
                    transport: Transport::Rc,
                    path_mtu: Mtu::from_number(req.path_mtu.into()).expect("an MTU"),
                    ack_timeout: req.primary_path.local_ack_timeout,
                    patience: Patience::default(),
                    private_data: &req.private_data[36..],
                };
                id = Some(agent.connect(Time(0), &request).expect("room").0);
            }
            CmMessage::SidrReq(req) => {
                id = Some(agent.resolve(Time(0), &sidr(&req)).expect("room").0);
            }
            CmMessage::Rtu(_) => {
                let Some(CmEvent::Reply(id, reply)) = agent.poll_event() else {
                    panic!("no reply")
                };
                assert!(matches!(*reply, Reply::Connection { .. }));
                agent.establish(id).expect("replied");
            }
            CmMessage::Dreq(_) => {
                let id = urxe_core::cm::CommId(id.expect("connected"));
                agent.disconnect(Time(2), id).expect("there");
            }
            // The answer to the server's DREQ came by itself.
            CmMessage::Drep(_) => {}
            other => panic!("a client sends {other:?}"),
        }
        let (our_header, ours) = sent(&mut agent);
        assert_same("as a client", &ours, &message);
        assert_eq!(our_header.attribute_modifier, header.attribute_modifier);
        assert_eq!(our_header.method, header.method);
    }
}

fn sidr(req: &SidrReq) -> DatagramRequest<'_> {
    DatagramRequest {
        path: path(CLIENT, SERVER),
        space: urxe_wire::cm::PortSpace((req.service_id >> 16) as u16),
        local_port: ip_header(&req.private_data).src_port,
        remote_port: req.service_id as u16,
        patience: Patience::default(),
        private_data: &req.private_data[36..],
    }
}

/// The message, as if it had been sent to the agent's id.
fn readdressed(message: CmMessage, id: u32) -> CmMessage {
    let mut message = message;
    match &mut message {
        CmMessage::Rep(m) => m.remote_comm_id = id,
        CmMessage::Rtu(m) => m.remote_comm_id = id,
        CmMessage::Rej(m) => m.remote_comm_id = id,
        CmMessage::Dreq(m) => m.remote_comm_id = id,
        CmMessage::Drep(m) => m.remote_comm_id = id,
        CmMessage::SidrRep(m) => m.request_id = id,
        other => panic!("nobody is asked by {other:?}"),
    }
    message
}

/// The agent takes the server's place: it understands Linux's request and gives the answer
/// that Linux gave.
fn as_server(mads: &[(IpAddr, [u8; 256])], listens: bool) {
    let mut agent = agent();
    let mut id = None;
    for (sender, mad) in mads {
        let (header, message) = parsed(mad);
        if *sender == CLIENT {
            let to_us = match message {
                CmMessage::Req(req) => {
                    let space = urxe_wire::cm::PortSpace((req.service_id >> 16) as u16);
                    if listens && id.is_none() {
                        let port = req.service_id as u16;
                        agent.listen(space, port, Scope::AnyV4, 1).expect("free");
                    }
                    message
                }
                CmMessage::SidrReq(req) => {
                    let space = urxe_wire::cm::PortSpace((req.service_id >> 16) as u16);
                    let port = req.service_id as u16;
                    agent.listen(space, port, Scope::AnyV4, 1).expect("free");
                    message
                }
                message => readdressed(message, id.expect("known")),
            };
            agent.handle_mad(Time(1), path(SERVER, CLIENT), &to_us.emit(&header));
            if let Some(CmEvent::Request(new, incoming)) = agent.poll_event() {
                id = Some(new.0);
                check_incoming(&incoming, &message);
            }
            continue;
        }
        let conn = id.map(urxe_core::cm::CommId);
        match message {
            CmMessage::Rep(rep) => {
                let terms = Terms {
                    qpn: rep.local_qpn,
                    starting_psn: rep.starting_psn,
                    responder_resources: rep.responder_resources,
                    initiator_depth: rep.initiator_depth,
                    flow_control: rep.end_to_end_flow_control,
                    retry_count: 7,
                    rnr_retry_count: rep.rnr_retry_count,
                    srq: rep.srq,
                    vendor: VendorOptions::default(),
                };
                let answer = Answer {
                    terms,
                    private_data: &rep.private_data,
                };
                agent
                    .accept(Time(1), conn.expect("asked"), &answer)
                    .expect("asked");
            }
            CmMessage::SidrRep(rep) => {
                let answer = DatagramAnswer {
                    qpn: rep.qpn,
                    qkey: rep.qkey,
                    vendor: VendorOptions::default(),
                    private_data: &rep.private_data,
                };
                agent
                    .accept_datagram(conn.expect("asked"), &answer)
                    .expect("asked");
            }
            CmMessage::Dreq(_) => {
                agent
                    .disconnect(Time(2), conn.expect("there"))
                    .expect("there");
            }
            CmMessage::Rej(rej) => assert_eq!(rej.reason, RejReason::INVALID_SERVICE_ID),
            CmMessage::Drep(_) => {}
            other => panic!("a server sends {other:?}"),
        }
        let (our_header, ours) = sent(&mut agent);
        assert_same("as a server", &ours, &message);
        if !matches!(ours, CmMessage::Dreq(_)) {
            assert_eq!(our_header, header, "the MAD's header");
        }
    }
}

fn check_incoming(incoming: &urxe_core::cm::Incoming, message: &CmMessage) {
    let header = match message {
        CmMessage::Req(req) => {
            assert_eq!(incoming.terms.qpn, req.local_qpn);
            assert_eq!(incoming.terms.responder_resources, req.initiator_depth);
            assert_eq!(incoming.transport, Some(Transport::Rc));
            assert_eq!(incoming.path_mtu, Mtu::Mtu1024);
            assert_eq!(incoming.ack_timeout, 17);
            ip_header(&req.private_data)
        }
        CmMessage::SidrReq(req) => {
            assert_eq!(incoming.transport, None);
            assert_eq!(incoming.terms.qpn, Qpn::new(0));
            ip_header(&req.private_data)
        }
        other => panic!("{other:?} is no request"),
    };
    assert_eq!(incoming.remote_port, header.src_port);
}

#[test]
fn rping() {
    if let Some(mads) = capture("cm_rping.pcap") {
        assert_eq!(mads.len(), 5);
        as_client(&mads);
        as_server(&mads, true);
    }
}

#[test]
fn ucmatose() {
    if let Some(mads) = capture("cm_ucmatose.pcap") {
        as_client(&mads);
        as_server(&mads, true);
    }
}

#[test]
fn udaddy() {
    if let Some(mads) = capture("cm_udaddy.pcap") {
        as_client(&mads);
        as_server(&mads, true);
    }
}

#[test]
fn a_refusal() {
    if let Some(mads) = capture("cm_reject.pcap") {
        as_client(&mads);
        as_server(&mads, false);
    }
}
