//! Orders that a program must not rely on.

use super::{assert_clean, context, pair_of};
use crate::common::{ALL, End, bytes, connect, pattern, poll, wait_until};
use std::time::{Duration, Instant};
use urxe::{ConnectOptions, RecvWr, SendWr, Wc};

/// Polls on the last byte of what a peer WRITEs, which is never allowed to work, and says
/// whether the rest was there too.
fn write_and_poll_on_last_byte(a: &End, b: &End, len: usize) -> bool {
    let (from, to) = (a.memory(len), b.memory(len));
    from.write(0, &vec![7; len]);
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(1, &sges, to.addr(), to.rkey()).signaled();
    a.qp.post_send(&write).expect("room");
    wait_until("the last byte", || to.load_u8(len - 1) == 7);
    let seen = bytes(&to, len);
    a.succeed();
    assert_eq!(bytes(&to, len), vec![7; len], "a completed WRITE is there");
    seen == vec![7; len]
}

#[test]
fn relying_on_the_last_byte_of_a_write_fails() {
    let (a, b) = pair_of(28);
    for len in [64, 4096, 20_000] {
        // A thread that loses the processor between its two looks may see all of it, on a busy machine many times.
        wait_until("the last byte comes before others", || {
            !write_and_poll_on_last_byte(&a, &b, len)
        });
    }
    assert_clean([&a, &b]);
}

#[test]
fn relying_on_the_order_of_two_writes_fails() {
    let (a, b) = pair_of(30);
    wait_until("the flag overtakes the data", || {
        let (from, data, flag) = (a.memory(1000), b.memory(1000), b.memory(8));
        from.write(0, &[7; 1000]);
        let (all, word) = ([from.sge(..)], [from.sge(..8)]);
        let wrs = [
            SendWr::rdma_write(1, &all, data.addr(), data.rkey()),
            SendWr::rdma_write(2, &word, flag.addr(), flag.rkey()).signaled(),
        ];
        a.qp.post_send_list(&wrs).expect("room");
        wait_until("the flag", || flag.load_u64(0) != 0);
        let seen = bytes(&data, 1000);
        a.succeed();
        seen != [7; 1000]
    });
    assert_clean([&a, &b]);
}

#[test]
fn whoever_is_told_of_a_write_sees_all_of_it() {
    let (a, b) = pair_of(32);
    let (from, to, back) = (a.memory(9000), b.memory(9000), a.memory(9000));
    for round in 0..10 {
        let data = pattern(round, 9000);
        from.write(0, &data);
        b.qp.post_recv(&RecvWr::new(round, &[])).expect("room");
        let (all, result) = ([from.sge(..)], [back.sge(..)]);
        let write = SendWr::rdma_write(1, &all, to.addr(), to.rkey());
        let tell = match round % 3 {
            0 => SendWr::send(2, &[]),
            1 => SendWr::rdma_write_with_imm(2, &[], 0, urxe::Rkey(0), 5),
            _ => SendWr::rdma_read(2, &result, to.addr(), to.rkey()),
        };
        a.qp.post_send_list(&[write, tell.signaled()])
            .expect("room");
        if round % 3 == 2 {
            a.succeed();
            assert!(bytes(&back, 9000) == data, "the READ came before the WRITE");
            a.qp.post_send(&SendWr::send(3, &[]).signaled())
                .expect("room");
        }
        assert_eq!(b.succeed().wr_id, round);
        assert!(bytes(&to, 9000) == data, "round {round}");
        a.succeed();
    }
    assert_clean([&a, &b]);
}

/// Completions of two QPs in one queue come mixed, those of each in order, and never
/// without an event for a program that waits for one.
#[test]
fn completions_of_two_qps_are_mixed_and_each_in_order() {
    let mut orders = std::collections::BTreeSet::new();
    let mut seeds = 200..;
    // The first QP's have all come before a thread that loses the processor posts to the second, on a busy machine many times.
    wait_until("the order changes with the seed", || {
        let seed = seeds.next().expect("more than time is for");
        let (a, b) = pair_of(seed);
        let (second, other) = (
            a.pd.qp(&a.cq).create().expect("a QP"),
            b.pd.qp(&b.cq).create().expect("a QP"),
        );
        connect(&second, &other, &ConnectOptions::default());
        for n in 0..8 {
            b.qp.post_recv(&RecvWr::new(n, &[])).expect("room");
            other.post_recv(&RecvWr::new(n, &[])).expect("room");
        }
        let wrs: Vec<_> = (0..8).map(|n| SendWr::send(n, &[]).signaled()).collect();
        a.qp.post_send_list(&wrs).expect("room");
        second.post_send_list(&wrs).expect("room");
        let (mut next, mut order) = ([0, 0], Vec::new());
        while order.len() < 16 {
            a.cq.req_notify(false).expect("has a channel");
            let mut wcs = [Wc::default(); 16];
            let count = a.cq.poll(&mut wcs).expect("polls");
            if count == 0 {
                a.channel.wait().expect("an event");
            }
            for wc in &wcs[..count] {
                let which = usize::from(wc.qp_num == second.qp_num());
                assert_eq!(wc.wr_id, next[which], "seed {seed}");
                next[which] += 1;
                order.push(which);
            }
        }
        for _ in 0..16 {
            b.succeed();
        }
        orders.insert(order);
        assert_clean([&a, &b]);
        seed >= 207 && orders.len() > 1
    });
}

/// A WRITE without any notification arrives all the same, and soon.
#[test]
fn what_is_held_back_comes_by_itself() {
    let (a, b) = pair_of(50);
    let (from, to) = (a.memory(100), b.memory(100));
    from.write(0, &[3; 100]);
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(1, &sges, to.addr(), to.rkey());
    a.qp.post_send(&write).expect("room");
    let start = Instant::now();
    wait_until("all of it", || bytes(&to, 100) == [3; 100]);
    assert!(start.elapsed() < Duration::from_secs(10));
    // A later completion speaks for it.
    a.qp.post_send(&SendWr::rdma_write(2, &[], to.addr(), to.rkey()).signaled())
        .expect("room");
    assert_eq!(poll(&a.cq).wr_id, 2);
    assert_clean([&a, &b]);
}

/// The receives of an XRC target complete to the CQs of its queues, which are held back
/// apart.
#[test]
fn completions_over_xrc_reach_their_own_queues() {
    for seed in 300..304 {
        let (client, server) = (End::on(context(seed)), context(seed + 50));
        let (pd, domain) = (server.alloc_pd(), server.open_xrcd());
        let (pd, domain) = (pd.expect("a PD"), domain.expect("a domain"));
        let memory = pd.reg_owned(vec![0; 64], ALL).expect("memory");
        let queues: Vec<_> = (0..3)
            .map(|n| {
                let cq = server.create_cq(16).expect("a CQ");
                let srq = domain.create_srq(&pd, &cq, &urxe::SrqAttr::default());
                let srq = srq.expect("an SRQ");
                for id in 0..4 {
                    let sges = [memory.sge(..)];
                    srq.post_recv(&RecvWr::new(10 * n + id, &sges))
                        .expect("room");
                }
                (srq, cq)
            })
            .collect();
        let initiator = client.pd.qp(&client.cq).xrc_send().create();
        let initiator = initiator.expect("a QP");
        let target = domain.create_target().expect("a QP");
        connect(&initiator, &target, &ConnectOptions::default());
        for round in 0..12 {
            let to = queues[round % 3].0.srq_num();
            let wr = SendWr::send_inline(0, b"x").to_srq(to).signaled();
            initiator.post_send(&wr).expect("room");
        }
        for (n, (_, cq)) in queues.iter().enumerate() {
            for id in 0..4 {
                assert_eq!(poll(cq).wr_id, 10 * n as u64 + id, "seed {seed}");
            }
        }
        for _ in 0..12 {
            client.succeed();
        }
    }
}
