//! Connections that end: who hears of it, and what completes before.

use super::{Host, connected};
use crate::common::PATIENCE;
use std::time::Duration;
use urxe::cm::{self, EventChannel, EventKind};
use urxe::{Access, Qp, RecvWr, SendWr, WcStatus};

/// The peer is told of the end after the last message, though its completion was not awaited.
#[test]
fn a_message_just_before_the_end_arrives() {
    let [server, client] = Host::pair();
    for round in 0..50u64 {
        let (_passive, active, theirs, ours, _listener) = connected(&server, &client);
        let memory = theirs.pd.reg_owned(vec![0; 8], Access::LOCAL_WRITE);
        let memory = memory.expect("memory");
        let part = [memory.sge(..)];
        let recv = RecvWr::new(round, &part);
        theirs.qp.post_recv(&recv).expect("room");
        let bytes = round.to_le_bytes();
        let send = SendWr::send_inline(1, &bytes);
        ours.qp.post_send(&send).expect("room");
        active.disconnect().expect("disconnects");
        server.expect(EventKind::Disconnected);
        let wc = theirs.cq.poll_one().expect("polls");
        assert_eq!(wc.ok().expect("received").wr_id, round);
        client.expect(EventKind::Disconnected);
        drop((ours, theirs));
        server.expect(EventKind::TimewaitExit);
        client.expect(EventKind::TimewaitExit);
    }
}

#[test]
fn events_follow_their_identifier() {
    let [server, client] = Host::pair();
    let (passive, active, _theirs, ours, _listener) = connected(&server, &client);
    let elsewhere = EventChannel::with_manager(client.channel.manager()).expect("a channel");
    passive.disconnect().expect("disconnects");
    // Wherever it was when it was told: it comes along.
    active.migrate(&elsewhere).expect("moves");
    let event = elsewhere.wait(Some(PATIENCE)).expect("waits");
    let event = event.expect("an event");
    assert_eq!((event.kind, &event.id), (EventKind::Disconnected, &active));
    drop((event, active, ours));
    // An identifier that is gone gets no more events.
    assert!(
        elsewhere
            .wait(Some(Duration::from_millis(700)))
            .expect("waits")
            .is_none()
    );
    client.no_event();
    server.expect(EventKind::Disconnected);
    server.expect(EventKind::TimewaitExit);
}

#[test]
fn both_ends_may_end_at_once_and_a_dropped_identifier_tells_its_peer() {
    let [server, client] = Host::pair();
    let (passive, active, _theirs, _ours, _listener) = connected(&server, &client);
    active.disconnect().expect("disconnects");
    passive.disconnect().expect("disconnects");
    client.expect(EventKind::Disconnected);
    server.expect(EventKind::Disconnected);
    client.expect(EventKind::TimewaitExit);
    server.expect(EventKind::TimewaitExit);
    drop((passive, active));
    let (passive, active, _theirs, _ours, _listener) = connected(&server, &client);
    drop(active);
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
}

/// A process that ends can wait for its peers' answers.
#[test]
fn peers_hear_of_the_end_before_the_process_ends() {
    let [server, client] = Host::pair();
    let (passive, active, _theirs, _ours, _listener) = connected(&server, &client);
    let contexts = [client.context.clone()];
    assert_eq!(cm::finish_disconnects(&contexts, PATIENCE), 0);
    active.disconnect().expect("disconnects");
    assert_eq!(cm::finish_disconnects(&contexts, PATIENCE), 0);
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
}

/// A program that waits for messages alone hears of the end as well.
#[test]
fn what_was_posted_completes_when_the_connection_ends() {
    let [server, client] = Host::pair();
    let (passive, active, theirs, _ours, _listener) = connected(&server, &client);
    theirs.qp.post_recv(&RecvWr::new(7, &[])).expect("room");
    active.disconnect().expect("disconnects");
    let wc = theirs.cq.poll_one().expect("polls");
    assert_eq!((wc.status, wc.wr_id), (WcStatus::WrFlushErr, 7));
    assert_eq!(server.expect(EventKind::Disconnected).id, passive);
}

/// What a program has received is acknowledged before the connection ends: the sender's message has not failed.
#[test]
fn what_was_received_completes_at_the_sender_before_the_end() {
    let [server, client] = Host::pair();
    for _ in 0..20 {
        let (passive, _active, theirs, ours, _listener) = connected(&server, &client);
        theirs.qp.post_recv(&RecvWr::new(7, &[])).expect("room");
        let send = SendWr::send_inline(1, b"").signaled();
        ours.qp.post_send(&send).expect("room");
        let wc = theirs.cq.poll_one().expect("polls");
        assert_eq!(wc.status, WcStatus::Success);
        // Its QP lives on: the identifier alone ends the connection.
        drop(passive);
        let wc = ours.cq.poll_one().expect("polls");
        assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, 1));
        client.expect(EventKind::Disconnected);
    }
}

#[test]
fn a_number_rests_while_packets_of_its_connection_may_be_under_way() {
    let [server, client] = Host::pair();
    let (_passive, active, _theirs, ours, _listener) = connected(&server, &client);
    let number = ours.qp.qp_num();
    active.disconnect().expect("disconnects");
    client.expect(EventKind::Disconnected);
    drop(ours);
    // More QPs than a chunk has numbers: none of them gets that one.
    let pd = client.context.alloc_pd().expect("a domain");
    let cq = client.context.create_cq(16).expect("a queue");
    let make = || {
        pd.qp(&cq)
            .max_send_wr(1)
            .max_recv_wr(1)
            .create()
            .expect("a QP")
    };
    let early: Vec<Qp> = (0..64).map(|_| make()).collect();
    assert!(early.iter().all(|qp| qp.qp_num() != number));
    client.expect(EventKind::TimewaitExit);
}
