//! Datagrams and multicast over real sockets.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use urxe::{
    AddressHandle, AddressVector, Context, ErrorKind, Gid, McastError, ModifyError, Mr, PostError,
    Qkey, QpState, QpType, Qpn, RecvWr, SendWr, SrqAttr, Wc,
};

const QKEY: Qkey = Qkey(0x1111_1111);
const GRH: usize = 40;

struct Node {
    end: End,
    memory: Mr,
}

impl Node {
    fn open() -> Node {
        Node::at(address())
    }

    fn at(addr: IpAddr) -> Node {
        Node::on(Context::open(addr).expect("the address is free"), false)
    }

    fn on(context: Context, blocks_own: bool) -> Node {
        let end = End::with(context, |qp| {
            let qp = qp.qp_type(QpType::Ud);
            if blocks_own {
                qp.block_self_mcast_lb()
            } else {
                qp
            }
        });
        end.qp.start_datagrams(QKEY).expect("starts");
        let memory = end.memory(8192);
        Node { end, memory }
    }

    fn expect(&self, wr_id: u64) {
        self.end.recv(wr_id, &self.memory);
    }

    fn ah(&self, to: IpAddr) -> AddressHandle {
        self.end.pd.create_ah_to(to).expect("a path")
    }

    fn address(&self) -> IpAddr {
        self.end.context.address()
    }

    fn send(&self, ah: &AddressHandle, to: &Node, text: &[u8]) {
        let wr = SendWr::send_inline(1, text).ud_addr(ah, to.end.qp.qp_num(), QKEY);
        self.end.qp.post_send(&wr).expect("posts");
    }

    fn send_to_group(&self, group: IpAddr, text: &[u8]) {
        let ah = self.ah(group);
        let wr = SendWr::send_inline(1, text).ud_addr(&ah, Qpn::MULTICAST, QKEY);
        self.end.qp.post_send(&wr).expect("posts");
    }

    /// The next datagram's text.
    #[track_caller]
    fn receive(&self) -> (Wc, Vec<u8>) {
        let wc = self.end.succeed();
        let mut text = vec![0; wc.byte_len as usize - GRH];
        self.memory.read(GRH, &mut text);
        (wc, text)
    }

    fn grh(&self) -> [u8; GRH] {
        let mut grh = [0; GRH];
        self.memory.read(0, &mut grh);
        grh
    }

    fn attach(&self, group: IpAddr) {
        self.end.qp.attach_mcast(group.into()).expect("attaches");
    }

    fn dropped(&self, what: &str) -> u64 {
        self.end.counter(what)
    }
}

/// A question and an answer to where it came from.
fn ask_and_answer(alice: &Node, bob: &Node) {
    alice.expect(1);
    bob.expect(2);
    let ah = alice.ah(bob.address());
    alice.send(&ah, bob, b"a question");
    // What the post needs of the handle it has copied.
    drop(ah);
    let (wc, text) = bob.receive();
    assert_eq!(text, b"a question");
    assert!(wc.grh);
    assert_eq!(wc.src_qp, alice.end.qp.qp_num());
    let grh = bob.grh();
    let path = bob
        .end
        .context
        .init_ah_from_wc(1, &wc, &grh)
        .expect("valid");
    assert_eq!((path.local, path.remote), (bob.address(), alice.address()));
    let back = bob.end.pd.create_ah_from_wc(&wc, &grh).expect("valid");
    assert_eq!(back.query(), path);
    let answer = SendWr::send_inline(3, b"an answer").ud_addr(&back, wc.src_qp, QKEY);
    bob.end.qp.post_send(&answer.signaled()).expect("posts");
    assert_eq!(bob.end.succeed().wr_id, 3);
    assert_eq!(alice.receive().1, b"an answer");
}

#[test]
fn a_question_and_an_answer_over_ipv4() {
    ask_and_answer(&Node::open(), &Node::open());
}

#[test]
fn a_question_and_an_answer_within_one_context() {
    let context = Context::open(address()).expect("the address is free");
    ask_and_answer(&Node::on(context.clone(), false), &Node::on(context, false));
}

#[test]
fn a_question_and_an_answer_over_ipv6() {
    // The only IPv6 address that every host has: both ends are at it. Another test binary
    // may have it for a moment.
    let (addr, _turn) = v6_in_turn();
    let mut context = None;
    wait_until("the address", || match Context::open(addr) {
        Ok(opened) => {
            context = Some(opened);
            true
        }
        Err(error) => match error.kind() {
            ErrorKind::AddrInUse(_) => false,
            ErrorKind::NoAddress(_) => {
                eprintln!("skipped: this host has no IPv6");
                true
            }
            _ => panic!("{error}"),
        },
    });
    if let Some(context) = context {
        let (alice, bob) = (Node::on(context.clone(), false), Node::on(context, false));
        ask_and_answer(&alice, &bob);
        let grh = bob.grh();
        assert_eq!(grh[0] >> 4, 6, "the packet's own header");
    }
}

/// The traffic class in the header before the datagram that `node` received.
fn traffic_class(node: &Node) -> u8 {
    let grh = node.grh();
    match node.address() {
        IpAddr::V4(_) => grh[21],
        IpAddr::V6(_) => grh[0] << 4 | grh[1] >> 4,
    }
}

#[test]
fn the_header_of_a_datagram_has_its_traffic_class() {
    const CLASS: u8 = 26 << 2;
    let group = "239.77.1.9".parse().expect("an address");
    let mut nodes = vec![(Node::open(), Node::open())];
    let (v6, _turn) = v6_in_turn();
    match Context::open(v6) {
        Ok(context) => {
            let node = || Node::on(context.clone(), false);
            nodes.push((node(), node()));
        }
        Err(error) => eprintln!("skipped over IPv6: {error}"),
    }
    for (alice, bob) in &nodes {
        let to = alice.ah(bob.address()).query();
        for traffic_class in [CLASS, 0, CLASS + 1] {
            let path = AddressVector {
                traffic_class,
                ..to
            };
            let ah = alice.end.pd.create_ah(&path).expect("a path");
            bob.expect(1);
            alice.send(&ah, bob, b"x");
            bob.receive();
            assert_eq!(self::traffic_class(bob), traffic_class, "{path:?}");
        }
    }
    let (alice, bob) = &nodes[0];
    bob.attach(group);
    bob.expect(2);
    let path = AddressVector {
        traffic_class: CLASS,
        ..alice.ah(group).query()
    };
    let ah = alice.end.pd.create_ah(&path).expect("a path");
    let wr = SendWr::send_inline(1, b"all").ud_addr(&ah, Qpn::MULTICAST, QKEY);
    alice.end.qp.post_send(&wr).expect("posts");
    bob.receive();
    assert_eq!(traffic_class(bob), CLASS, "to a group");
}

#[test]
fn one_handle_serves_many_qps_and_many_datagrams_at_once() {
    let (alice, bob) = (Node::open(), Node::open());
    let more = bob.end.pd.qp(&bob.end.cq).qp_type(QpType::Ud);
    let other = more.create().expect("a QP");
    other.start_datagrams(Qkey(0x77)).expect("starts");
    let memory = bob.end.memory(64 * 128);
    let ah = alice.ah(bob.address());
    let texts: Vec<String> = (0..64).map(|k| format!("datagram {k}")).collect();
    for k in 0..64 {
        let qp = if k % 2 == 0 { &bob.end.qp } else { &other };
        let at = k as usize * 128;
        let sges = [memory.sge(at..at + 128)];
        qp.post_recv(&RecvWr::new(k, &sges)).expect("room");
    }
    let wrs: Vec<SendWr<'_>> = (0..64)
        .map(|k| {
            let wr = SendWr::send_inline(k, texts[k as usize].as_bytes());
            if k % 2 == 0 {
                wr.ud_addr(&ah, bob.end.qp.qp_num(), QKEY)
            } else {
                wr.ud_addr(&ah, other.qp_num(), Qkey(0x77))
            }
        })
        .collect();
    alice.end.qp.post_send_list(&wrs).expect("posts");
    let mut seen = Vec::new();
    for _ in 0..64 {
        let wc = bob.end.succeed();
        let text = &texts[wc.wr_id as usize];
        let mut got = vec![0; wc.byte_len as usize - GRH];
        memory.read(wc.wr_id as usize * 128 + GRH, &mut got);
        assert_eq!(got, text.as_bytes());
        seen.push(wc.wr_id);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..64).collect::<Vec<_>>());
}

#[test]
fn datagrams_to_several_qps_take_receives_of_a_shared_queue() {
    let (alice, context) = (Node::open(), Context::open(address()).expect("free"));
    let (pd, cq) = (
        context.alloc_pd().expect("a PD"),
        context.create_cq(16).expect("a CQ"),
    );
    let srq = pd.create_srq(&SrqAttr::default()).expect("an SRQ");
    let open = || {
        let qp = pd.qp(&cq).qp_type(QpType::Ud).srq(&srq).create();
        let qp = qp.expect("a QP");
        qp.start_datagrams(QKEY).expect("starts");
        qp
    };
    let qps = [open(), open()];
    let memory = pd.reg_owned(vec![0; 4 * 128], ALL).expect("memory");
    for wr_id in 0..4 {
        let at = wr_id as usize * 128;
        srq.post_recv(&RecvWr::new(wr_id, &[memory.sge(at..at + 128)]))
            .expect("room");
    }
    let ah = alice.ah(context.address());
    for (wr_id, qp) in [(0, &qps[0]), (1, &qps[1]), (2, &qps[0]), (3, &qps[1])] {
        let text = format!("datagram {wr_id}");
        let wr = SendWr::send_inline(1, text.as_bytes()).ud_addr(&ah, qp.qp_num(), QKEY);
        alice.end.qp.post_send(&wr).expect("posts");
        let wc = poll(&cq);
        assert!(wc.is_success(), "{wc}");
        assert_eq!((wc.wr_id, wc.qp_num), (wr_id, qp.qp_num()));
        let mut got = vec![0; text.len()];
        memory.read(wr_id as usize * 128 + GRH, &mut got);
        assert_eq!(got, text.as_bytes());
    }
}

#[test]
fn what_cannot_be_received_is_dropped_and_counted() {
    let (alice, bob) = (Node::open(), Node::open());
    let ah = alice.ah(bob.address());
    alice.send(&ah, &bob, b"nobody expects it");
    wait_until("the drop", || bob.dropped("drop_no_receive") == 1);
    let short = [bob.memory.sge(..GRH + 4)];
    bob.end.qp.post_recv(&RecvWr::new(1, &short)).expect("room");
    alice.send(&ah, &bob, b"too long");
    wait_until("the drop", || bob.dropped("drop_receive_too_short") == 1);
    let wrong = SendWr::send_inline(1, b"x").ud_addr(&ah, bob.end.qp.qp_num(), Qkey(1));
    alice.end.qp.post_send(&wrong).expect("posts");
    wait_until("the drop", || bob.dropped("drop_qkey") == 1);
    let nobody = Qpn::new(bob.end.qp.qp_num().get() ^ 1);
    let lost = SendWr::send_inline(1, b"x").ud_addr(&ah, nobody, QKEY);
    alice.end.qp.post_send(&lost).expect("posts");
    wait_until("the drop", || bob.dropped("drop_no_qp") == 1);
    // A datagram to a connected QP.
    let connected = bob.end.pd.qp(&bob.end.cq).create().expect("a QP");
    let wrong = SendWr::send_inline(1, b"x").ud_addr(&ah, connected.qp_num(), QKEY);
    alice.end.qp.post_send(&wrong).expect("posts");
    wait_until("the drop", || bob.dropped("drop_service") == 1);
    alice.send(&ah, &bob, b"fits");
    assert_eq!(bob.receive().1, b"fits");
    assert_eq!(bob.end.qp.state().expect("known"), QpState::Rts);
}

#[test]
fn bad_handles_and_posts_are_refused() {
    let (alice, bob) = (Node::open(), Node::open());
    let path = AddressVector {
        local: alice.address(),
        remote: bob.address(),
        traffic_class: 0,
        hop_limit: 64,
    };
    let create = |path: AddressVector| {
        let error = alice.end.pd.create_ah(&path).expect_err("refused");
        error.kind().clone()
    };
    let foreign = bob.address();
    assert_eq!(
        create(AddressVector {
            local: foreign,
            ..path
        }),
        ErrorKind::ForeignAddress(foreign)
    );
    let v6 = "fd00::1".parse().expect("an address");
    assert!(matches!(
        create(AddressVector { remote: v6, ..path }),
        ErrorKind::Modify(ModifyError::Path(_))
    ));

    let refused = |wr: SendWr<'_>| {
        let error = alice.end.qp.post_send(&wr).expect_err("refused");
        assert_eq!(error.errno(), 22, "EINVAL");
        error.kind().clone()
    };
    let wr = SendWr::send_inline(1, b"x");
    assert_eq!(refused(wr), ErrorKind::Post(PostError::NoAddress));
    let other_pd = alice.end.context.alloc_pd().expect("a PD");
    let ah = other_pd.create_ah(&path).expect("a path");
    let qpn = bob.end.qp.qp_num();
    assert_eq!(
        refused(wr.ud_addr(&ah, qpn, QKEY)),
        ErrorKind::Post(PostError::ForeignAddress)
    );
    let ah = alice.end.pd.create_ah(&path).expect("a path");
    let sges = [alice.memory.sge(..4097)];
    assert_eq!(
        refused(SendWr::send(1, &sges).ud_addr(&ah, qpn, QKEY)),
        ErrorKind::Post(PostError::DatagramTooLong {
            given: 4097,
            max: 4096
        })
    );
    let sges = [alice.memory.sge(..8)];
    let read = SendWr::rdma_read(1, &sges, 0, bob.memory.rkey());
    assert!(matches!(
        refused(read.ud_addr(&ah, qpn, QKEY)),
        ErrorKind::Post(PostError::NotCarried { .. })
    ));
}

#[test]
fn an_answer_needs_a_datagrams_completion_and_its_header() {
    let (alice, bob) = (Node::open(), Node::open());
    bob.expect(1);
    let ah = alice.ah(bob.address());
    alice.send(&ah, &bob, b"x");
    let (wc, _) = bob.receive();
    let grh = bob.grh();
    let refused = |port, wc: &Wc, grh: &[u8; GRH]| {
        let error = bob.end.context.init_ah_from_wc(port, wc, grh);
        error.expect_err("refused").kind().clone()
    };
    let is_path = |kind| matches!(kind, ErrorKind::Modify(ModifyError::Path(_)));
    assert!(is_path(refused(1, &Wc { grh: false, ..wc }, &grh)));
    assert!(is_path(refused(1, &wc, &[0; GRH])));
    let mut spoilt = grh;
    spoilt[30] ^= 1;
    assert!(is_path(refused(1, &wc, &spoilt)), "the checksum shows it");
    assert!(matches!(refused(2, &wc, &grh), ErrorKind::Value { .. }));
    let other = Node::open();
    let error = other.end.context.init_ah_from_wc(1, &wc, &grh);
    let error = error.expect_err("sent to somebody else");
    assert_eq!(*error.kind(), ErrorKind::ForeignAddress(bob.address()));
}

#[test]
fn a_controlled_qkey_stands_for_the_qps_own() {
    let (alice, bob) = (Node::open(), Node::open());
    bob.expect(1);
    let ah = alice.ah(bob.address());
    let controlled = Qkey(0x8000_0001);
    let wr = SendWr::send_inline(1, b"own").ud_addr(&ah, bob.end.qp.qp_num(), controlled);
    alice.end.qp.post_send(&wr).expect("posts");
    assert_eq!(bob.receive().1, b"own");
    // To give a QP such a key takes a privilege, as with the kernel.
    let qp = alice.end.pd.qp(&alice.end.cq).qp_type(QpType::Ud);
    let qp = qp.create().expect("a QP");
    let privileged = qp.start_datagrams(controlled);
    match privileged {
        Ok(()) => assert_eq!(qp.query().expect("known").qkey, controlled),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Privilege(_)), "{error}");
            assert_eq!(error.errno(), 1, "EPERM");
            assert_eq!(qp.state().expect("known"), QpState::Reset);
        }
    }
}

#[test]
fn who_sleeps_is_woken_by_a_datagram() {
    let (alice, bob) = (Node::open(), Node::open());
    let ah = alice.ah(bob.address());
    bob.expect(1);
    bob.end.cq.req_notify(false).expect("has a channel");
    alice.send(&ah, &bob, b"wake up");
    let event = bob.end.channel.wait_timeout(PATIENCE).expect("waits");
    assert!(event.is_some());
    assert_eq!(bob.receive().1, b"wake up");
}

#[test]
fn members_of_a_group_each_receive_one_copy() {
    let group = group();
    let (sender, outsider) = (Node::open(), Node::open());
    let first = Node::open();
    // Two QPs of one context, and one of another.
    let second = Node::on(first.end.context.clone(), false);
    let third = Node::open();
    for node in [&first, &second, &third] {
        node.attach(group);
    }
    for node in [&first, &second, &third, &outsider] {
        for wr_id in 0..4 {
            node.expect(wr_id);
        }
    }
    sender.send_to_group(group, b"to all");
    for node in [&first, &second, &third] {
        let (wc, text) = node.receive();
        assert_eq!(text, b"to all");
        assert_eq!((wc.wr_id, wc.src_qp), (0, sender.end.qp.qp_num()));
        let path = node.end.context.init_ah_from_wc(1, &wc, &node.grh());
        let path = path.expect("an answer goes to the sender");
        assert_eq!(
            (path.local, path.remote),
            (node.address(), sender.address())
        );
    }
    third.end.qp.detach_mcast(group.into()).expect("detaches");
    let again = third.end.qp.detach_mcast(group.into());
    assert_eq!(
        *again.expect_err("not attached").kind(),
        ErrorKind::Mcast(McastError::NotAttached(group))
    );
    sender.send_to_group(group, b"once more");
    for node in [&first, &second] {
        let (wc, text) = node.receive();
        // One copy: the second receive is for the second datagram.
        assert_eq!((wc.wr_id, text.as_slice()), (1, &b"once more"[..]));
    }
    // A marker through the same socket: what would have come before it did not.
    let ah = sender.ah(third.address());
    sender.send(&ah, &third, b"marker");
    assert_eq!(third.receive().1, b"marker");
    let ah = sender.ah(outsider.address());
    sender.send(&ah, &outsider, b"marker");
    assert_eq!(outsider.receive().1, b"marker");
}

/// Set in a process that is to be a member: address and group.
const MEMBER: &str = "URXE_TEST_MEMBER";

/// What another process does: becomes a member, says so, and prints what it receives.
fn be_a_member(what: &str) {
    let (addr, group) = what.split_once('/').expect("address/group");
    let node = Node::at(addr.parse().expect("an address"));
    node.expect(1);
    node.attach(group.parse().expect("a group"));
    println!("\nis a member");
    let text = node.receive().1;
    println!("\nreceived {}", String::from_utf8_lossy(&text));
}

#[test]
fn members_in_several_processes_each_receive_a_copy() {
    if let Ok(what) = std::env::var(MEMBER) {
        return be_a_member(&what);
    }
    let (group, sender) = (group(), Node::open());
    let test = std::env::current_exe().expect("a path");
    let mut members: Vec<_> = (0..3)
        .map(|_| {
            let mut child = Command::new(&test)
                .args([
                    "datagrams::members_in_several_processes_each_receive_a_copy",
                    "--exact",
                ])
                .arg("--nocapture")
                .env(MEMBER, format!("{}/{group}", address()))
                .stdout(Stdio::piped())
                .spawn()
                .expect("it runs");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            (child, lines.map(|line| line.expect("text")))
        })
        .collect();
    for (_, lines) in &mut members {
        assert!(lines.any(|line| line == "is a member"));
    }
    sender.send_to_group(group, b"to every process");
    for (mut child, mut lines) in members {
        assert!(lines.any(|line| line == "received to every process"));
        assert!(child.wait().expect("ends").success());
    }
}

#[test]
fn a_member_hears_itself_unless_it_blocks_that() {
    let group = group();
    let (open, blocking) = (
        Node::open(),
        Node::on(Context::open(address()).expect("free"), true),
    );
    for node in [&open, &blocking] {
        node.attach(group);
        node.expect(1);
        node.expect(2);
    }
    blocking.send_to_group(group, b"from the one that blocks");
    assert_eq!(open.receive().1, b"from the one that blocks");
    open.send_to_group(group, b"from the other");
    assert_eq!(open.receive().1, b"from the other");
    // Its own was the first to arrive, but is not the first it hears.
    assert_eq!(blocking.receive().1, b"from the other");
}

/// A thread that sleeps before the group's socket exists must hear of it.
#[test]
fn who_slept_before_the_group_was_joined_is_woken_by_its_datagrams() {
    let group = group();
    let (sender, member) = (Node::open(), Node::open());
    member.expect(1);
    member.end.cq.req_notify(false).expect("has a channel");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| member.end.channel.wait_timeout(PATIENCE).expect("waits"));
        // Whichever of them is first: both orders must work.
        std::thread::sleep(Duration::from_millis(20));
        member.attach(group);
        sender.send_to_group(group, b"wake up");
        assert!(waiter.join().expect("no panic").is_some());
    });
    assert_eq!(member.receive().1, b"wake up");
}

#[test]
fn what_cannot_be_attached_is_refused() {
    let node = Node::open();
    let attach = |gid: Gid| {
        let error = node.end.qp.attach_mcast(gid).expect_err("refused");
        assert_eq!(error.errno(), 22, "EINVAL");
        error.kind().clone()
    };
    let unicast: IpAddr = "10.1.2.3".parse().expect("an address");
    assert_eq!(
        attach(unicast.into()),
        ErrorKind::Mcast(McastError::NotAGroup(unicast))
    );
    let v6: IpAddr = "ff12::1".parse().expect("a group");
    assert_eq!(attach(v6.into()), ErrorKind::NoAddressForGroup(v6));
    let connected = node.end.pd.qp(&node.end.cq).create().expect("a QP");
    let error = connected.attach_mcast(group().into()).expect_err("refused");
    assert_eq!(*error.kind(), ErrorKind::Mcast(McastError::NotDatagrams));
    let limits = node.end.context.query_device();
    assert!(limits.max_mcast_grp > 0 && limits.max_mcast_qp_attach > 0);
    // The older form of an IPv4 group's GID names the same group.
    let older: IpAddr = "ff0e::ffff:239.9.8.7".parse().expect("a group");
    let newer: IpAddr = "239.9.8.7".parse().expect("a group");
    node.end.qp.attach_mcast(older.into()).expect("attaches");
    node.end.qp.detach_mcast(newer.into()).expect("detaches");
}
