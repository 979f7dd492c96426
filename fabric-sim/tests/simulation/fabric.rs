//! The network alone, under plain flows: what it promises, and what textbooks say it must do.

use fabric_sim::experiments::{cycle_of_buffers, receiver_that_stops};
use fabric_sim::fabric::{AdapterConfig, DropReason};
use fabric_sim::host::{Arrivals, FlowSpec};
use fabric_sim::qos::{PauseTimes, Trust};
use fabric_sim::switch::{DeadQueue, Marking, Watchdog, WatchdogAction, headroom};
use fabric_sim::topology::{Node, PortId};
use fabric_sim::{
    FabricConfig, FlowControl, HostId, Link, Mode, Qos, Rate, Sim, Span, SwitchConfig, Time,
    Topology,
};

fn gbps(n: u64) -> Link {
    Link::new(Rate::gbps(n))
}

/// DSCP 0: a class that drops.
const LOSSY: u8 = 2;

/// Two senders and a receiver at a gigabit each, 20 ms: what each gets, and drops.
fn two_to_one(config: FabricConfig, tos: u8) -> (Sim, Vec<f64>) {
    let mut sim = Sim::new(Topology::single_switch(3, gbps(1)), config).expect("builds");
    let flows = [0, 1].map(|h| sim.add_flow(FlowSpec::new(HostId(h), HostId(2)).tos(tos)));
    sim.run_until(Time::ZERO + Span::from_ms(20));
    sim.fabric()
        .check_books()
        .expect("nothing is lost in the books");
    let rates = flows.map(|f| sim.flow(f).delivered_bytes as f64 * 8e-9 / 0.02);
    (sim, rates.to_vec())
}

fn with(flow_control: FlowControl) -> FabricConfig {
    let switch = SwitchConfig {
        buffer: 1 << 20,
        ..SwitchConfig::default()
    };
    let qos = Qos {
        flow_control,
        ..Qos::default()
    };
    FabricConfig {
        qos,
        switch,
        ..FabricConfig::default()
    }
}

/// Share of a link that payload has, with 1024 bytes a packet: 62 bytes of headers, 20 of gap.
const PAYLOAD_SHARE: f64 = 1024.0 / 1106.0;

#[test]
fn lossless_schemes_share_a_link_and_lose_nothing() {
    let schemes = [
        FlowControl::Pfc(PauseTimes::default()),
        FlowControl::Pause(PauseTimes::default()),
        FlowControl::Credits {
            buffer: 64 << 10,
            update: 8 << 10,
        },
    ];
    for scheme in schemes {
        let (sim, rates) = two_to_one(with(scheme), Qos::ROCE_TOS);
        for rate in rates {
            assert!(
                (rate - 0.5 * PAYLOAD_SHARE).abs() < 0.01,
                "{scheme:?}: {rate} Gb/s"
            );
        }
        assert_eq!(sim.fabric().drops().total(), 0, "{scheme:?}");
        assert_eq!(sim.fabric().credit_overrun(), 0);
        let stopped = sim
            .fabric()
            .topology()
            .ports()
            .map(|p| sim.fabric().port_stats(p));
        let (pauses, credits) = stopped.fold((0, 0), |sum, s| {
            (sum.0 + s.pauses_sent, sum.1 + s.credits_sent)
        });
        let is_credit = matches!(scheme, FlowControl::Credits { .. });
        assert_eq!(
            (pauses == 0, credits > 0),
            (is_credit, is_credit),
            "{scheme:?}"
        );
    }
}

#[test]
fn a_class_that_is_not_lossless_drops_and_the_link_stays_full() {
    let (sim, rates) = two_to_one(with(FlowControl::Pfc(PauseTimes::default())), LOSSY);
    assert!(sim.fabric().drops().of(DropReason::Buffer) > 100);
    assert_eq!(sim.fabric().drops().lossless_overruns(), 0);
    // Which flow gets how much is a matter of phases: frames of equal length always meet the queue in
    // the same order.
    let sum: f64 = rates.iter().sum();
    assert!((sum - PAYLOAD_SHARE).abs() < 0.01, "{rates:?}");
}

#[test]
fn lossy_traffic_beside_lossless_takes_its_share_and_costs_it_nothing() {
    let config = with(FlowControl::Pfc(PauseTimes::default()));
    let mut sim = Sim::new(Topology::single_switch(3, gbps(1)), config).expect("builds");
    let roce = sim.add_flow(FlowSpec::new(HostId(0), HostId(2)));
    let other = sim.add_flow(FlowSpec::new(HostId(1), HostId(2)).tos(LOSSY));
    sim.run_until(Time::ZERO + Span::from_ms(20));
    for flow in [roce, other] {
        let rate = sim.flow(flow).goodput().expect("came").as_gbps_f64();
        assert!((rate - 0.5 * PAYLOAD_SHARE).abs() < 0.01, "{rate}");
    }
    assert_eq!(sim.fabric().drops().lossless_overruns(), 0);
    assert!(
        sim.fabric().drops().of(DropReason::Buffer) > 0,
        "the lossy one drops"
    );
}

/// Headroom by the formula is enough for whatever moment the egress stops at; a packet less is not.
#[test]
fn headroom_by_the_formula_is_enough_and_tight() {
    let link = Link {
        mtu: 4160 - 18,
        ..gbps(100).metres(100)
    };
    let needed = headroom::required(&link, 1);
    assert_eq!(needed, 46_120);
    let drops = |room: u32, seed: u64| {
        let sim = receiver_that_stops(link, room, seed);
        sim.fabric().check_books().expect("balanced");
        sim.fabric().drops().lossless_overruns()
    };
    let failed = |room| (0..100).filter(|&seed| drops(room, seed) > 0).count();
    assert_eq!(failed(needed), 0, "the formula's value is enough");
    assert!(failed(needed - 4160) > 0, "a packet less is too little");
}

#[test]
fn a_cycle_of_buffers_is_no_deadlock_until_something_fills_it() {
    let mut sim = cycle_of_buffers(false, None);
    sim.run_until(Time::ZERO + Span::from_ms(50));
    assert!(sim.fabric().find_deadlock().is_none());
    assert_eq!(sim.fabric().frames_inside(), 0, "everything arrived");

    let mut sim = cycle_of_buffers(true, None);
    sim.run_until(Time::ZERO + Span::from_ms(50));
    let deadlock = sim
        .fabric()
        .find_deadlock()
        .expect("three flows close the cycle");
    assert_eq!(
        deadlock.cycle.len(),
        4,
        "{}",
        deadlock.describe(sim.fabric().topology())
    );
    assert!(sim.fabric().frames_inside() > 0);
    assert_eq!(sim.fabric().drops().total(), 0);
    sim.fabric().check_books().expect("balanced");
}

#[test]
fn the_watchdog_resolves_a_deadlock() {
    for action in [WatchdogAction::Drop, WatchdogAction::Forward] {
        let watchdog = Watchdog {
            detect: Span::from_ms(2),
            restore: Span::from_ms(2),
            action,
        };
        let mut sim = cycle_of_buffers(true, Some(watchdog));
        sim.run_until(Time::ZERO + Span::from_ms(100));
        assert!(sim.fabric().find_deadlock().is_none(), "{action:?}");
        assert_eq!(sim.fabric().frames_inside(), 0, "{action:?}");
        let storms: u64 = sim
            .fabric()
            .topology()
            .ports()
            .map(|p| sim.fabric().port_stats(p).storms)
            .sum();
        assert!(storms > 0, "{action:?}");
        sim.fabric().check_books().expect("balanced");
    }
}

#[test]
fn a_slow_receiver_stops_its_sender_and_loses_nothing() {
    let config = with(FlowControl::Pfc(PauseTimes::default()));
    let adapter = AdapterConfig {
        rx_rate: Some(Rate::gbps(3)),
        ..AdapterConfig::default()
    };
    let config = FabricConfig { adapter, ..config };
    let mut sim = Sim::new(Topology::single_switch(2, gbps(10)), config).expect("builds");
    let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)));
    sim.run_until(Time::ZERO + Span::from_ms(20));
    let rate = sim.flow(flow).goodput().expect("came").as_gbps_f64();
    // The receiver counts frames, without gaps.
    assert!((rate - 3.0 * 1024.0 / 1086.0).abs() < 0.03, "{rate}");
    assert_eq!(sim.fabric().drops().total(), 0);
    assert!(
        sim.fabric()
            .port_stats(sim.fabric().port_of(HostId(1)))
            .pauses_sent
            > 0
    );
}

#[test]
fn pauses_expire_when_they_are_not_told_again() {
    let config = with(FlowControl::Pfc(PauseTimes::default()));
    let mut sim = Sim::new(Topology::single_switch(2, gbps(10)), config).expect("builds");
    let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).paced(Rate::gbps(1)));
    sim.run_until(Time::ZERO + Span::from_us(100));
    let port = sim.fabric().port_of(HostId(1));
    // 1000 quanta of 512 bits at 10 Gb/s are 51.2 us.
    let pause = urxe_wire::Pause::Priorities {
        enabled: 1 << 3,
        quanta: [1000; 8],
    };
    sim.fabric_mut().send_pause(port, pause);
    let before = sim.flow(flow).delivered;
    sim.run_for(Span::from_us(45));
    let during = sim.flow(flow).delivered - before;
    assert!(during <= 3, "{during} packets came in spite of the pause");
    sim.run_for(Span::from_us(50));
    assert!(
        sim.flow(flow).delivered - before > 8,
        "and now they come again"
    );
    let paused = sim.fabric().port_stats(port.peer()).paused[3];
    assert_eq!(paused, Span::from_ns(51_200));
}

#[test]
fn equal_paths_are_chosen_by_the_source_port() {
    let topology = Topology::leaf_spine(2, 4, 1, gbps(100), gbps(100));
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("builds");
    for port in 0..64 {
        let spec = FlowSpec::new(HostId(0), HostId(1))
            .size(1024)
            .source_port(0xc000 + port);
        sim.add_flow(spec);
    }
    sim.run();
    let fabric = sim.fabric();
    let topology = fabric.topology();
    let leaf = topology.find("leaf0").expect("named so");
    let up: Vec<u64> = topology
        .ports()
        .filter(|&p| topology.node_at(p) == leaf && !is_host(topology, p.peer()))
        .map(|p| fabric.port_stats(p).sent_frames[3])
        .collect();
    assert_eq!(up.iter().sum::<u64>(), 64);
    assert!(up.iter().all(|&n| n > 4), "{up:?}");
}

fn is_host(topology: &Topology, port: PortId) -> bool {
    matches!(topology.node_at(port), Node::Host(_))
}

#[test]
fn long_queues_mark_and_only_frames_that_may_be_marked() {
    let mut switch = SwitchConfig::default();
    switch.marking[3] = Some(Marking {
        min: 5_000,
        max: 200_000,
        probability: 1.0,
    });
    let config = FabricConfig {
        switch,
        ..FabricConfig::default()
    };
    let mut sim = Sim::new(Topology::single_switch(3, gbps(10)), config).expect("builds");
    let ect = sim.add_flow(FlowSpec::new(HostId(0), HostId(2)));
    let not_ect = sim.add_flow(FlowSpec::new(HostId(1), HostId(2)).tos(26 << 2));
    sim.run_until(Time::ZERO + Span::from_ms(5));
    assert!(sim.flow(ect).marked > 100);
    assert_eq!(sim.flow(not_ect).marked, 0);
}

#[test]
fn bit_errors_lose_as_many_frames_as_they_should() {
    let link = Link {
        bit_error_rate: 1e-6,
        ..gbps(100)
    };
    let mut sim = Sim::new(Topology::back_to_back(link), FabricConfig::default()).expect("builds");
    let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(100_000 * 1024));
    sim.run();
    let lost = f64::from(sim.flow(flow).sent - sim.flow(flow).delivered) / 100_000.0;
    let expected = 1.0 - (1.0f64 - 1e-6).powi(1086 * 8);
    assert!((lost - expected).abs() < 0.001, "{lost} beside {expected}");
    assert_eq!(
        sim.fabric().drops().of(DropReason::BitError),
        sim.fabric().drops().total()
    );
}

/// A queue with random arrivals and constant service waits rho / (2 mu (1 - rho)) in the mean.
#[test]
fn waiting_times_are_those_of_theory() {
    for (load, tolerance) in [(0.5, 0.02), (0.8, 0.02), (0.9, 0.03)] {
        let link = gbps(100);
        let mut sim =
            Sim::new(Topology::back_to_back(link), FabricConfig::default()).expect("builds");
        let rate = Rate::bps((load * 100e9) as u64);
        let packets = 1_000_000;
        let flow = sim.add_flow(FlowSpec {
            arrivals: Arrivals::Poisson(rate),
            ..FlowSpec::new(HostId(0), HostId(1)).size(packets * 1024)
        });
        sim.run();
        let service = link.rate.time_of(1106);
        let wait = sim.flow(flow).latency_mean().expect("came") - service - link.delay;
        let expected = load / (2.0 * (1.0 - load)) * service.as_secs_f64();
        let ratio = wait.as_secs_f64() / expected;
        assert!(
            (ratio - 1.0).abs() < tolerance,
            "load {load}: {ratio} of theory"
        );
    }
}

#[test]
fn a_loop_ends_what_travels_in_it() {
    let topology = Topology::dumbbell(1, 1, gbps(10), gbps(10));
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("builds");
    let (a, b) = (
        fabric_sim::topology::SwitchId(0),
        fabric_sim::topology::SwitchId(1),
    );
    let back = sim
        .fabric()
        .topology()
        .port_between(b, a)
        .expect("connected");
    sim.fabric_mut().routes_mut().set(b, HostId(1), &[back]);
    sim.add_flow(FlowSpec {
        ttl: 16,
        ..FlowSpec::new(HostId(0), HostId(1)).size(10 * 1024)
    });
    sim.run();
    assert_eq!(sim.fabric().drops().of(DropReason::TimeToLive), 10);
}

#[test]
fn frames_that_are_too_long_and_hosts_that_are_cut_off() {
    let link = Link {
        mtu: 1500,
        ..gbps(10)
    };
    let mut sim =
        Sim::new(Topology::single_switch(2, link), FabricConfig::default()).expect("builds");
    sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).payload(4096).size(4096));
    sim.run();
    assert_eq!(sim.fabric().drops().of(DropReason::TooLong), 1);

    let text = "h0 s0 10Gbps 2m\nh1 s1 10Gbps 2m";
    let topology: Topology = text.parse().expect("reads");
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("builds");
    sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(4096));
    sim.run();
    assert_eq!(sim.fabric().drops().of(DropReason::NoRoute), 4);
    sim.fabric().check_books().expect("balanced");
}

#[test]
fn a_cable_that_is_out_loses_or_holds_what_waits() {
    let lost = |dead_queue| {
        let mut config = FabricConfig::default();
        config.switch.dead_queue = dead_queue;
        let mut sim = Sim::new(Topology::single_switch(2, gbps(10)), config).expect("builds");
        let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(1024 * 1000));
        sim.run_until(Time::ZERO + Span::from_us(100));
        let port = sim.fabric().port_of(HostId(1));
        sim.fabric_mut().set_link_down(port, true);
        sim.run_for(Span::from_us(500));
        let before = sim.flow(flow).delivered;
        sim.run_for(Span::from_us(500));
        assert_eq!(sim.flow(flow).delivered, before);
        sim.fabric_mut().set_link_down(port, false);
        sim.run();
        sim.verdict().expect("the books are right");
        let drops = sim.fabric().drops();
        let (cable, queue) = (
            drops.of(DropReason::LinkDown),
            drops.of(DropReason::NoCarrier),
        );
        let delivered = u64::from(sim.flow(flow).delivered);
        assert_eq!(delivered + cable + queue, 1000);
        assert!(
            cable <= 1,
            "only the frame that was on its way out: {cable}"
        );
        queue
    };
    assert_eq!(lost(DeadQueue::Keep), 0);
    // What the host sends in a millisecond.
    assert!(lost(DeadQueue::Flush) > 800);
}

#[test]
fn tags_name_the_class_where_they_are_trusted() {
    let qos = Qos {
        trust: Trust::Pcp,
        ..Qos::default()
    };
    let config = FabricConfig {
        qos,
        ..FabricConfig::default()
    };
    let mut sim = Sim::new(Topology::single_switch(2, gbps(10)), config).expect("builds");
    let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(1024 * 10));
    sim.run();
    let stats = sim.fabric().port_stats(sim.fabric().port_of(HostId(0)));
    assert_eq!(
        (stats.sent_frames[3], stats.sent_bytes[3]),
        (10, 10 * 1090),
        "4 bytes of tag"
    );
    assert!(sim.flow(flow).is_complete());
}

#[test]
fn one_seed_is_one_run_in_both_modes() {
    let run = |seed, mode| {
        let mut switch = SwitchConfig::default();
        switch.marking[3] = Some(Marking::DCQCN);
        let config = FabricConfig {
            seed,
            mode,
            switch,
            ..FabricConfig::default()
        };
        let topology = Topology::leaf_spine(2, 2, 4, gbps(25), gbps(40));
        let mut sim = Sim::new(topology, config).expect("builds");
        for h in 0..7 {
            let arrivals = Arrivals::Poisson(Rate::gbps(3 + u64::from(h)));
            sim.add_flow(FlowSpec {
                arrivals,
                ..FlowSpec::new(HostId(h), HostId(7))
            });
        }
        sim.run_until(Time::ZERO + Span::from_ms(1));
        (
            sim.fabric().trace(),
            sim.flows().iter().map(|f| f.marked).sum::<u32>(),
        )
    };
    let (hash, marked) = run(1, Mode::Bytes);
    assert!(marked > 0 && hash.events() > 10_000);
    assert_eq!((hash, marked), run(1, Mode::Bytes));
    assert_eq!((hash, marked), run(1, Mode::Lite));
    assert_ne!(hash, run(2, Mode::Bytes).0);
}
