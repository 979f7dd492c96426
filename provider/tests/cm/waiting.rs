//! Connections that are waited for: with a limit of time, and what the peer's end of them is called.

use crate::common::{PATIENCE, address};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use urxe::cm::{CmError, ConnectBuilder, Connection, listen};
use urxe::{Blame, ErrorKind, RecvWr, SendWr};

/// The server's end and the client's.
fn pair() -> [Connection; 2] {
    let listener = listen(SocketAddr::new(address(), 0)).expect("listens");
    let to = listener.local_addr();
    let server = std::thread::spawn(move || listener.accept().expect("accepts"));
    let from = SocketAddr::new(address(), 0);
    let client = ConnectBuilder::new(to).from(from).connect();
    let client = client.expect("connects");
    [server.join().expect("no panic"), client]
}

fn post_recv(connection: &Connection, wr_id: u64) {
    let posted = connection.qp().post_recv(&RecvWr::new(wr_id, &[]));
    posted.expect("room");
}

#[test]
fn a_connection_is_waited_for_as_long_as_was_said() {
    let [server, client] = pair();
    post_recv(&server, 7);
    let start = Instant::now();
    let wc = server.wait(Duration::from_millis(30)).expect("waits");
    assert_eq!(wc, None, "nothing was sent");
    assert!(start.elapsed() >= Duration::from_millis(30));
    for round in 0..200 {
        let send = SendWr::send_inline(round, b"").signaled();
        client.qp().post_send(&send).expect("room");
        let wc = server.wait(PATIENCE).expect("waits").expect("a message");
        assert_eq!(wc.wr_id, 7);
        let wc = client.wait(PATIENCE).expect("waits").expect("it is sent");
        assert_eq!(wc.wr_id, round);
        post_recv(&server, 7);
    }
}

#[test]
fn the_peers_goodbye_is_no_fault_of_this_side() {
    let [server, client] = pair();
    for id in [7, 8] {
        post_recv(&server, id);
    }
    post_recv(&client, 9);
    let waits = std::thread::spawn(move || {
        let first = server.wait(PATIENCE).expect_err("the peer has gone");
        let second = server.cq().poll_one().expect("polls");
        (first, server.check(second).expect_err("the same"))
    });
    // The side that ends it did so itself.
    client.id().disconnect().expect("disconnects");
    let own = client.wait(PATIENCE).expect_err("it is flushed");
    assert!(
        matches!(own.kind(), ErrorKind::Completion { wr_id: 9, .. }),
        "{own}"
    );
    let (first, second) = waits.join().expect("no panic");
    for error in [first, second] {
        assert_eq!(error.kind(), &ErrorKind::Cm(CmError::Closed));
        assert_eq!(error.blame(), Blame::Peer);
        assert!(error.to_string().contains("closed the connection"));
    }
}

#[test]
fn a_queue_with_a_channel_is_not_waited_for_itself() {
    let context = urxe::Context::open(address()).expect("free");
    let channel = context.create_comp_channel().expect("a channel");
    let cq = context.create_cq_with_channel(4, &channel);
    let cq = cq.expect("a queue");
    let error = cq.poll_timeout(Duration::ZERO).expect_err("it has one");
    assert_eq!(error.blame(), Blame::Caller);
    assert!(error.to_string().contains("channel"), "{error}");
}
