//! Checks of transports that keep what is ahead of a gap: nothing is found in runs as they should be, and mistakes in what was
//! kept are found.

use fabric_sim::check::Check;
use fabric_sim::fabric::{AdapterConfig, Fate, Interference, Planes};
use fabric_sim::fault::Fault;
use fabric_sim::frame::{Frame, Payload};
use fabric_sim::host::{StreamOp, StreamSpec, TransportConfig};
use fabric_sim::switch::Balance;
use fabric_sim::topology::PortId;
use fabric_sim::{FabricConfig, HostId, Link, Mode, Rate, Sim, Span, SwitchConfig, Time, Topology};
use urxe_core::Recovery;
use urxe_wire::{Opcode, Operation, icrc_of_l3};

use crate::checks::Plant;

/// Each is a run of some milliseconds; 2000 have been seen to pass.
const SEEDS: u64 = 30;

const OPS: [StreamOp; 4] = [
    StreamOp::Write,
    StreamOp::Read,
    StreamOp::Send,
    StreamOp::FetchAdd,
];

/// Streams of all kinds each way between the first hosts and the last.
fn busy(topology: Topology, config: FabricConfig, recovery: Recovery, message: u32) -> Sim {
    let mut sim = Sim::new(topology, config).expect("builds");
    sim.set_transport_config(TransportConfig {
        recovery,
        ..TransportConfig::default()
    });
    let last = HostId(sim.fabric().topology().hosts().count() as u32 - 1);
    for host in 0..last.0 {
        for (from, to) in [(HostId(host), last), (last, HostId(host))] {
            for op in OPS {
                let spec = StreamSpec {
                    op,
                    count: 12,
                    depth: 4,
                    ..StreamSpec::write(from, to, message)
                };
                sim.add_stream(spec).expect("connects");
            }
        }
    }
    sim
}

/// Requests that came before their turn.
fn overtaken(sim: &Sim) -> u64 {
    sim.transport_stats()
        .map(|(_, stats)| stats.out_of_seq_request)
        .sum()
}

/// Loses 1 to 10 % of what goes over so many cables; damages, doubles and delays.
fn faults(seed: u64, cables: f64) -> [Fault; 4] {
    let p = (0.01 + 0.01 * (seed % 10) as f64) / cables;
    [
        Fault::loss(p),
        Fault::corrupt_inside(p / 4.0),
        Fault::duplicate(p, Span::from_us(5)),
        Fault::reorder(p, Span::from_us(7)),
    ]
}

fn link() -> Link {
    Link::new(Rate::gbps(100))
}

/// Networks that deliver in another order: by losses, by switches, and by several ports of a host.
fn network(kind: u64, seed: u64) -> (Topology, FabricConfig) {
    let mut config = FabricConfig {
        seed,
        mode: match seed % 2 {
            0 => Mode::Bytes,
            _ => Mode::Lite,
        },
        ..FabricConfig::default()
    };
    let topology = match kind {
        0 => Topology::single_switch(3, link()),
        1 => {
            config.switch = SwitchConfig {
                balance: Balance::Spray,
                ..SwitchConfig::default()
            };
            Topology::leaf_spine(3, 4, 1, link(), link())
        }
        _ => {
            config.adapter = AdapterConfig {
                planes: Planes::Spray,
                ..AdapterConfig::default()
            };
            Topology::leaf_spine(3, 2, 1, link(), link()).planes(4)
        }
    };
    (topology, config)
}

#[test]
fn runs_as_they_should_be_pass_whatever_is_overtaken() {
    for seed in 0..SEEDS {
        let (kind, recovery) = (
            seed % 3,
            match seed % 5 {
                0 => Recovery::Keep,
                _ => Recovery::Selective,
            },
        );
        // The second half without losses: what switches and hosts do is enough.
        let has_faults = seed < SEEDS / 2 || kind == 0;
        let (topology, config) = network(kind, seed);
        let mut sim = busy(topology, config, recovery, 20_000);
        let cables = if kind == 0 { 2.0 } else { 4.0 };
        for fault in faults(seed, cables).into_iter().filter(|_| has_faults) {
            sim.add_fault(fault).expect("makes sense");
        }
        sim.run();
        if let Err(violated) = sim.verdict() {
            panic!("seed {seed}: {violated}");
        }
        assert!(overtaken(&sim) > 0, "seed {seed}");
        for stream in sim.streams() {
            // A requester that goes back runs out of retries.
            let may_fail = recovery == Recovery::Keep && has_faults;
            assert!(may_fail || stream.is_complete(), "seed {seed}: {stream:?}");
        }
    }
}

/// What is found if a packet is lost, and something is done to those behind it that are kept.
fn planted(op: StreamOp, interference: impl Interference + 'static) -> Vec<Check> {
    let topology = Topology::single_switch(2, link().metres(1_000));
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("builds");
    sim.set_transport_config(TransportConfig {
        recovery: Recovery::Selective,
        ..TransportConfig::default()
    });
    let spec = StreamSpec {
        op,
        count: 20,
        depth: 8,
        ..StreamSpec::write(HostId(0), HostId(1), 5_000)
    };
    sim.add_stream(spec).expect("connects");
    let sender = HostId(u32::from(op == StreamOp::Read));
    sim.add_fault(Fault::loss(1.0).nth([17]).on(sender))
        .expect("makes sense");
    sim.fabric_mut().set_interference(Box::new(interference));
    sim.run();
    assert!(op == StreamOp::Read || overtaken(&sim) > 0, "{op:?}");
    match sim.verdict() {
        Ok(()) => Vec::new(),
        Err(violated) => violated.violations.iter().map(|v| v.check).collect(),
    }
}

fn plant(operation: Operation, after: u32, change: fn(&mut [u8])) -> Plant {
    Plant {
        operation: Some(operation),
        after,
        change,
    }
}

#[test]
fn wrong_bytes_of_what_was_kept_are_found() {
    for (op, operation) in [
        (StreamOp::Write, Operation::Write),
        (StreamOp::Send, Operation::Send),
        (StreamOp::Read, Operation::ReadResponse),
    ] {
        let nothing = plant(operation, 26, |_| ());
        assert_eq!(planted(op, nothing), [], "{op:?}");
        let flip = plant(operation, 26, |packet| packet[300] ^= 1);
        assert_eq!(planted(op, flip), [Check::Delivery], "{op:?}");
    }
}

#[test]
fn an_atomic_that_was_kept_and_adds_something_else_is_found() {
    // The AtomicETH: address, rkey, what to add.
    let more = plant(Operation::FetchAdd, 20, |packet| packet[12 + 8 + 4 + 7] = 2);
    assert_eq!(planted(StreamOp::FetchAdd, more), [Check::Atomics]);
}

/// One packet has the place of another, with a right ICRC: the number of a packet among those of its kind, and the one the
/// payload of which it has.
#[derive(Debug)]
struct Instead {
    operation: Operation,
    place: u32,
    of: u32,
    seen: u32,
    payload: Vec<u8>,
}

impl Instead {
    fn new(operation: Operation, place: u32, of: u32) -> Instead {
        Instead {
            operation,
            place,
            of,
            seen: 0,
            payload: Vec::new(),
        }
    }
}

impl Interference for Instead {
    fn on_wire(&mut self, _: Time, _: PortId, frame: &mut Frame, bytes: &mut [u8]) -> Fate {
        let Payload::Roce { .. } = frame.payload else {
            return Fate::Pass;
        };
        if Opcode(bytes[42]).info().map(|info| info.operation) != Some(self.operation) {
            return Fate::Pass;
        }
        let l3 = &mut bytes[14..frame.len as usize - 4];
        let end = l3.len() - 4;
        let payload = &mut l3[28 + 12..end];
        if self.seen == self.of {
            self.payload = payload.to_vec();
        }
        if self.seen == self.place {
            assert_eq!(payload.len(), self.payload.len());
            payload.copy_from_slice(&self.payload);
            let icrc = icrc_of_l3(l3).expect("a packet").to_le_bytes();
            l3[end..].copy_from_slice(&icrc);
        }
        self.seen += 1;
        Fate::Pass
    }
}

#[test]
fn a_packet_that_is_executed_in_the_place_of_another_is_found() {
    for (op, operation) in [
        (StreamOp::Write, Operation::Write),
        (StreamOp::Send, Operation::Send),
    ] {
        // Of five packets each message has three in its middle. Frames are seen on two cables.
        let twice = Instead::new(operation, 27, 26);
        assert_eq!(planted(op, twice), [Check::Delivery], "{op:?}");
    }
}

#[test]
fn what_is_acknowledged_and_was_not_kept_is_found() {
    let ahead = plant(Operation::Acknowledge, 2, |packet| {
        packet[11] = packet[11].wrapping_add(20);
    });
    let found = planted(StreamOp::Write, ahead);
    assert!(found.contains(&Check::Completions), "{found:?}");
}
