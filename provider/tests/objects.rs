//! Objects: what they tell, and that they may be dropped in any order.

use crate::common::{self, ALL, End, address, connect, pair};
use urxe::{
    Access, AttrMask, ConnectOptions, Context, ErrorKind, Mtu, PortSpeed, QpAttr, QpState, SendWr,
};

#[test]
fn the_loopback_device_is_listed_and_describes_itself() {
    let devices = urxe::devices().expect("a list");
    let loopback = "127.0.0.1".parse().expect("an address");
    let device = devices
        .iter()
        .find(|d| d.addresses().contains(&loopback))
        .expect("loopback");
    assert_eq!(device.name(), format!("urxe_{}", device.interface()));
    assert_eq!((device.mtu(), device.active_mtu()), (65_536, Mtu::Mtu4096));
    assert!(device.is_up());
}

#[test]
fn a_context_knows_its_port() {
    let addr = address();
    let context = Context::open(addr).expect("free");
    let port = context.query_port(1).expect("port 1");
    assert_eq!((port.gid_tbl_len, port.pkey_tbl_len), (1, 1));
    assert_eq!(
        context.query_gid(1, 0).expect("the only one"),
        urxe::Gid::from(addr)
    );
    assert!(context.query_gid(1, 1).is_err() && context.query_port(2).is_err());
    assert_eq!(port.speed, PortSpeed::default());
    let speed = PortSpeed::ALL[0];
    let slow = Context::builder(address())
        .speed(speed)
        .open()
        .expect("free");
    assert_eq!(slow.query_port(1).expect("port 1").speed, speed);
    let limits = context.query_device();
    let (cq, pd) = (
        context.create_cq(1).expect("a CQ"),
        context.alloc_pd().expect("a PD"),
    );
    let too_many = pd.qp(&cq).max_send_wr(limits.max_qp_wr + 1).create();
    assert_eq!(too_many.expect_err("one too many").errno(), 22);
    pd.qp(&cq)
        .max_send_wr(limits.max_qp_wr)
        .create()
        .expect("exactly as many");
}

#[test]
fn there_are_max_pd_domains_and_no_more() {
    let context = Context::open(address()).expect("free");
    let max = context.query_device().max_pd;
    let mut pds: Vec<_> = (0..max)
        .map(|_| context.alloc_pd().expect("there is room"))
        .collect();
    let error = context.alloc_pd().map(drop).expect_err("one too many");
    assert_eq!(error.kind(), &ErrorKind::TooManyPds(max));
    assert_eq!(error.errno(), 12, "ENOMEM");
    // Memory keeps its domain.
    let last = pds.pop().expect("it has one");
    let memory = last.reg_owned(vec![0; 64], ALL).expect("memory");
    drop(last);
    assert!(context.alloc_pd().is_err());
    drop(memory);
    context.alloc_pd().expect("there is room again");
}

#[test]
fn everything_may_be_dropped_in_any_order() {
    let (a, b) = pair();
    let memory = a.memory(64);
    let End {
        context,
        pd,
        channel,
        cq,
        qp,
    } = a;
    drop((context, pd, channel, cq));
    // The rest keeps alive what it needs.
    let to = b.memory(64);
    b.recv(1, &to);
    let sges = [memory.sge(..)];
    qp.post_send(&SendWr::send(1, &sges).signaled())
        .expect("room");
    b.succeed();
    assert!(common::poll(qp.send_cq()).is_success());
    let addr = memory.pd().context().address();
    drop(qp);
    let alone = || Context::builder(addr).share(false).open();
    assert!(alone().is_err(), "the region still holds the context");
    drop(memory);
    // Other tests start processes: until those exec, they have our sockets.
    common::wait_until("the port is free", || alone().is_ok());
}

#[test]
fn a_qp_can_be_reset_and_connected_again() {
    let (a, b) = pair();
    let (from, to) = (a.memory(8), b.memory(8));
    for round in 0..3 {
        b.recv(round, &to);
        a.qp.post_send(&SendWr::send(round, &[from.sge(..)]).signaled())
            .expect("room");
        assert_eq!((b.succeed().wr_id, a.succeed().wr_id), (round, round));
        for end in [&a, &b] {
            // What is outstanding is forgotten without a completion.
            end.recv(99, &to);
            end.qp.modify_state(QpState::Reset).expect("to RESET");
        }
        connect(&a.qp, &b.qp, &ConnectOptions::default());
    }
}

#[test]
fn attributes_are_what_was_set() {
    let (a, b) = (End::open(), End::open());
    let options = ConnectOptions {
        access: Access::REMOTE_READ,
        path_mtu: Some(Mtu::Mtu512),
        rd_atomic: 3,
        timeout: 18,
        retry_cnt: 5,
        rnr_retry: 6,
        min_rnr_timer: 9,
        traffic_class: 0x68,
    };
    connect(&a.qp, &b.qp, &options);
    let attr = a.qp.query().expect("there");
    assert_eq!(attr.qp_state, QpState::Rts);
    assert_eq!(
        (attr.path_mtu, attr.qp_access_flags),
        (Mtu::Mtu512, Access::REMOTE_READ)
    );
    assert_eq!(
        (
            attr.timeout,
            attr.retry_cnt,
            attr.rnr_retry,
            attr.min_rnr_timer
        ),
        (18, 5, 6, 9)
    );
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (3, 3));
    assert_eq!(
        (attr.dest_qp_num, attr.rq_psn),
        (b.qp.qp_num(), b.qp.endpoint().psn)
    );
    let path = attr.ah_attr.expect("a path");
    assert_eq!(
        (path.local, path.remote),
        (a.context.address(), b.context.address())
    );
    assert_eq!(path.traffic_class, 0x68);
    // Some are missing, and nothing changes.
    let missing = QpAttr {
        qp_state: QpState::Init,
        ..QpAttr::default()
    };
    let fresh = a.pd.qp(&a.cq).create().expect("a QP");
    assert!(fresh.modify(&missing, AttrMask::STATE).is_err());
    assert_eq!(fresh.state().expect("there"), QpState::Reset);
}

#[test]
fn numbers_and_keys_are_not_guessable() {
    let end = End::open();
    let qps: Vec<_> = (0..8)
        .map(|_| end.pd.qp(&end.cq).create().expect("a QP"))
        .collect();
    let regions: Vec<_> = (0..8).map(|_| end.memory(8)).collect();
    let steps = |numbers: Vec<u32>| {
        let mut steps: Vec<_> = numbers
            .windows(2)
            .map(|w| w[1].wrapping_sub(w[0]))
            .collect();
        steps.sort_unstable();
        steps.dedup();
        steps.len()
    };
    assert!(steps(qps.iter().map(|qp| qp.qp_num().get()).collect()) > 3);
    assert!(steps(regions.iter().map(|mr| mr.rkey().0).collect()) > 3);
    assert!(steps(qps.iter().map(|qp| qp.endpoint().psn.get()).collect()) > 3);
    assert!(regions.iter().all(|mr| mr.lkey().0 != mr.rkey().0));
}

#[test]
fn a_device_with_several_addresses_serves_them_all() {
    // The loopback device has 127.0.0.1, which other programs may be using.
    let devices = urxe::devices().expect("a list");
    let several = devices
        .iter()
        .find(|d| d.is_up() && d.addresses().len() > 1);
    let context = match several.map(urxe::Device::open) {
        Some(Ok(context)) => context,
        Some(Err(error)) => return println!("skipped: {error}"),
        None => return println!("skipped: no interface here has several addresses"),
    };
    for addr in context.addresses() {
        let (a, b) = (End::on(context.clone()), End::on(context.clone()));
        let options = ConnectOptions::default();
        a.qp.connect_from(addr, &b.qp.endpoint_at(addr), &options)
            .expect("connects");
        b.qp.connect_from(addr, &a.qp.endpoint_at(addr), &options)
            .expect("connects");
        let to = b.memory(20_000);
        let from = a.memory(20_000);
        b.recv(1, &to);
        a.qp.post_send(&SendWr::send(1, &[from.sge(..)]).signaled())
            .expect("room");
        // Both ends complete into queues of their own, driven by the same engine.
        assert_eq!(b.succeed().byte_len, 20_000, "through {addr}");
        a.succeed();
    }
    let _ = ALL;
}

#[test]
fn counters_can_be_read_from_outside() {
    let (a, b) = pair();
    let to = b.memory(8);
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send_inline(1, b"x").signaled())
        .expect("room");
    a.succeed();
    b.succeed();
    let sent = |context: &urxe::stat_file::ContextCounters| {
        let found = context
            .counters
            .iter()
            .find(|(name, _)| name == "sent_messages");
        found.map_or(0, |(_, value)| *value)
    };
    common::wait_until("the counters appear", || {
        let all = urxe::stat_file::read_all().expect("readable");
        let mine = all
            .iter()
            .find(|context| context.addresses == [a.context.address()]);
        mine.is_some_and(|context| context.pid == std::process::id() && sent(context) == 1)
    });
}
