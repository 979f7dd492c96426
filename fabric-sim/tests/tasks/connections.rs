//! Connections by address (RDMA-CM) between async programs.

#[path = "../../examples/echo/program.rs"]
mod program;

use core::time::Duration;
use std::net::SocketAddr;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Simulation, now, task, tell};
use fabric_sim::{HostId, Span};
use urxe::cm::{self, CmError, ConnectBuilder, EventKind, RejReason};

use crate::{A, B};
use program::{MESSAGES, serve, visit};

const CLIENTS: u32 = 3;

fn at() -> SocketAddr {
    "10.0.0.1:7471".parse().expect("an address")
}

#[fabric_sim::test(seeds = 60, twice)]
fn clients_come_and_go_under_faults(sim: &mut Simulation) {
    sim.limit(Span::from_ms(1_000_000));
    sim.fault(Fault::loss(0.02));
    sim.fault(Fault::duplicate(0.02, Span::from_us(2)));
    sim.host(A, || {
        let heard = task::block_on(async {
            let listener = cm::listen(at())?;
            serve(listener, CLIENTS).await
        });
        assert_eq!(heard.expect("serves"), u64::from(CLIENTS) * MESSAGES);
    });
    // Two of them in one program.
    sim.host(B, || {
        task::block_on(async {
            let (first, second) = tokio::join!(visit(at(), None, 1), visit(at(), None, 2));
            first.and(second).expect("both have visited");
        });
    });
    sim.host(HostId(2), || {
        task::block_on(visit(at(), None, 3)).expect("has visited");
    });
    sim.run()?.assert_sometimes("retransmit");
}

#[test]
fn a_refusal_and_a_silent_host_take_virtual_time() {
    let mut sim = Simulation::new(1);
    sim.host(A, || {
        // A context is open, and no listener is there.
        let _listener = cm::listen(SocketAddr::new(at().ip(), 1)).expect("listens");
        drop(fabric_sim::program::ask("refused"));
    });
    sim.host(B, || {
        task::block_on(async {
            let error = ConnectBuilder::new(at()).connect_async().await;
            let reason = CmError::Rejected(RejReason::INVALID_SERVICE_ID);
            assert_eq!(error.expect_err("refused").cm(), Some(reason));
            assert!(now() < Duration::from_secs(1), "{:?}", now());
            tell("refused", "");
            let silent = SocketAddr::new("10.0.0.3".parse().expect("an address"), 7471);
            let patience = Duration::from_secs(3);
            let before = now();
            let builder = ConnectBuilder::new(silent).timeout(patience);
            let error = builder.connect_async().await.expect_err("it is silent");
            assert_eq!(error.cm(), Some(CmError::TimedOut));
            let late = now() - before - patience;
            assert!(late < Duration::from_micros(100), "{late:?}");
            // A task that gives up takes its request back.
            let asked = ConnectBuilder::new(silent).connect_async();
            let given_up = task::timeout(Duration::from_millis(5), asked).await;
            assert!(given_up.is_err());
        });
    });
    sim.host(HostId(2), || ());
    sim.run().expect("they end");
}

/// The events of a connection, as a stream: it ends.
#[test]
fn the_end_of_a_connection_is_an_event() {
    let mut sim = Simulation::new(2);
    sim.host(A, || {
        task::block_on(async {
            let listener = cm::listen(at()).expect("listens");
            let connection = listener.accept_async().await.expect("a client");
            let mut events = connection.events().clone().into_stream().expect("a stream");
            let event = events.next().await.expect("an event");
            assert_eq!(event.kind, EventKind::Disconnected);
            assert!(now() >= Duration::from_millis(7), "{:?}", now());
        });
    });
    sim.host(B, || {
        task::block_on(async {
            let builder = ConnectBuilder::new(at());
            let connection = builder.connect_async().await.expect("connects");
            task::sleep(Duration::from_millis(7)).await;
            connection.disconnect().expect("the peer answers");
        });
    });
    sim.run().expect("they end");
}

/// The program of the first test over sockets of this host.
#[test]
fn the_same_program_runs_over_sockets() {
    let pid = std::process::id();
    let at = |last| format!("127.{}.{}.{last}:0", 80 + pid / 250 % 20, pid % 250);
    let at = |last| at(last).parse::<SocketAddr>().expect("an address");
    let heard = task::block_on(async {
        let listener = cm::listen(at(1)).expect("listens");
        let to = listener.local_addr();
        let server = task::spawn(serve(listener, 2));
        let (first, second) = tokio::join!(visit(to, Some(at(2)), 1), visit(to, Some(at(3)), 2));
        first.and(second).expect("both have visited");
        server.await.expect("it is not aborted")
    });
    assert_eq!(heard.expect("serves"), 2 * MESSAGES);
}
