//! Which QP of a shard sends how much, and what goes before what.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use crate::support::{IOVA, Node, PD, RECV_CQ, SEND_CQ, Settings};
use urxe_core::congestion::CongestionControl;
use urxe_core::qp::attr::{Mtu, QpCap};
use urxe_core::qp::state::QpType;
use urxe_core::table::QpIndex;
use urxe_core::transmit::TxBatch;
use urxe_core::work::{RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, QpInit, RxPath, Time};
use urxe_wire::{
    Aeth, Bth, CreditCode, IcrcPolicy, IcrcSeed, Msn, Opcode, Packet, PacketWriter, PathHeader,
    Psn, Qpn, Reth, Syndrome, packet_len,
};

/// Batches as the simulator has them, and as sockets do.
const BATCHES: [usize; 2] = [4096 + 64, 128 << 10];

/// Bytes that a READ asks for.
const READ: u32 = 1 << 20;
/// ICRCs are not looked at.
const SOMEWHERE: PathHeader = PathHeader::V4 {
    src: [0; 4],
    dst: [0; 4],
    sport: 0,
    dport: 0,
};

fn settings(batch_bytes: usize) -> Settings {
    Settings {
        mtu: Mtu::Mtu1024,
        batch_bytes,
        window_bytes: 64 << 20,
        memory: 2 << 20,
        icrc: IcrcPolicy::Skip,
        cap: QpCap {
            max_send_wr: 2048,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        },
        ..Settings::default()
    }
}

/// One host with many QPs, each to a peer of its own that never answers.
struct Host {
    node: Node,
    qps: Vec<(QpIndex, Qpn)>,
    now: Time,
    /// All peers have one address.
    is_one_peer: bool,
}

impl Host {
    fn new(s: &Settings) -> Host {
        Host {
            node: Node::new(0, s),
            qps: Vec::new(),
            now: Time::ZERO,
            is_one_peer: false,
        }
    }

    fn peer(place: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 1, place as u8))
    }

    /// Adds a QP; its peer has its place as its number.
    fn add(&mut self, s: &Settings) -> usize {
        let init = QpInit {
            pd: PD,
            qp_type: s.qp_type,
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            cap: s.cap,
            sq_sig_all: false,
            srq: None,
            xrcd: None,
            block_self_mcast_lb: false,
        };
        let (qp, qpn) = self.node.shard.create_qp(&init).expect("creates");
        let place = self.qps.len();
        (self.node.qp, self.node.qpn) = (qp, qpn);
        let peer = Host::peer(if self.is_one_peer { 0 } else { place });
        self.node.connect(s, 0, peer, Qpn::new(place as u32 + 2));
        self.qps.push((qp, qpn));
        place
    }

    fn post(&mut self, place: usize, opcode: WrOpcode, length: u32) {
        let sges = [Sge {
            addr: IOVA,
            length,
            lkey: self.node.keys.lkey,
        }];
        let mut wr = SendWr::new(1, opcode, WrData::Sges(&sges));
        wr.remote_addr = IOVA;
        wr.rkey = self.node.keys.rkey;
        let (now, qp) = (self.now, self.qps[place].0);
        self.node
            .with_env(now, |s, env| s.post_send(qp, &wr, env))
            .expect("posts");
    }

    fn receive(&mut self, place: usize) {
        let sges = [Sge {
            addr: IOVA,
            length: 1 << 16,
            lkey: self.node.keys.lkey,
        }];
        let wr = RecvWr {
            wr_id: 1,
            sges: &sges,
        };
        let (now, qp) = (self.now, self.qps[place].0);
        self.node
            .with_env(now, |s, env| s.post_recv(qp, &wr, env))
            .expect("posts");
    }

    /// A batch: of each packet its QP, its opcode and its length; and how long each run is.
    fn poll(&mut self, acks: AckMode) -> (Vec<(usize, Opcode, usize)>, Vec<usize>) {
        let none = TxBatch::new(0, urxe_core::transmit::RunLimits::SINGLE);
        let mut batch = std::mem::replace(&mut self.node.batch, none);
        let now = self.now;
        let _ = self
            .node
            .with_env(now, |s, env| s.poll_transmit(env, &mut batch, acks));
        let mut packets = Vec::new();
        for run in batch.runs() {
            for bytes in run.packets(&batch.bytes()[run.range.clone()]) {
                let packet = Packet::parse(bytes).expect("a packet");
                let place = packet.bth().dest_qp.get() as usize - 2;
                packets.push((place, packet.bth().opcode, bytes.len()));
            }
        }
        let runs = batch.runs().iter().map(|run| run.segments()).collect();
        batch.clear();
        self.node.batch = batch;
        (packets, runs)
    }

    /// The next timers are over: packets of each QP.
    fn after_timeout(&mut self) -> BTreeMap<usize, usize> {
        self.now = self.node.shard.next_timeout().expect("some wait");
        let now = self.now;
        self.node.with_env(now, |s, env| s.handle_timeout(env));
        packets_of_each(self)
    }

    /// Bytes of each QP in so many batches.
    fn shares(&mut self, batches: usize) -> BTreeMap<usize, usize> {
        let mut shares: BTreeMap<usize, usize> = (0..self.qps.len()).map(|q| (q, 0)).collect();
        for _ in 0..batches {
            for (place, _, len) in self.poll(AckMode::Now).0 {
                *shares.entry(place).or_default() += len;
            }
        }
        shares
    }

    /// The peer acknowledges so many packets, from the first on.
    fn acknowledge(&mut self, place: usize, packets: u32) {
        let opcode = Opcode::RC_ACKNOWLEDGE;
        let info = opcode.info().expect("known");
        let mut bytes = vec![0; packet_len(info, 0)];
        let bth = Bth::new(opcode, self.qps[place].1, Psn::new(0x100 + packets - 1));
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        writer.aeth(&Aeth {
            syndrome: Syndrome::ack(CreditCode::UNLIMITED),
            msn: Msn::new(0),
        });
        writer.finish(&IcrcSeed::new(&SOMEWHERE), 0);
        self.arrive(place, &bytes);
    }

    fn arrive(&mut self, place: usize, bytes: &[u8]) {
        let peer = Host::peer(if self.is_one_peer { 0 } else { place });
        let path = RxPath::new(peer, 4791, self.node.addr, 0);
        let now = self.now;
        self.node
            .with_env(now, |s, env| s.handle_packet(&path, 0, bytes, env));
    }

    /// The `nth` request of a peer arrives: a message of 8 bytes, or one that asks for many.
    fn hear(&mut self, place: usize, nth: u32, opcode: Opcode) {
        let len = if opcode == Opcode::RC_READ_REQUEST {
            0
        } else {
            8
        };
        let info = opcode.info().expect("known");
        let mut bytes = vec![0; packet_len(info, len)];
        let mut bth = Bth::new(opcode, self.qps[place].1, Psn::new(0x200 + nth));
        bth.ack_req = true;
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        if opcode == Opcode::RC_READ_REQUEST {
            writer.reth(&Reth {
                va: IOVA,
                rkey: self.node.keys.rkey,
                dma_len: READ,
            });
        }
        writer.payload_mut(len);
        writer.finish(&IcrcSeed::new(&SOMEWHERE), 0);
        self.arrive(place, &bytes);
    }
}

fn assert_even(shares: &BTreeMap<usize, usize>, what: &str) {
    let (least, most) = (shares.values().min(), shares.values().max());
    let (least, most) = (*least.expect("some"), *most.expect("some"));
    assert!(
        least > 0 && most * 10 <= least * 11,
        "{what}: bytes of each QP: {shares:?}"
    );
}

/// Turns that are enough to see shares to a tenth.
fn rounds(batch: usize, qps: usize) -> usize {
    qps * if batch < 10_000 { 40 } else { 4 }
}

#[test]
fn qps_with_much_to_send_get_as_many_bytes_each() {
    for batch in BATCHES {
        for qp_type in [QpType::Rc, QpType::Uc] {
            for mtus in [[Mtu::Mtu1024; 5], {
                let [a, b] = [Mtu::Mtu1024, Mtu::Mtu4096];
                [a, b, a, Mtu::Mtu2048, b]
            }] {
                let mut host = Host::new(&settings(batch));
                for mtu in mtus {
                    let s = Settings {
                        mtu,
                        qp_type,
                        ..settings(batch)
                    };
                    let place = host.add(&s);
                    host.post(place, WrOpcode::RdmaWrite, 1 << 20);
                }
                let shares = host.shares(rounds(batch, 5));
                assert_even(&shares, &format!("{batch} {qp_type:?} {mtus:?}"));
            }
        }
    }
}

#[test]
fn sizes_of_messages_do_not_decide_who_gets_more() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        for len in [1 << 20, 20_000, 3_000] {
            let place = host.add(&s);
            for _ in 0..((1 << 20) / len).min(1000) {
                host.post(place, WrOpcode::RdmaWrite, len);
            }
        }
        let shares = host.shares(rounds(batch, 3));
        assert_even(&shares, &format!("{batch}"));
    }
}

/// What tiny packets cost is time: a quantum holds 128 of them.
#[test]
fn a_turn_of_tiny_messages_is_a_train() {
    let s = settings(128 << 10);
    let mut host = Host::new(&s);
    for _ in 0..2 {
        host.add(&s);
    }
    for _ in 0..1000 {
        host.post(0, WrOpcode::RdmaWrite, 8);
    }
    host.post(1, WrOpcode::RdmaWrite, 1 << 20);
    let (mut tiny, mut bulk) = (0, 0);
    for _ in 0..6 {
        for (place, _, len) in host.poll(AckMode::Now).0 {
            match place {
                0 => tiny += 1,
                _ => bulk += len,
            }
        }
    }
    let quanta = bulk.div_ceil(128 << 10) + 1;
    assert!(
        (128..=128 * quanta).contains(&tiny),
        "{tiny} beside {bulk} bytes"
    );
}

#[test]
fn what_is_sent_again_is_shared_as_well() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        for _ in 0..4 {
            let place = host.add(&s);
            host.post(place, WrOpcode::RdmaWrite, 1 << 20);
        }
        let first = host.shares(rounds(batch, 4));
        assert_even(&first, "the first time");
        host.now = host.node.shard.next_timeout().expect("waits") + 1_000_000;
        let now = host.now;
        host.node.with_env(now, |s, env| s.handle_timeout(env));
        let again = host.node.shard.stats().retransmitted_pkts;
        // Windows are half as wide now.
        let shares = host.shares(rounds(batch, 4) / 4);
        assert!(host.node.shard.stats().retransmitted_pkts > again);
        assert_even(&shares, "again");
    }
}

#[test]
fn qps_under_congestion_control_get_as_much_as_others() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        for place in 0..4 {
            host.add(&s);
            if place % 2 == 0 {
                let window = CongestionControl::Window { bytes: 16 << 20 };
                let (qp, now) = (host.qps[place].0, host.now);
                let set = host.node.shard.set_congestion_control(qp, window, now);
                set.expect("sets");
            }
            host.post(place, WrOpcode::RdmaWrite, 1 << 20);
        }
        assert_even(&host.shares(rounds(batch, 4)), &format!("{batch}"));
    }
}

#[test]
fn answers_to_reads_are_shared_with_requests_and_each_other() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        for place in 0..4 {
            host.add(&s);
            if place < 3 {
                host.hear(place, 0, Opcode::RC_READ_REQUEST);
            } else {
                host.post(place, WrOpcode::RdmaWrite, READ);
            }
        }
        assert_even(&host.shares(rounds(batch, 4)), &format!("{batch}"));
    }
}

/// Neither direction of one QP waits until the other has nothing left.
#[test]
fn answers_and_requests_of_a_qp_take_turns() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        host.add(&s);
        host.hear(0, 0, Opcode::RC_READ_REQUEST);
        host.post(0, WrOpcode::RdmaWrite, READ);
        let mut shares = BTreeMap::from([(0, 0), (1, 0)]);
        for _ in 0..rounds(batch, 1) {
            for (_, opcode, len) in host.poll(AckMode::Now).0 {
                let is_response = opcode.info().expect("known").is_response();
                *shares.entry(usize::from(is_response)).or_default() += len;
            }
        }
        assert_even(&shares, &format!("{batch}"));
    }
}

#[test]
fn an_ack_goes_before_the_data_of_all_qps() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        for place in 0..8 {
            host.add(&s);
            host.post(place, WrOpcode::RdmaWrite, 1 << 20);
            host.receive(place);
            host.receive(place);
        }
        for (nth, quiet) in [(0, 5), (1, 11)] {
            for _ in 0..quiet {
                assert!(host.poll(AckMode::Now).0.iter().all(|p| !is_ack(p)));
            }
            // Of one that has just had its turn, of one that is in the middle of it, and of one that waits.
            for place in [0, 5, 7] {
                host.hear(place, nth, Opcode::RC_SEND_ONLY);
            }
            let packets = host.poll(AckMode::Now).0;
            let first: Vec<usize> = packets[..3].iter().map(|p| p.0).collect();
            assert!(packets[..3].iter().all(is_ack), "{batch}: {packets:?}");
            assert_eq!(first, [0, 5, 7], "{batch}");
            assert!(packets.len() > 3, "data goes on behind them");
        }
    }
}

/// The program has seen the message, and may answer it on any QP.
#[test]
fn an_answer_on_another_qp_follows_the_ack() {
    let s = settings(128 << 10);
    let mut host = Host::new(&s);
    for place in 0..3 {
        host.add(&s);
        host.receive(place);
    }
    host.hear(2, 0, Opcode::RC_SEND_ONLY);
    host.hear(0, 0, Opcode::RC_SEND_ONLY);
    assert_eq!(host.poll(AckMode::Defer).0, [], "held back");
    host.post(1, WrOpcode::RdmaWrite, 8);
    let packets = host.poll(AckMode::Defer).0;
    let order: Vec<usize> = packets.iter().map(|packet| packet.0).collect();
    assert_eq!(order, [2, 0, 1]);
    assert!(packets[..2].iter().all(is_ack), "{packets:?}");
}

fn is_ack(packet: &(usize, Opcode, usize)) -> bool {
    packet.1 == Opcode::RC_ACKNOWLEDGE
}

#[test]
fn a_short_message_does_not_wait_for_a_round() {
    for batch in BATCHES {
        let s = settings(batch);
        let mut host = Host::new(&s);
        for place in 0..64 {
            host.add(&s);
            host.post(place, WrOpcode::RdmaWrite, 1 << 20);
        }
        let short = host.add(&s);
        for _ in 0..20 {
            host.poll(AckMode::Now);
            host.post(short, WrOpcode::RdmaWrite, 8);
            let packets = host.poll(AckMode::Now).0;
            assert_eq!(packets[0].0, short, "{batch}");
        }
    }
}

/// A QP that sends a message at a time goes ahead of the round, but gets no more for that.
#[test]
fn who_goes_ahead_gets_no_more_than_others() {
    for batch in BATCHES {
        for len in [700, 4_000, 60_000] {
            let s = settings(batch);
            let mut host = Host::new(&s);
            for place in 0..4 {
                host.add(&s);
                if place > 0 {
                    host.post(place, WrOpcode::RdmaWrite, 1 << 20);
                }
            }
            let mut shares = BTreeMap::new();
            let mut has_sent = true;
            for _ in 0..rounds(batch, 4) {
                if has_sent {
                    host.post(0, WrOpcode::RdmaWrite, len);
                    has_sent = false;
                }
                for (place, opcode, len) in host.poll(AckMode::Now).0 {
                    *shares.entry(place).or_insert(0) += len;
                    let ends = [Opcode::RC_WRITE_ONLY, Opcode::RC_WRITE_LAST].contains(&opcode);
                    has_sent |= place == 0 && ends;
                }
            }
            let one = shares.remove(&0).expect("it sent");
            assert!(
                one * 10 <= shares[&1] * 12,
                "{batch} {len}: {one} {shares:?}"
            );
        }
    }
}

/// A list of short messages is no more than one of them: it ends where its right to go ahead does, an eighth of a quantum.
#[test]
fn a_list_that_goes_ahead_is_cut() {
    let s = settings(128 << 10);
    let mut host = Host::new(&s);
    for _ in 0..2 {
        host.add(&s);
    }
    host.post(1, WrOpcode::RdmaWrite, 1 << 20);
    host.poll(AckMode::Now);
    for _ in 0..100 {
        host.post(0, WrOpcode::RdmaWrite, 8);
    }
    let (packets, _) = host.poll(AckMode::Now);
    let ahead = packets.iter().take_while(|packet| packet.0 == 0).count();
    assert_eq!(ahead, 128 / 8);
}

/// Segmentation offload gets trains as long as those of a QP that is alone.
#[test]
fn trains_stay_whole() {
    let packets_in_a_run = |qps: usize| {
        let s = settings(128 << 10);
        let mut host = Host::new(&s);
        for place in 0..qps {
            host.add(&s);
            host.post(place, WrOpcode::RdmaWrite, 1 << 20);
        }
        let batches = (0..4 * qps).map(|_| host.poll(AckMode::Now).1);
        let runs: Vec<usize> = batches.flatten().collect();
        runs.iter().sum::<usize>() as f64 / runs.len() as f64
    };
    let alone = packets_in_a_run(1);
    for qps in [2, 5] {
        let together = packets_in_a_run(qps);
        assert!(together >= alone, "{together} with {qps}, {alone} alone");
    }
}

#[test]
fn who_has_nothing_left_saves_nothing_up() {
    let s = settings(4096 + 64);
    let mut host = Host::new(&s);
    for _ in 0..2 {
        host.add(&s);
    }
    host.post(0, WrOpcode::RdmaWrite, 1 << 20);
    for _ in 0..100 {
        host.poll(AckMode::Now);
    }
    host.post(1, WrOpcode::RdmaWrite, 1 << 20);
    assert_even(&host.shares(40), "from then on");
}

/// Streams to one address from one shard, one message each; what the shard may have under way there.
fn streams_to_one_address(count: usize, destination_bytes: u32, beside: u32) -> Host {
    let s = Settings {
        destination_bytes,
        destination_bytes_beside: beside,
        window_bytes: 512 << 10,
        ..settings(128 << 10)
    };
    let mut host = Host::new(&s);
    host.is_one_peer = true;
    for _ in 0..count {
        let place = host.add(&s);
        host.post(place, WrOpcode::RdmaWrite, 1 << 20);
    }
    host
}

/// Packets of each QP in all batches until nothing more may leave.
fn packets_of_each(host: &mut Host) -> BTreeMap<usize, usize> {
    let mut packets = BTreeMap::new();
    loop {
        let (batch, _) = host.poll(AckMode::Now);
        if batch.is_empty() {
            return packets;
        }
        for (place, ..) in batch {
            *packets.entry(place).or_default() += 1;
        }
    }
}

/// A receiver's buffer is one, whatever number of QPs send to it.
#[test]
fn qps_that_send_to_one_address_divide_what_may_be_under_way() {
    for (count, each) in [(1, 512), (2, 512), (8, 256), (64, 32)] {
        let mut host = streams_to_one_address(count, 2 << 20, 2 << 20);
        let packets = packets_of_each(&mut host);
        assert_eq!(packets.len(), count);
        assert!(packets.values().all(|&n| n == each), "{each}: {packets:?}");
    }
}

/// Packets of `MTU` in the train that a stream waits for.
const TRAIN: usize = 12;

/// Streams of which all wait for room, but the one that is returned: it has a packet under way, and its peer answers.
fn a_line(count: usize) -> (Host, usize) {
    let mut host = streams_to_one_address(count, 64 << 10, 64 << 10);
    let packets = packets_of_each(&mut host);
    assert_eq!(packets.len(), count, "none waits with its first packet");
    assert_eq!(packets[&0], TRAIN);
    assert_eq!(packets[&(count - 1)], 1);
    // Much is under way for peers that will not answer.
    for place in 6..count - 1 {
        host.acknowledge(place, 1);
        assert_eq!(packets_of_each(&mut host), BTreeMap::new());
    }
    (host, count - 1)
}

#[test]
fn streams_wait_in_line_for_a_train_each() {
    let mut host = streams_to_one_address(64, 64 << 10, 64 << 10);
    let (mut sent, mut under_way) = (vec![0; 64], VecDeque::new());
    for round in 0..2000 {
        for (place, packets) in packets_of_each(&mut host) {
            sent[place] += packets;
            under_way.push_back((place, sent[place]));
            // Until all have had their first packet back, there is less room.
            assert!(round < 100 || packets == TRAIN, "{place}: {packets}");
        }
        let (place, until) = under_way.pop_front().expect("there is room for some");
        host.acknowledge(place, until as u32);
        assert!(round < 100 || (4..=6).contains(&under_way.len()));
    }
    let (least, most) = (sent.iter().min(), sent.iter().max());
    let (least, most) = (*least.expect("some"), *most.expect("some"));
    assert!(most - least <= 2 * TRAIN, "{sent:?}");
}

#[test]
fn a_line_moves_on_when_nothing_comes_back() {
    let (mut host, last) = a_line(64);
    let all: Vec<usize> = (6..last).collect();
    // Something came back since most of them began to wait.
    let mut packets = host.after_timeout();
    packets.extend(host.after_timeout());
    assert!(packets.keys().eq(&all) && packets.values().all(|&n| n == 1));
    // As long as something does come back, it is for those that there is room for.
    all.iter().for_each(|&place| host.acknowledge(place, 2));
    assert_eq!(packets_of_each(&mut host), BTreeMap::new());
    host.acknowledge(last, 1);
    assert_eq!(host.after_timeout(), BTreeMap::new());
}

#[test]
fn a_small_message_does_not_wait_in_line() {
    let (mut host, _) = a_line(64);
    let small = host.add(&settings(128 << 10));
    for nth in 1..10 {
        host.post(small, WrOpcode::RdmaWrite, 8);
        assert_eq!(packets_of_each(&mut host), BTreeMap::from([(small, 1)]));
        host.acknowledge(small, nth);
    }
}

#[test]
fn a_stream_that_goes_leaves_the_line() {
    let (mut host, _) = a_line(64);
    for place in 6..10 {
        assert!(host.node.shard.destroy_qp(host.qps[place].0));
    }
    // Two trains come back.
    (0..2).for_each(|place| host.acknowledge(place, TRAIN as u32));
    assert!(
        packets_of_each(&mut host).keys().eq(&[10]),
        "there is room for one"
    );
    host.acknowledge(2, TRAIN as u32);
    assert!(packets_of_each(&mut host).keys().eq(&[11]));
}

#[test]
fn qps_that_send_to_many_addresses_have_windows_of_their_own() {
    let s = Settings {
        destination_bytes: 512 << 10,
        window_bytes: 512 << 10,
        ..settings(128 << 10)
    };
    let mut host = Host::new(&s);
    for _ in 0..5 {
        let place = host.add(&s);
        host.post(place, WrOpcode::RdmaWrite, 1 << 20);
    }
    let packets = packets_of_each(&mut host);
    assert!(packets.len() == 5 && packets.values().all(|&n| n == 512));
}

/// A destination's part is that of the QPs that have something to send, and goes with them.
#[test]
fn what_a_qp_leaves_is_for_the_others() {
    let mut host = streams_to_one_address(4, 512 << 10, 512 << 10);
    for place in 1..4 {
        assert!(host.node.shard.destroy_qp(host.qps[place].0));
    }
    assert_eq!(packets_of_each(&mut host), BTreeMap::from([(0, 512)]));
}

#[test]
fn streams_have_less_under_way_while_small_messages_go_beside_them() {
    let mut host = streams_to_one_address(1, 2 << 20, 64 << 10);
    let s = settings(128 << 10);
    let small = host.add(&s);
    assert_eq!(packets_of_each(&mut host), BTreeMap::from([(0, 512)]));
    host.post(small, WrOpcode::RdmaWrite, 8);
    assert_eq!(packets_of_each(&mut host), BTreeMap::from([(1, 1)]));
    // As much is under way already: another stream has the one packet that none is refused.
    let other = host.add(&s);
    host.post(other, WrOpcode::RdmaWrite, 1 << 20);
    assert_eq!(packets_of_each(&mut host), BTreeMap::from([(2, 1)]));
    // No small message for some time: the stream has what it had.
    host.now = Time(10_000_000);
    let third = host.add(&s);
    host.post(third, WrOpcode::RdmaWrite, 1 << 20);
    assert_eq!(packets_of_each(&mut host)[&3], 512);
}

/// What a QP waits for the others of its host says nothing of the road.
#[test]
fn a_path_is_as_long_as_the_shortest_round_trip_of_any_qp() {
    const MS: u64 = 1_000_000;
    let s = Settings {
        destination_bytes: 512 << 10,
        ..settings(BATCHES[1])
    };
    let mut host = Host::new(&s);
    host.is_one_peer = true;
    for place in 0..3 {
        host.add(&s);
        let (qp, now) = (host.qps[place].0, host.now);
        let shard = &mut host.node.shard;
        let set = shard.set_congestion_control(qp, CongestionControl::Auto, now);
        set.expect("an RC QP");
    }
    let has_model = |host: &Host, place: usize| {
        let report = host.node.shard.qp_report(host.qps[place].0);
        report.and_then(|it| it.path).expect("it sends").has_model
    };
    // One message of a QP, which is acknowledged after so long.
    let mut answered = [0; 3];
    let mut round_trip = |host: &mut Host, place: usize, ns: u64| {
        host.post(place, WrOpcode::RdmaWrite, 8);
        assert_eq!(host.poll(AckMode::Now).0.len(), 1);
        host.now = host.now + ns;
        answered[place] += 1;
        host.acknowledge(place, answered[place]);
        host.poll(AckMode::Now);
    };
    for _ in 0..7 {
        round_trip(&mut host, 0, 3 * MS);
        assert!(!has_model(&host, 0), "its host may have been busy");
    }
    round_trip(&mut host, 0, 3 * MS);
    assert!(has_model(&host, 0), "nothing shorter is known");
    round_trip(&mut host, 1, MS / 4);
    assert!(!has_model(&host, 1));
    round_trip(&mut host, 2, 30 * MS);
    assert!(!has_model(&host, 2), "the same path is short for another");
    round_trip(&mut host, 0, 3 * MS);
    assert!(!has_model(&host, 0), "it has learnt so, too");
}
