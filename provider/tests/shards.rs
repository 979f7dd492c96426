//! Contexts of several shards: what belongs to the context is in all of them, and a QP is in one.

use std::thread;

use crate::common::{ALL, End, PATIENCE, address, bytes, connect, pattern, poll};
use urxe::{
    Access, AsyncEvent, ConnectOptions, Context, Cq, ErrorKind, Mr, MwType, Pd, Qp, RecvWr, Rereg,
    SendWr, SrqAttr, StrictMode, Wc, WcStatus, Wire,
};

const SHARDS: u32 = 3;
const WIRES: [Wire; 2] = [Wire::Auto, Wire::Sockets];

fn open(wire: Wire) -> Context {
    let builder = Context::builder(address()).shards(SHARDS).wire(wire);
    let context = builder.open().expect("the address is free");
    assert_eq!(context.shard_count(), SHARDS as usize);
    context
}

/// One QP in each shard, of one completion queue.
fn one_in_each(pd: &Pd, cq: &Cq) -> Vec<Qp> {
    let qp = |shard| {
        let qp = pd.qp(cq).shard(shard).create().expect("a QP");
        assert_eq!(qp.shard(), shard as usize);
        qp
    };
    (0..SHARDS).map(qp).collect()
}

fn succeed(cq: &Cq) -> Wc {
    let wc = poll(cq);
    assert!(wc.is_success(), "{wc}");
    wc
}

/// Messages and one-sided operations between two QPs, each with memory of its domain.
fn exchange(from: &Qp, to: &Qp, seed: u64) {
    const LEN: usize = 9000;
    let [source, target] = [from, to].map(|qp| qp.pd().reg_owned(vec![0; LEN], ALL));
    let (source, target) = (source.expect("memory"), target.expect("memory"));
    source.write(0, &pattern(seed, LEN));
    to.post_recv(&RecvWr::new(seed, &[target.sge(..)]))
        .expect("room");
    let sges = [source.sge(..)];
    from.post_send(&SendWr::send(seed, &sges).signaled())
        .expect("room");
    // One queue may serve both ends.
    for cq in [from.send_cq(), to.recv_cq()] {
        let wc = succeed(cq);
        assert_eq!(wc.wr_id, seed);
    }
    assert_eq!(bytes(&target, LEN), pattern(seed, LEN));
    source.write(0, &pattern(seed + 1, LEN));
    let (addr, rkey) = (target.addr(), target.rkey());
    from.post_send(&SendWr::rdma_write(1, &sges, addr, rkey))
        .expect("room");
    source.write(0, &vec![0; LEN]);
    from.post_send(&SendWr::rdma_read(2, &sges, addr, rkey).signaled())
        .expect("room");
    assert_eq!(succeed(from.send_cq()).wr_id, 2);
}

#[test]
fn qps_of_all_shards_reach_each_other_and_all_memory() {
    for wire in WIRES {
        let (a, b) = (open(wire), open(Wire::Auto));
        let [pd, other_pd] = [&a, &b].map(|context| context.alloc_pd().expect("a PD"));
        let [cq, other_cq] = [&a, &b].map(|context| context.create_cq(64).expect("a CQ"));
        for n in 0..SHARDS {
            // Every shard with every shard, of the other context and of its own.
            let from = one_in_each(&pd, &cq);
            let to = one_in_each(&other_pd, &other_cq);
            let own = one_in_each(&pd, &cq);
            for (at, from) in from.iter().enumerate() {
                let peer = (at + n as usize) % SHARDS as usize;
                let to = if n == 0 { &own[peer] } else { &to[peer] };
                connect(from, to, &ConnectOptions::default());
                exchange(from, to, 100 * u64::from(n) + at as u64);
            }
        }
    }
}

/// What a WRITE from each shard of the peer ends with.
fn writes(qps: &[(Qp, Qp)], source: &Mr, addr: u64, target: &Mr) -> Vec<WcStatus> {
    let sges = [source.sge(..)];
    let write = SendWr::rdma_write(1, &sges, addr, target.rkey()).signaled();
    let ends = qps.iter().map(|(from, to)| {
        from.post_send(&write).expect("room");
        let status = poll(from.send_cq()).status;
        if status != WcStatus::Success {
            // For the next write.
            for qp in [from, to] {
                qp.modify_state(urxe::QpState::Reset).expect("RESET");
            }
            connect(from, to, &ConnectOptions::default());
        }
        status
    });
    ends.collect()
}

#[test]
fn a_region_changes_and_ends_in_all_shards_at_once() {
    let (a, b) = (End::open(), open(Wire::Auto));
    let pd = b.alloc_pd().expect("a PD");
    let cq = b.create_cq(64).expect("a CQ");
    let qps: Vec<_> = one_in_each(&pd, &cq)
        .into_iter()
        .map(|to| {
            let from = a.pd.qp(&a.cq).create().expect("a QP");
            connect(&from, &to, &ConnectOptions::default());
            (from, to)
        })
        .collect();
    let source = a.memory(100);
    let refused = [WcStatus::RemAccessErr; SHARDS as usize];
    let accepted = [WcStatus::Success; SHARDS as usize];
    // Places of keys are used again.
    for round in 0..3 {
        let mut region = pd.reg_owned(vec![0; 100], ALL).expect("memory");
        let addr = region.addr();
        assert_eq!(writes(&qps, &source, addr, &region), accepted, "{round}");
        let rights = Rereg::new().access(Access::LOCAL_WRITE);
        region.rereg(rights).expect("it is not bound");
        assert_eq!(writes(&qps, &source, addr, &region), refused, "{round}");
        region.rereg(Rereg::new().access(ALL)).expect("as before");
        assert_eq!(writes(&qps, &source, addr, &region), accepted, "{round}");
        let next = pd.reg_owned(vec![0; 100], ALL).expect("memory");
        let rkey = region.rkey();
        region.dereg().expect("nothing is bound");
        let sges = [source.sge(..)];
        let stale = SendWr::rdma_write(1, &sges, addr, rkey).signaled();
        for (from, to) in &qps {
            from.post_send(&stale).expect("room");
            assert_eq!(poll(&a.cq).status, WcStatus::RemAccessErr, "{round}");
            for qp in [from, to] {
                qp.modify_state(urxe::QpState::Reset).expect("RESET");
            }
            connect(from, to, &ConnectOptions::default());
        }
        let addr = next.addr();
        assert_eq!(writes(&qps, &source, addr, &next), accepted, "{round}");
    }
}

#[test]
fn threads_with_queues_of_their_own_are_in_shards_of_their_own() {
    const MESSAGES: u64 = 2000;
    let context = open(Wire::Auto);
    let pd = context.alloc_pd().expect("a PD");
    let lanes: Vec<_> = (0..2 * SHARDS)
        .map(|_| {
            let cq = context.create_cq(256).expect("a CQ");
            let qp = || pd.qp(&cq).create().expect("a QP");
            let (from, to) = (qp(), qp());
            assert_eq!(from.shard(), to.shard());
            connect(&from, &to, &ConnectOptions::default());
            (cq, from, to)
        })
        .collect();
    for shard in 0..SHARDS as usize {
        let here = lanes.iter().filter(|(_, from, _)| from.shard() == shard);
        assert_eq!(here.count(), 2);
    }
    thread::scope(|scope| {
        for (n, (cq, from, to)) in lanes.iter().enumerate() {
            let pd = &pd;
            scope.spawn(move || {
                // Registered while the others send.
                for message in 0..MESSAGES {
                    let seed = message * 64 + n as u64;
                    let memory = pd.reg_owned(vec![0; 600], ALL).expect("memory");
                    memory.write(0, &pattern(seed, 300));
                    to.post_recv(&RecvWr::new(1, &[memory.sge(300..)]))
                        .expect("room");
                    let sges = [memory.sge(..300)];
                    from.post_send(&SendWr::send(2, &sges).signaled())
                        .expect("room");
                    let mut ids = [succeed(cq).wr_id, succeed(cq).wr_id];
                    ids.sort_unstable();
                    assert_eq!(ids, [1, 2]);
                    assert_eq!(bytes(&memory, 600)[300..], pattern(seed, 300));
                }
            });
        }
    });
    let counters = context.counters().expect("counters");
    let received = counters.iter().find(|(name, _)| *name == "rcvd_pkts");
    let all = u64::from(2 * SHARDS) * MESSAGES;
    assert!(received.is_some_and(|&(_, count)| count >= all), "sums");
}

#[test]
fn events_of_one_queue_come_from_all_shards() {
    let (a, context) = (End::open(), open(Wire::Auto));
    let pd = context.alloc_pd().expect("a PD");
    let channel = context.create_comp_channel().expect("a channel");
    let cq = context.create_cq_with_channel(64, &channel).expect("a CQ");
    for (shard, to) in one_in_each(&pd, &cq).iter().enumerate() {
        let from = a.pd.qp(&a.cq).create().expect("a QP");
        connect(&from, to, &ConnectOptions::default());
        cq.req_notify(false).expect("it has a channel");
        to.post_recv(&RecvWr::new(shard as u64, &[])).expect("room");
        from.post_send(&SendWr::send_inline(1, b"").signaled())
            .expect("room");
        let raised = channel.wait_timeout(PATIENCE).expect("waits");
        assert_eq!(raised.as_ref(), Some(&cq), "{shard}");
        assert_eq!(succeed(&cq).wr_id, shard as u64);
        succeed(&a.cq);
    }
}

#[test]
fn an_overrun_is_told_once_and_fails_the_qps_of_all_shards() {
    let context = open(Wire::Auto);
    let pd = context.alloc_pd().expect("a PD");
    let cq = context.create_cq(1).expect("a CQ");
    let qps = one_in_each(&pd, &cq);
    for qp in &qps {
        let options = ConnectOptions::default();
        qp.connect(&qp.endpoint(), &options).expect("connects");
        for id in 0..2 {
            qp.post_recv(&RecvWr::new(id, &[])).expect("room");
        }
        // Two flushed receives: one too many, from each shard.
        qp.modify_state(urxe::QpState::Err).expect("ERR");
    }
    let mut overruns = 0;
    while let Some(event) = context
        .wait_async_event(Some(std::time::Duration::from_millis(300)))
        .expect("waits")
    {
        overruns += u32::from(event == AsyncEvent::CqErr(cq.id()));
    }
    assert_eq!(overruns, 1);
    assert!(cq.is_overrun());
}

#[test]
fn a_shared_receive_queue_and_its_qps_are_in_one_shard() {
    let (a, context) = (End::open(), open(Wire::Auto));
    let pd = context.alloc_pd().expect("a PD");
    let cq = context.create_cq(64).expect("a CQ");
    let attr = SrqAttr {
        max_wr: 8,
        max_sge: 1,
        srq_limit: 0,
    };
    let srqs: Vec<_> = (0..SHARDS)
        .map(|_| pd.create_srq(&attr).expect("an SRQ"))
        .collect();
    let mut shards = Vec::new();
    for srq in &srqs {
        let to = pd.qp(&cq).srq(srq).create().expect("a QP");
        let elsewhere = (to.shard() as u32 + 1) % SHARDS;
        let refused = pd.qp(&cq).srq(srq).shard(elsewhere).create();
        let refused = refused.expect_err("it is in another shard");
        assert!(
            matches!(refused.kind(), ErrorKind::Value { .. }),
            "{refused}"
        );
        shards.push(to.shard());
        let from = a.pd.qp(&a.cq).create().expect("a QP");
        connect(&from, &to, &ConnectOptions::default());
        for id in 0..2 {
            srq.post_recv(&RecvWr::new(id, &[])).expect("room");
        }
        // The event names one queue of those that have the same place in other shards.
        srq.arm_limit(2).expect("it is smaller than the size");
        from.post_send(&SendWr::send_inline(1, b"").signaled())
            .expect("room");
        succeed(&cq);
        let event = context.wait_async_event(Some(PATIENCE)).expect("waits");
        assert_eq!(event, Some(AsyncEvent::SrqLimitReached(srq.id())));
        succeed(&a.cq);
    }
    shards.sort_unstable();
    assert_eq!(shards, [0, 1, 2]);
}

#[test]
fn what_needs_one_shard_is_refused_in_words() {
    for count in [0, 65] {
        let refused = Context::builder(address()).shards(count).open();
        let refused = refused.expect_err("no such number");
        assert!(refused.to_string().contains("1 to 64"), "{refused}");
    }
    let context = open(Wire::Auto);
    let pd = context.alloc_pd().expect("a PD");
    for mw_type in [MwType::Type1, MwType::Type2] {
        let refused = pd.alloc_mw(mw_type).expect_err("windows need one shard");
        assert!(refused.to_string().contains("URXE_SHARDS"), "{refused}");
        assert_eq!(refused.errno(), 95);
    }
    let region = pd.reg_owned(vec![0; 8], ALL).expect("memory");
    region.set_remote_invalidate(true).expect_err("the same");
    let cq = context.create_cq(1).expect("a CQ");
    let refused = pd.qp(&cq).shard(SHARDS).create();
    assert!(refused.is_err_and(|error| error.to_string().contains("fewer")));
    // One engine judges what strict mode sees, and an address that is not shared has one socket.
    let alone = [
        Context::builder(address()).strict(StrictMode::Report),
        Context::builder(address()).share(false),
    ];
    for builder in alone {
        let context = builder.shards(SHARDS).open().expect("the address is free");
        assert_eq!(context.shard_count(), 1);
    }
}
