//! The real transport over the fabric.

use fabric_sim::engine::TraceHash;
use fabric_sim::fabric::{DropReason, Fate, Interference};
use fabric_sim::frame::{Frame, Payload};
use fabric_sim::host::{ConnectOptions, Contents, Program, QpHandle, StreamOp, StreamSpec, Verbs};
use fabric_sim::qos::PauseTimes;
use fabric_sim::topology::PortId;
use fabric_sim::{
    FabricConfig, FlowControl, HostId, Link, Mode, Qos, Rate, Sim, Span, SwitchConfig, Time,
    Topology,
};
use urxe_core::WcStatus;
use urxe_core::cq::CqId;
use urxe_core::qp::attr::{Mtu, QpCap};
use urxe_core::work::{SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Lkey, Rkey};

fn link() -> Link {
    Link::new(Rate::gbps(100))
}

fn incast(senders: u32, bytes: u32, mode: Mode) -> Sim {
    let switch = SwitchConfig {
        buffer: 2 << 20,
        ..SwitchConfig::default()
    };
    let config = FabricConfig {
        mode,
        switch,
        ..FabricConfig::default()
    };
    let topology = Topology::single_switch(senders + 1, link());
    let mut sim = Sim::new(topology, config).expect("builds");
    for h in 0..senders {
        sim.add_stream(StreamSpec::write(HostId(h), HostId(senders), bytes))
            .expect("connects");
    }
    sim
}

fn check(sim: &Sim) {
    for stream in sim.streams() {
        assert_eq!(
            (stream.failure, stream.is_complete()),
            (None, true),
            "{stream:?}"
        );
    }
    for host in sim.fabric().topology().hosts() {
        let memory = sim.transport(host).map(|t| t.memory().mismatches());
        assert_eq!(memory, Some(0), "bytes of {host:?}");
    }
    assert_eq!(sim.unreadable_frames(), 0);
    sim.fabric().check_books().expect("balanced");
}

#[test]
fn an_incast_takes_the_time_of_its_bytes() {
    let (senders, bytes) = (12, 256 << 10);
    let mut sim = incast(senders, bytes, Mode::Bytes);
    sim.run();
    check(&sim);
    assert_eq!(sim.fabric().drops().total(), 0);
    let pauses: u64 = sim
        .fabric()
        .topology()
        .ports()
        .map(|p| sim.fabric().port_stats(p).pauses_sent)
        .sum();
    assert!(pauses > 0, "so many senders fill a buffer of 2 MiB");
    let done = sim.streams().iter().map(|s| s.last).max().expect("some");
    // Packets of 1024 bytes with 62 of headers and a gap of 20; the first of a message has 16 more.
    let wire = u64::from(senders) * u64::from(bytes / 1024 * 1106 + 16);
    let expected = Rate::gbps(100).time_of(wire).as_secs_f64();
    let ratio = done.as_secs_f64() / expected;
    assert!((1.0..1.02).contains(&ratio), "{ratio} of {expected} s");
    let repeated: u64 = sim
        .transport_stats()
        .map(|(_, s)| s.duplicate_request)
        .sum();
    assert_eq!(repeated, 0, "nothing was sent twice");
}

#[test]
fn both_modes_have_the_same_events() {
    let run = |mode| {
        let mut sim = incast(5, 64 << 10, mode);
        for h in 0..3 {
            let read = StreamSpec {
                op: StreamOp::Read,
                count: 3,
                depth: 2,
                ..StreamSpec::write(HostId(h), HostId(5), 20_000)
            };
            sim.add_stream(read).expect("connects");
        }
        sim.run();
        check(&sim);
        (
            sim.fabric().trace(),
            sim.fabric().content(),
            sim.fabric().events(),
        )
    };
    let (order, content, events) = run(Mode::Bytes);
    assert_eq!((order, content, events), run(Mode::Bytes), "twice the same");
    let (lite, nothing, lite_events) = run(Mode::Lite);
    assert_eq!((order, events), (lite, lite_events));
    assert_eq!(nothing, TraceHash::default());
    assert!(content.events() > 500);
}

#[test]
fn seeds_make_different_runs() {
    let run = |seed| {
        let config = FabricConfig {
            seed,
            ..FabricConfig::default()
        };
        let mut sim = Sim::new(Topology::single_switch(2, link()), config).expect("builds");
        sim.add_stream(StreamSpec::write(HostId(0), HostId(1), 10_000))
            .expect("connects");
        sim.run();
        check(&sim);
        sim.fabric().trace()
    };
    assert_ne!(run(1), run(2), "QPNs and PSNs are drawn");
}

/// Loses, delays, repeats and damages what a number says.
#[derive(Debug)]
struct Trouble(u64);

impl Interference for Trouble {
    fn on_wire(&mut self, _: Time, _: PortId, frame: &mut Frame, bytes: &mut [u8]) -> Fate {
        if frame.payload.is_control() {
            return Fate::Pass;
        }
        self.0 += 1;
        match self.0 % 97 {
            13 => Fate::Lose,
            29 => Fate::Delay(Span::from_us(7)),
            43 => Fate::Duplicate(Span::from_us(3)),
            61 => Fate::Corrupt,
            83 if matches!(frame.payload, Payload::Roce { .. }) => {
                // Behind the check sequence: the ICRC must find it.
                bytes[60] ^= 0x10;
                Fate::Pass
            }
            _ => Fate::Pass,
        }
    }
}

#[test]
fn the_transport_gets_everything_through_a_bad_network() {
    for op in [StreamOp::Write, StreamOp::Read] {
        let config = FabricConfig::default();
        let mut sim = Sim::new(Topology::single_switch(2, link()), config).expect("builds");
        sim.fabric_mut().set_interference(Box::new(Trouble(0)));
        let spec = StreamSpec {
            op,
            ..StreamSpec::write(HostId(0), HostId(1), 100_000)
        };
        sim.add_stream(StreamSpec {
            count: 5,
            depth: 2,
            ..spec
        })
        .expect("connects");
        sim.run();
        check(&sim);
        assert!(sim.fabric().drops().of(DropReason::Fault) > 0);
        let damaged: u64 = sim
            .transport_stats()
            .map(|(_, s)| s.dropped_for(urxe_core::error::DropReason::Icrc))
            .sum();
        assert!(damaged > 0, "some ICRC was wrong");
    }
}

#[test]
fn without_flow_control_packets_are_lost_and_sent_again() {
    let qos = Qos {
        flow_control: FlowControl::None,
        ..Qos::default()
    };
    let switch = SwitchConfig {
        buffer: 200_000,
        ..SwitchConfig::default()
    };
    let config = FabricConfig {
        qos,
        switch,
        ..FabricConfig::default()
    };
    let mut sim = Sim::new(Topology::single_switch(5, link()), config).expect("builds");
    for h in 0..4 {
        let spec = StreamSpec::write(HostId(h), HostId(4), 500_000);
        sim.add_stream(spec).expect("connects");
    }
    sim.run();
    check(&sim);
    assert!(sim.fabric().drops().of(DropReason::Buffer) > 0);
}

#[test]
fn every_scheme_and_tag_carries_the_transport() {
    let schemes = [
        FlowControl::Pfc(PauseTimes::default()),
        FlowControl::Pause(PauseTimes::default()),
        FlowControl::Credits {
            buffer: 64 << 10,
            update: 8 << 10,
        },
    ];
    for flow_control in schemes {
        for trust in [fabric_sim::qos::Trust::Dscp, fabric_sim::qos::Trust::Pcp] {
            let qos = Qos {
                flow_control,
                trust,
                ..Qos::default()
            };
            let switch = SwitchConfig {
                buffer: 2 << 20,
                ..SwitchConfig::default()
            };
            let config = FabricConfig {
                qos,
                switch,
                ..FabricConfig::default()
            };
            let topology = Topology::leaf_spine(2, 2, 3, link(), link());
            let mut sim = Sim::new(topology, config).expect("builds");
            for h in 0..5 {
                let mut spec = StreamSpec::write(HostId(h), HostId(5), 200_000);
                spec.options.mtu = Mtu::Mtu4096;
                sim.add_stream(spec).expect("connects");
            }
            sim.run();
            check(&sim);
            assert_eq!(sim.fabric().drops().total(), 0, "{flow_control:?}");
            assert_eq!(sim.fabric().credit_overrun(), 0);
        }
    }
}

#[test]
fn a_peer_that_is_cut_off_is_told_as_an_error() {
    let mut sim =
        Sim::new(Topology::single_switch(2, link()), FabricConfig::default()).expect("builds");
    let id = sim
        .add_stream(StreamSpec::write(HostId(0), HostId(1), 1 << 20))
        .expect("connects");
    sim.run_until(Time::ZERO + Span::from_us(20));
    let port = sim.fabric().port_of(HostId(1));
    sim.fabric_mut().set_link_down(port, true);
    sim.run_until(Time::ZERO + Span::from_ms(2000));
    assert_eq!(sim.stream(id).failure, Some(WcStatus::RetryExcErr));
}

/// Adds 1 to a counter of another host, so many times.
#[derive(Debug)]
struct Adder {
    qp: QpHandle,
    cq: CqId,
    local: (u64, Lkey),
    remote: (u64, Rkey),
    left: u32,
    seen: Vec<u64>,
    is_busy: bool,
}

impl Program for Adder {
    fn poll(&mut self, verbs: &mut Verbs<'_>) {
        while let Some(cqe) = verbs.poll_cq(self.cq) {
            assert_eq!(cqe.status, WcStatus::Success);
            let bytes = verbs
                .transport()
                .memory()
                .read(self.local.0, 8)
                .expect("is there");
            self.seen
                .push(u64::from_ne_bytes(bytes.try_into().expect("8 bytes")));
            self.is_busy = false;
        }
        if self.left > 0 && !self.is_busy {
            (self.left, self.is_busy) = (self.left - 1, true);
            let sges = [Sge {
                addr: self.local.0,
                length: 8,
                lkey: self.local.1,
            }];
            let mut wr = SendWr::new(1, WrOpcode::AtomicFetchAndAdd, WrData::Sges(&sges));
            (wr.remote_addr, wr.rkey) = self.remote;
            wr.compare_add = 1;
            verbs.post_send(self.qp.index, &wr).expect("posts");
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

#[test]
fn programs_post_and_poll_in_virtual_time() {
    let mut sim =
        Sim::new(Topology::single_switch(4, link()), FabricConfig::default()).expect("builds");
    sim.fabric_mut().set_interference(Box::new(Trouble(0)));
    let cap = QpCap {
        max_send_wr: 4,
        max_recv_wr: 4,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let counter = HostId(3);
    let (at, keys) = sim.with_verbs(counter, |v| {
        v.register(8, Contents::Bytes(vec![0; 8]))
            .expect("registers")
    });
    for h in 0..3 {
        let (cq, qp, local) = sim.with_verbs(HostId(h), |v| {
            let cq = v.create_cq();
            let (addr, keys) = v
                .register(8, Contents::Bytes(vec![0; 8]))
                .expect("registers");
            (
                cq,
                v.create_qp(cq, cap).expect("creates"),
                (addr, keys.lkey),
            )
        });
        let peer = sim.with_verbs(counter, |v| {
            let cq = v.create_cq();
            v.create_qp(cq, cap).expect("creates")
        });
        let options = ConnectOptions::default();
        sim.connect(qp, peer, &options).expect("connects");
        let remote = (at, keys.rkey);
        let program = Adder {
            qp,
            cq,
            local,
            remote,
            left: 40,
            seen: Vec::new(),
            is_busy: false,
        };
        sim.set_program(HostId(h), Box::new(program));
    }
    sim.run();
    let mut seen = Vec::new();
    for h in 0..3 {
        let program = sim.take_program(HostId(h)).expect("is there").into_any();
        let adder = program.downcast::<Adder>().expect("is one");
        assert!(adder.seen.is_sorted(), "each sees a growing counter");
        seen.extend(adder.seen);
    }
    seen.sort_unstable();
    // Every addition happened once, whatever the network did to its packets.
    assert_eq!(seen, (0..120).collect::<Vec<u64>>());
}
