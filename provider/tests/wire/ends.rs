//! Processes that end in whatever way, and what is left of their rings.

use urxe::{ConnectOptions, SendWr, WcStatus};

use super::peer::{Peer, ping};
use super::process::{descriptors, rings};
use super::{end, end_of_one_shard, records};
use crate::common::{End, address, alone, wait_until};

/// Found out within a second or so.
fn hasty() -> ConnectOptions {
    ConnectOptions {
        timeout: 13,
        retry_cnt: 3,
        ..ConnectOptions::default()
    }
}

/// A peer to which packets go through memory, both ways.
fn neighbour(end: &End) -> Peer {
    // One ring each way can be counted, not those of several shards.
    let mut peer = Peer::start_by(Peer::command().env("URXE_SHARDS", "1"), address());
    peer.connect(&end.qp, &hasty());
    wait_until("packets go through memory", || {
        ping(end, 0);
        records(end).iter().all(|&count| count > 0)
    });
    peer
}

/// Asks a peer that is gone for an answer.
fn is_given_up(end: &End) {
    let send = SendWr::send_inline(1, b"hello?").signaled();
    end.qp.post_send(&send).expect("room");
    assert_eq!(end.complete().status, WcStatus::RetryExcErr);
}

#[test]
fn nothing_is_left_of_a_process_that_is_killed_or_becomes_another_program() {
    alone(
        "wire::ends::nothing_is_left_of_a_process_that_is_killed_or_becomes_another_program",
        || {
            // The first context of a process leaves a descriptor for children of a fork.
            drop(end_of_one_shard());
            let before = (rings(), descriptors());
            for becomes in [false, true] {
                let a = end_of_one_shard();
                let mut peer = neighbour(&a);
                assert_eq!(rings(), 2, "one each way");
                if becomes {
                    peer.exec();
                } else {
                    peer.kill();
                }
                is_given_up(&a);
                wait_until("the rings are unmapped", || rings() == 0);
                drop(peer);
                drop(a);
                assert_eq!((rings(), descriptors()), before);
            }
        },
    );
}

/// Processes that come and go leave nothing with one that stays, killed or not.
#[test]
fn two_hundred_come_and_go() {
    alone("wire::ends::two_hundred_come_and_go", || {
        let stays = end();
        let mut pids = Vec::new();
        let mut before = None;
        for round in 0..200 {
            let a = End::on(stays.context.clone());
            let mut peer = Peer::start();
            pids.push(peer.id());
            peer.connect(&a.qp, &ConnectOptions::default());
            ping(&a, round);
            if round % 2 == 0 {
                peer.kill();
            } else {
                peer.end();
            }
            drop(a);
            // The first time brought what stays: threads, libraries.
            if round == 1 {
                wait_until("the rings are unmapped", || rings() == 0);
                before = Some(descriptors());
            }
        }
        wait_until("the rings are unmapped", || rings() == 0);
        assert_eq!(Some(descriptors()), before);
        assert!(records(&stays).iter().all(|&count| count >= 200));
        let left = urxe::participants().expect("a registry");
        let left = left.into_iter().filter(|one| pids.contains(&one.pid));
        let running: Vec<_> = left.collect();
        assert!(running.is_empty(), "{running:?}");
    });
}
