//! Checks that are always on: each finds what it is for, and none finds anything in runs as they should be.

use fabric_sim::check::{Check, Mark};
use fabric_sim::experiments::cycle_of_buffers;
use fabric_sim::fabric::{Fate, Interference};
use fabric_sim::fault::Fault;
use fabric_sim::frame::{Frame, Payload};
use fabric_sim::host::{ConnectOptions, Contents, QpHandle, StreamOp, StreamSpec};
use fabric_sim::switch::{Watchdog, WatchdogAction};
use fabric_sim::topology::PortId;
use fabric_sim::{
    FabricConfig, FlowControl, HostId, Link, Mode, Qos, Rate, Sim, Span, SwitchConfig, Time,
    Topology,
};
use urxe_core::mr::MrKeys;
use urxe_core::qp::attr::QpCap;
use urxe_core::work::{SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Opcode, Operation, icrc_of_l3};

const OPS: [StreamOp; 4] = [
    StreamOp::Write,
    StreamOp::Read,
    StreamOp::Send,
    StreamOp::FetchAdd,
];

/// Hosts on a switch, of which all but the last talk to it, each in another way.
fn busy(config: FabricConfig, hosts: u32, faults: &[Fault]) -> Sim {
    let topology = Topology::single_switch(hosts, Link::new(Rate::gbps(100)));
    let mut sim = Sim::new(topology, config).expect("builds");
    for host in 0..hosts - 1 {
        let spec = StreamSpec {
            op: OPS[host as usize % 4],
            count: 12,
            depth: 4,
            ..StreamSpec::write(HostId(host), HostId(hosts - 1), 60_000)
        };
        sim.add_stream(spec).expect("connects");
    }
    for fault in faults {
        sim.add_fault(fault.clone()).expect("makes sense");
    }
    sim
}

fn found(sim: &mut Sim) -> Vec<Check> {
    match sim.verdict() {
        Ok(()) => Vec::new(),
        Err(violated) => violated.violations.iter().map(|v| v.check).collect(),
    }
}

#[test]
fn runs_as_they_should_be_pass_whatever_the_network_does() {
    let us = Span::from_us;
    let faults = [
        Fault::loss(0.03),
        Fault::corrupt_inside(0.01),
        Fault::duplicate(0.03, us(5)),
        Fault::reorder(0.03, us(7)),
    ];
    for (seed, mode) in [(1, Mode::Bytes), (2, Mode::Lite), (3, Mode::Bytes)] {
        let config = FabricConfig {
            seed,
            mode,
            ..FabricConfig::default()
        };
        for faults in [&[][..], &faults[..]] {
            let mut sim = busy(config.clone(), 9, faults);
            sim.run();
            sim.verdict().expect("all holds");
            for stream in sim.streams() {
                assert!(stream.is_complete(), "{stream:?}");
            }
            let marks = sim.marks();
            for mark in [
                Mark::Nak,
                Mark::Retransmit,
                Mark::Duplicate,
                Mark::AtomicReplay,
            ] {
                let is_seen = marks.of(mark) > 0;
                assert!(is_seen || faults.is_empty(), "{mark:?} under seed {seed}");
            }
            assert!(!faults.is_empty() || marks.of(Mark::Retransmit) == 0);
        }
    }
}

#[test]
fn faults_that_break_connections_break_no_promise() {
    let us = Span::from_us;
    for fault in [
        Fault::crash(HostId(4)).between(us(20), us(3_000)),
        Fault::crash(HostId(1)).between(us(20), us(3_000)),
        Fault::loss(1.0)
            .on(HostId(0))
            .between(us(10), Span::from_ms(2_000)),
        Fault::link_down()
            .on(HostId(4))
            .between(us(10), Span::from_ms(3_000)),
    ] {
        let mut sim = busy(FabricConfig::default(), 5, std::slice::from_ref(&fault));
        sim.run();
        sim.verdict().expect("all holds");
        let has_failed = sim.streams().iter().any(|s| s.failure.is_some());
        assert!(has_failed, "{fault} breaks a connection");
    }
}

#[test]
fn psns_wrap_and_receives_run_out_and_that_is_seen() {
    let mut sim = Sim::new(
        Topology::single_switch(2, Link::new(Rate::gbps(100))),
        FabricConfig::default(),
    )
    .expect("builds");
    sim.set_transport_config(fabric_sim::host::TransportConfig {
        first_psn: Some(urxe_wire::Psn::new(0xff_fff0)),
        ..Default::default()
    });
    let spec = StreamSpec {
        op: StreamOp::Send,
        count: 40,
        depth: 8,
        receives: 1,
        ..StreamSpec::write(HostId(0), HostId(1), 5_000)
    };
    sim.add_stream(spec).expect("connects");
    sim.run();
    sim.verdict().expect("all holds");
    assert!(sim.streams()[0].is_complete());
    assert!(sim.marks().of(Mark::PsnWrap) > 0);
    let seen: Vec<Mark> = sim.marks().seen().map(|(mark, _)| mark).collect();
    assert!(seen.contains(&Mark::PsnWrap), "{seen:?}");
}

/// Changes packets of one kind as only the core itself could, with a right ICRC; or has frames lost that a
/// neighbour relies on.
#[derive(Debug)]
pub(crate) struct Plant {
    pub(crate) operation: Option<Operation>,
    /// Which of them.
    pub(crate) after: u32,
    pub(crate) change: fn(&mut [u8]),
}

impl Interference for Plant {
    fn on_wire(&mut self, _: Time, _: PortId, frame: &mut Frame, bytes: &mut [u8]) -> Fate {
        let Payload::Roce { .. } = frame.payload else {
            let loses_pauses = self.operation.is_none() && frame.payload.is_control();
            return if loses_pauses { Fate::Lose } else { Fate::Pass };
        };
        if Opcode(bytes[42]).info().map(|info| info.operation) != self.operation {
            return Fate::Pass;
        }
        self.after = self.after.wrapping_sub(1);
        if self.after == 0 {
            let l3 = &mut bytes[14..frame.len as usize - 4];
            (self.change)(&mut l3[28..]);
            let icrc = icrc_of_l3(l3).expect("a packet").to_le_bytes();
            let end = l3.len() - 4;
            l3[end..].copy_from_slice(&icrc);
        }
        Fate::Pass
    }
}

fn planted(operation: Operation, after: u32, change: fn(&mut [u8])) -> Vec<Check> {
    let mut sim = busy(FabricConfig::default(), 5, &[]);
    let plant = Plant {
        operation: Some(operation),
        after,
        change,
    };
    sim.fabric_mut().set_interference(Box::new(plant));
    sim.run();
    let found = found(&mut sim);
    if let Err(violated) = sim.verdict() {
        let text = violated.to_string();
        assert!(
            text.starts_with("seed 0: ") && text.contains(" QP 0x"),
            "{text}"
        );
    }
    found
}

#[test]
fn bytes_that_nobody_sent_are_found() {
    let flip = |packet: &mut [u8]| packet[300] ^= 1;
    assert_eq!(planted(Operation::Write, 30, flip), [Check::Delivery]);
    assert_eq!(
        planted(Operation::ReadResponse, 30, flip),
        [Check::Delivery]
    );
    assert_eq!(planted(Operation::Send, 30, flip), [Check::Delivery]);
}

#[test]
fn a_message_that_is_acknowledged_and_never_executed_is_found() {
    let topology = Topology::single_switch(2, Link::new(Rate::gbps(100)).metres(1_000));
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("builds");
    let spec = StreamSpec {
        count: 50,
        depth: 16,
        ..StreamSpec::write(HostId(0), HostId(1), 1_000)
    };
    sim.add_stream(spec).expect("connects");
    // The sixth message is lost, and acknowledged all the same.
    sim.add_fault(Fault::loss(1.0).nth([5]).on(HostId(0)))
        .expect("makes sense");
    let ahead = Plant {
        operation: Some(Operation::Acknowledge),
        after: 1,
        change: |packet| packet[11] = packet[11].wrapping_add(8),
    };
    sim.fabric_mut().set_interference(Box::new(ahead));
    sim.run();
    let found = found(&mut sim);
    assert!(found.contains(&Check::Completions), "{found:?}");
}

#[test]
fn atomics_that_add_or_return_something_else_are_found() {
    // The AtomicETH: address, rkey, what to add.
    let adds_more = |packet: &mut [u8]| packet[12 + 8 + 4 + 7] = 2;
    assert_eq!(planted(Operation::FetchAdd, 5, adds_more), [Check::Atomics]);
    let returns_more = |packet: &mut [u8]| packet[12 + 4 + 7] ^= 0x40;
    let found = planted(Operation::AtomicAcknowledge, 5, returns_more);
    assert_eq!(found, [Check::Atomics]);
}

/// Two hosts with a connection, and a region of 4 KiB on each.
fn pair() -> (Sim, [QpHandle; 2], [(u64, MrKeys); 2]) {
    let mut sim = Sim::new(
        Topology::single_switch(2, Link::new(Rate::gbps(100))),
        FabricConfig::default(),
    )
    .expect("builds");
    let cap = QpCap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let ends = [0, 1].map(|h| {
        sim.with_verbs(HostId(h), |v| {
            let cq = v.create_cq();
            v.create_qp(cq, cap).expect("creates")
        })
    });
    let regions = [0, 1].map(|h| {
        let bytes = Contents::Bytes(vec![h as u8; 4096]);
        sim.with_verbs(HostId(h), |v| v.register(4096, bytes).expect("registers"))
    });
    sim.connect(ends[0], ends[1], &ConnectOptions::default())
        .expect("connects");
    (sim, ends, regions)
}

/// Posts a request of 100 bytes on the first host.
fn post(sim: &mut Sim, qp: QpHandle, regions: &[(u64, MrKeys); 2], opcode: WrOpcode) {
    let [(addr, keys), (remote, remote_keys)] = *regions;
    let (length, lkey) = (100, keys.lkey);
    let sges = [Sge { addr, length, lkey }];
    let mut wr = SendWr::new(7, opcode, WrData::Sges(&sges));
    (wr.remote_addr, wr.rkey) = (remote + 64, remote_keys.rkey);
    sim.with_verbs(qp.host, |v| v.post_send(qp.index, &wr).expect("posts"));
}

#[test]
fn a_write_to_another_place_is_found() {
    let further = |packet: &mut [u8]| packet[12 + 7] += 1;
    let nothing = |_: &mut [u8]| ();
    for (change, expected) in [
        (nothing as fn(&mut [u8]), vec![]),
        (further, vec![Check::Delivery]),
    ] {
        let (mut sim, ends, regions) = pair();
        let plant = Plant {
            operation: Some(Operation::Write),
            after: 1,
            change,
        };
        sim.fabric_mut().set_interference(Box::new(plant));
        post(&mut sim, ends[0], &regions, WrOpcode::RdmaWrite);
        sim.run();
        assert_eq!(found(&mut sim), expected);
    }
}

#[test]
fn lost_pauses_overrun_a_switch_unless_they_are_a_fault() {
    let switch = SwitchConfig {
        buffer: 1 << 20,
        ..SwitchConfig::default()
    };
    let sim = || {
        let config = FabricConfig {
            switch: switch.clone(),
            ..FabricConfig::default()
        };
        let topology = Topology::single_switch(17, Link::new(Rate::gbps(100)));
        let mut sim = Sim::new(topology, config).expect("builds");
        for host in 0..16 {
            let spec = StreamSpec::write(HostId(host), HostId(16), 1 << 18);
            sim.add_stream(spec).expect("connects");
        }
        sim
    };
    let mut plain = sim();
    plain.run();
    plain.verdict().expect("all holds");
    assert!(plain.marks().of(Mark::Pause) > 0);
    let mut ignores = sim();
    ignores.fabric_mut().set_interference(Box::new(Plant {
        operation: None,
        after: 0,
        change: |_| (),
    }));
    ignores.run();
    assert_eq!(found(&mut ignores), [Check::Lossless]);
    let text = ignores.verdict().expect_err("an overrun").to_string();
    assert!(
        text.contains("a frame of lossless class 3 from h"),
        "{text}"
    );
    let mut faulty = sim();
    faulty
        .add_fault(Fault::pause_loss(1.0))
        .expect("makes sense");
    faulty.run();
    assert_eq!(found(&mut faulty), []);
    assert!(faulty.marks().of(Mark::BufferDrop) > 0);
    let mut skipped = sim();
    skipped.skip_check(Check::Lossless);
    skipped.fabric_mut().set_interference(Box::new(Plant {
        operation: None,
        after: 0,
        change: |_| (),
    }));
    skipped.run();
    assert_eq!(found(&mut skipped), []);
}

/// Every frame twice.
#[derive(Debug)]
struct Twice;

impl Interference for Twice {
    fn on_wire(&mut self, _: Time, _: PortId, frame: &mut Frame, _: &mut [u8]) -> Fate {
        match frame.payload.is_control() {
            true => Fate::Pass,
            false => Fate::Duplicate(Span::from_ns(1)),
        }
    }
}

#[test]
fn more_than_room_was_promised_for_is_found() {
    let qos = Qos {
        flow_control: FlowControl::Credits {
            buffer: 16 << 10,
            update: 2 << 10,
        },
        ..Qos::default()
    };
    let config = FabricConfig {
        qos,
        ..FabricConfig::default()
    };
    let mut plain = busy(config.clone(), 6, &[]);
    plain.run();
    plain.verdict().expect("all holds");
    let mut sim = busy(config, 6, &[]);
    sim.fabric_mut().set_interference(Box::new(Twice));
    sim.run_until(Time::ZERO + Span::from_ms(2));
    assert!(found(&mut sim).contains(&Check::Credits));
}

#[test]
fn a_deadlock_is_found_while_it_lasts_and_a_circle_without_one_is_none() {
    let until = Time::ZERO + Span::from_ms(8);
    let mut stuck = cycle_of_buffers(true, None);
    stuck.run_until(until);
    assert_eq!(found(&mut stuck), [Check::Deadlock]);
    let text = stuck.verdict().expect_err("stuck").to_string();
    assert!(text.contains("waits for"), "{text}");
    assert!(stuck.marks().of(Mark::Deadlock) > 0);
    let mut free = cycle_of_buffers(false, None);
    free.run_until(until);
    assert_eq!(found(&mut free), []);
    let watchdog = Watchdog {
        detect: Span::from_ms(1),
        restore: Span::from_ms(1),
        action: WatchdogAction::Drop,
    };
    let mut watched = cycle_of_buffers(true, Some(watchdog));
    watched.run_until(until);
    assert_eq!(found(&mut watched), []);
    assert!(watched.marks().of(Mark::CyclicDependency) > 0);
}

#[test]
fn a_request_that_never_gets_on_is_found() {
    let (mut sim, ends, regions) = pair();
    // No receive is posted, and RNR retries go on for ever.
    post(&mut sim, ends[0], &regions, WrOpcode::Send);
    sim.run_until(Time::ZERO + Span::from_ms(900));
    assert_eq!(found(&mut sim), []);
    sim.run_until(Time::ZERO + Span::from_ms(4_000));
    assert_eq!(found(&mut sim), [Check::Progress]);
    assert!(sim.marks().of(Mark::Rnr) > 0);
}
