//! The checks of what programs do by verbs: each finds what it is for, and none finds anything in runs as they should be.

use fabric_sim::check::Check;
use fabric_sim::fault::Fault;
use fabric_sim::program::{Cause, Simulation, ask, tell};
use fabric_sim::{HostId, Span};
use urxe::{SendWr, WcStatus};
use urxe_wire::Operation;

use crate::checks::Plant;
use crate::end::{End, options};

/// Where the results of atomics go, and where messages come from.
const RESULT: usize = 1 << 17;
const LEN: usize = 9_000;
const ROUNDS: u64 = 6;

/// WRITEs, with and without an immediate, SENDs, READs and atomics, one after the other.
fn client() {
    let (end, _) = End::open(false);
    let (addr, rkey) = end.meet("client", "server", &options());
    for round in 0..ROUNDS {
        let text: Vec<u8> = (0..LEN).map(|at| at as u8 ^ round as u8).collect();
        end.memory.write(0, &text);
        let source = [end.memory.sge(..LEN)];
        let (result, back) = (
            [end.memory.sge(RESULT..RESULT + 8)],
            [end.memory.sge(LEN..2 * LEN)],
        );
        let counter = addr + RESULT as u64;
        let wrs = [
            SendWr::rdma_write(1, &source, addr + LEN as u64, rkey),
            SendWr::rdma_write(2, &[], addr, rkey).signaled(),
            SendWr::rdma_write_with_imm(3, &source, addr + LEN as u64, rkey, 7),
            SendWr::send(4, &source).signaled(),
            SendWr::rdma_read(5, &back, addr + LEN as u64, rkey).signaled(),
            SendWr::atomic_fetch_add(6, &result, counter, rkey, 3).signaled(),
        ];
        end.qp.post_send_list(&wrs).expect("posts");
        for wr_id in [2, 4, 5, 6] {
            let wc = end.wait();
            if wc.status != WcStatus::Success {
                return;
            }
            assert_eq!(wc.wr_id, wr_id);
        }
    }
    tell("client has all", "");
}

fn server() {
    let (end, _) = End::open(false);
    end.qp.init(urxe::Access::NONE).expect("to INIT");
    for round in 0..ROUNDS {
        end.post_recv(10 + round, 0);
        end.post_recv(20 + round, LEN);
    }
    end.meet("server", "client", &options());
    for _ in 0..2 * ROUNDS {
        if end.wait().status != WcStatus::Success {
            return;
        }
    }
    ask("client has all");
}

fn both(sim: &mut Simulation) {
    sim.limit(Span::from_ms(500));
    sim.host(HostId(0), client);
    sim.host(HostId(1), server);
}

#[fabric_sim::test(seeds = 60)]
fn programs_as_they_should_be_pass_whatever_the_network_does(sim: &mut Simulation) {
    if !sim.seed().is_multiple_of(3) {
        sim.fault(Fault::loss(0.03));
        sim.fault(Fault::corrupt_inside(0.01));
        sim.fault(Fault::duplicate(0.03, Span::from_us(5)));
        sim.fault(Fault::reorder(0.03, Span::from_us(7)));
    }
    both(sim);
    let report = sim.run()?;
    for mark in ["nak", "retransmit", "duplicate"] {
        report.assert_sometimes(mark);
    }
}

/// The checks that a packet finds which was changed on its way, with a right ICRC: as the transport itself could have done it.
fn planted(operation: Operation, after: u32, change: fn(&mut [u8])) -> Vec<Check> {
    let mut sim = Simulation::new(1);
    sim.interference(Plant {
        operation: Some(operation),
        after,
        change,
    });
    both(&mut sim);
    let failure = sim.run().expect_err("it is found");
    let told = failure.to_string();
    match failure.cause() {
        Cause::Violated(found) => {
            assert!(told.contains("h0 QP 0x"), "{told}");
            found.iter().map(|it| it.check).collect()
        }
        other => panic!("{other}"),
    }
}

#[test]
fn bytes_that_no_program_posted_are_found() {
    let flip = |packet: &mut [u8]| packet[300] ^= 1;
    for (operation, after) in [(Operation::Write, 3), (Operation::Send, 2)] {
        let found = planted(operation, after, flip);
        assert_eq!(found, [Check::Delivery], "{operation:?}");
    }
}

#[test]
fn bytes_at_another_place_are_found() {
    // The address in the RETH.
    let elsewhere = |packet: &mut [u8]| packet[12 + 7] ^= 0x40;
    assert_eq!(planted(Operation::Write, 1, elsewhere), [Check::Delivery]);
}

#[test]
fn atomics_that_add_or_return_something_else_are_found() {
    // The AtomicETH: address, rkey, what to add.
    let adds_more = |packet: &mut [u8]| packet[12 + 8 + 4 + 7] = 2;
    assert_eq!(planted(Operation::FetchAdd, 2, adds_more), [Check::Atomics]);
    let returns_more = |packet: &mut [u8]| packet[12 + 4 + 7] ^= 0x40;
    let found = planted(Operation::AtomicAcknowledge, 2, returns_more);
    assert_eq!(found, [Check::Atomics]);
}

/// The last message is lost, and acknowledged all the same.
#[test]
fn a_completion_of_what_was_not_executed_is_found() {
    let mut sim = Simulation::new(1);
    sim.fault(Fault::loss(1.0).nth([1]).on(HostId(0)));
    sim.interference(Plant {
        operation: Some(Operation::Acknowledge),
        after: 1,
        change: |packet| packet[11] = packet[11].wrapping_add(1),
    });
    sim.limit(Span::from_ms(5));
    sim.host(HostId(0), || {
        let (end, _) = End::open(false);
        let (addr, rkey) = end.meet("a", "b", &options());
        for wr_id in 0..2 {
            let write = SendWr::rdma_write_inline(wr_id, b"word", addr, rkey);
            end.qp.post_send(&write.signaled()).expect("posts");
        }
        for _ in 0..2 {
            assert_eq!(end.wait().status, WcStatus::Success);
        }
        tell("done", "");
    });
    sim.host(HostId(1), || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        ask("done");
    });
    let failure = sim.run().expect_err("it is found");
    let told = failure.to_string();
    assert!(told.contains("was not executed at the other end"), "{told}");
}
