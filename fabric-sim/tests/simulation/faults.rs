//! Faults: each does what it says, where and when it says, and the transport lives through it.

use fabric_sim::fabric::DropReason;
use fabric_sim::fault::{Fault, FaultError, FaultKind, Forgery, Frames, Scope};
use fabric_sim::host::{FlowSpec, StreamOp, StreamSpec};
use fabric_sim::topology::SwitchId;
use fabric_sim::{FabricConfig, HostId, Link, Mode, Rate, Sim, Span, Time, Topology};
use urxe_core::WcStatus;

fn config(mode: Mode) -> FabricConfig {
    FabricConfig {
        mode,
        ..FabricConfig::default()
    }
}

/// Four hosts on a switch; h0 and h1 write to h3, and h2 reads from it.
fn busy(mode: Mode, faults: &[Fault]) -> Sim {
    let topology = Topology::single_switch(4, Link::new(Rate::gbps(100)));
    let mut sim = Sim::new(topology, config(mode)).expect("builds");
    for (from, op) in [
        (0, StreamOp::Write),
        (1, StreamOp::Write),
        (2, StreamOp::Read),
    ] {
        let spec = StreamSpec {
            op,
            count: 6,
            depth: 3,
            ..StreamSpec::write(HostId(from), HostId(3), 50_000)
        };
        sim.add_stream(spec).expect("connects");
    }
    for fault in faults {
        sim.add_fault(fault.clone()).expect("makes sense");
    }
    sim
}

fn run(mode: Mode, faults: &[Fault]) -> Sim {
    let sim = survived(mode, faults);
    for stream in sim.streams() {
        let outcome = (stream.failure, stream.is_complete());
        assert_eq!(outcome, (None, true), "{stream:?} under {faults:?}");
    }
    sim
}

/// Nothing wrong arrived, and every frame is accounted for. A connection may have given up.
fn survived(mode: Mode, faults: &[Fault]) -> Sim {
    let mut sim = busy(mode, faults);
    sim.run_until(Time::ZERO + Span::from_ms(3_000));
    let mismatches = |h| sim.transport(h).map_or(0, |t| t.memory().mismatches());
    let mismatches: u64 = sim.fabric().topology().hosts().map(mismatches).sum();
    assert_eq!(mismatches, 0, "under {faults:?}");
    sim.fabric().check_books().expect("balanced");
    sim
}

fn icrc_drops(sim: &Sim) -> u64 {
    let of = urxe_core::error::DropReason::Icrc;
    sim.transport_stats().map(|(_, s)| s.dropped_for(of)).sum()
}

fn in_flight(kind: FaultKind) -> Fault {
    Fault::new(kind).probability(0.02)
}

/// One fault of each kind about frames that the transport gets everything through.
fn all_about_frames() -> Vec<Fault> {
    let us = Span::from_us;
    let mut faults = vec![
        Fault::loss(0.02),
        Fault::burst_loss(0.005, 0.3),
        Fault::corrupt(0.02),
        Fault::corrupt_inside(0.02),
        Fault::duplicate(0.02, us(3)),
        Fault::reorder(0.02, us(9)),
        Fault::delay(us(2), us(1)).between(us(10), us(200)),
        Fault::partition([HostId(0)]).between(us(20), us(60)),
        Fault::new(FaultKind::BleachEcn),
        Fault::new(FaultKind::BlackHole { mtu: 600 }).between(us(10), us(30)),
    ];
    let forged = Forgery::ALL.iter();
    faults.extend(forged.map(|&forgery| in_flight(FaultKind::Forge(forgery))));
    faults
}

#[test]
fn the_transport_lives_through_each_of_them_and_each_has_hits() {
    for fault in all_about_frames() {
        let sim = run(Mode::Bytes, std::slice::from_ref(&fault));
        let hits = sim.fabric().faults()[0].hits();
        assert!(hits > 0, "{fault} did nothing");
        assert_eq!(
            hits.min(4096),
            sim.fabric().faults()[0].numbers().len() as u64
        );
    }
}

#[test]
fn all_together_are_the_same_twice_and_in_both_modes() {
    // A sixth of the frames do not arrive: in one seed of twenty that is eight times in a row the one that is waited for.
    let run = |mode| {
        let sim = survived(mode, &all_about_frames());
        let hits: Vec<u64> = sim.fabric().faults().iter().map(|f| f.hits()).collect();
        let streams = sim.streams().iter();
        let failures: Vec<_> = streams.map(|stream| stream.failure).collect();
        (sim.fabric().trace(), sim.fabric().events(), hits, failures)
    };
    let first = run(Mode::Bytes);
    assert_eq!(first, run(Mode::Bytes));
    assert_eq!(first, run(Mode::Lite));
}

#[test]
fn damage_on_the_cable_and_behind_it_is_found_by_different_checks() {
    let sim = run(Mode::Bytes, &[Fault::corrupt(0.05)]);
    assert!(sim.fabric().drops().of(DropReason::BitError) > 0);
    assert_eq!(icrc_drops(&sim), 0);
    let sim = run(Mode::Bytes, &[Fault::corrupt_inside(0.05)]);
    assert_eq!(sim.fabric().drops().total(), 0);
    // A frame can be damaged on both of its cables.
    let hits = sim.fabric().faults()[0].hits();
    assert!(
        (1..=hits).contains(&icrc_drops(&sim)),
        "{}",
        icrc_drops(&sim)
    );
}

#[test]
fn a_scope_and_a_window_hold() {
    let us = Span::from_us;
    let port = |sim: &Sim, h| sim.fabric().port_of(HostId(h));
    let base = busy(Mode::Lite, &[]);
    let one_way = Fault::loss(1.0).on(port(&base, 0)).between(us(5), us(9));
    let sim = run(Mode::Lite, &[one_way]);
    let dropped = |sim: &Sim, h: u32| {
        let port = port(sim, h);
        let stats = sim.fabric().port_stats(port).dropped;
        (stats, sim.fabric().port_stats(port.peer()).dropped)
    };
    // About 4 us of 100 Gb/s in frames of 1106 bytes.
    assert!(
        (20..60).contains(&dropped(&sim, 0).0),
        "{:?}",
        dropped(&sim, 0)
    );
    assert_eq!((dropped(&sim, 0).1, dropped(&sim, 1)), (0, (0, 0)));
    for scope in [
        Scope::Host(HostId(1)),
        Scope::Cable(port(&base, 1)),
        Scope::Switch(SwitchId(0)),
    ] {
        let sim = run(
            Mode::Lite,
            &[Fault::loss(0.3).on(scope).between(us(5), us(400))],
        );
        let (a, b) = dropped(&sim, 1);
        let is_all = scope == Scope::Switch(SwitchId(0));
        // Few ACKs come back, of which all or none may get through.
        assert!(a > 0 && (b > 0 || is_all), "{scope:?}: {a} {b}");
        assert_eq!(dropped(&sim, 0) != (0, 0), is_all, "{scope:?}");
    }
}

#[test]
fn frames_are_chosen_by_number_and_by_what_they_are() {
    let exact = Fault::loss(1.0).nth([7, 8, 30]);
    let sim = run(Mode::Bytes, &[exact]);
    assert_eq!(sim.fabric().faults()[0].numbers(), [7, 8, 30]);
    assert_eq!(sim.fabric().drops().of(DropReason::Fault), 3);
    let acks = Fault::loss(1.0).every(3).frames(Frames::Acks);
    let sim = run(Mode::Bytes, &[acks]);
    let stats = |h| *sim.transport(HostId(h)).expect("is there").stats();
    assert_eq!(stats(0).duplicate_request + stats(2).implied_nak, 0);
    assert!(sim.fabric().faults()[0].hits() > 3);
    let none = Fault::loss(1.0).frames(Frames::Cnps);
    assert_eq!(run(Mode::Bytes, &[none]).fabric().faults()[0].hits(), 0);
}

#[test]
fn a_fault_more_or_a_narrower_window_shifts_no_draw() {
    let numbers = |faults: &[Fault]| {
        run(Mode::Lite, faults).fabric().faults()[0]
            .numbers()
            .to_vec()
    };
    let us = Span::from_us;
    let fault = Fault::duplicate(0.01, us(2)).on(HostId(0));
    let alone = numbers(std::slice::from_ref(&fault));
    assert!(alone.len() > 5);
    // The other fault is of a cable that the first does not look at, after the run's end.
    let late = Fault::loss(0.5)
        .on(HostId(1))
        .between(us(900_000), us(900_001));
    assert_eq!(numbers(&[fault.clone(), late]), alone);
    let narrow = numbers(&[fault.between(us(10), us(1_000_000))]);
    assert!(alone.ends_with(&narrow) && narrow.len() < alone.len());
}

#[test]
fn bursts_are_bursts() {
    let losses = |fault: Fault| {
        let topology = Topology::single_switch(2, Link::new(Rate::gbps(100)));
        let mut sim = Sim::new(topology, config(Mode::Lite)).expect("builds");
        sim.add_fault(fault.on(HostId(0))).expect("makes sense");
        let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(20 << 20));
        sim.run();
        let lost = 20 * 1024 - sim.flow(flow).delivered;
        let numbers = sim.fabric().faults()[0].numbers().to_vec();
        let joined = numbers.windows(2).filter(|w| w[1] == w[0] + 1).count();
        (
            f64::from(lost) / 20480.0,
            joined as f64 / numbers.len() as f64,
        )
    };
    let (rate, joined) = losses(Fault::burst_loss(0.01, 0.25));
    // Bad for 1 of 26 frames, four at a time.
    assert!((rate - 0.01 / 0.26).abs() < 0.006, "{rate}");
    assert!((joined - 0.75).abs() < 0.06, "{joined}");
    let (rate, joined) = losses(Fault::loss(0.04));
    assert!(
        (rate - 0.04).abs() < 0.006 && joined < 0.1,
        "{rate} {joined}"
    );
}

#[test]
fn a_delay_keeps_the_order_and_a_reorder_does_not() {
    let reordered = |fault: Fault| {
        let topology = Topology::single_switch(2, Link::new(Rate::gbps(100)));
        let mut sim = Sim::new(topology, config(Mode::Lite)).expect("builds");
        sim.add_fault(fault).expect("makes sense");
        let flow = sim.add_flow(FlowSpec::new(HostId(0), HostId(1)).size(1 << 20));
        sim.run();
        let flow = sim.flow(flow);
        assert!(flow.is_complete());
        (flow.reordered, flow.latency_mean().expect("some"))
    };
    let us = Span::from_us;
    let (none, usual) = reordered(Fault::loss(0.0));
    let (jittered, later) = reordered(Fault::delay(us(5), us(5)).on(HostId(0)));
    assert_eq!((none, jittered), (0, 0));
    assert!(
        (us(5)..us(11)).contains(&(later - usual)),
        "{later} {usual}"
    );
    assert!(reordered(Fault::reorder(0.01, us(1))).0 > 0);
}

#[test]
fn cables_change_their_rate_and_go_down() {
    let us = Span::from_us;
    let last = |faults: &[Fault]| {
        let sim = run(Mode::Lite, faults);
        sim.streams().iter().map(|s| s.last).max().expect("some")
    };
    let usual = last(&[]);
    let slow = Fault::new(FaultKind::Rate(Rate::gbps(10))).on(HostId(3));
    let slow = slow.between(us(10), us(110));
    let later = last(std::slice::from_ref(&slow)).since(usual);
    assert!((us(80)..us(100)).contains(&later), "{later}");
    let down = Fault::link_down().on(HostId(3)).between(us(10), us(60));
    let sim = run(Mode::Lite, &[down]);
    let down = sim.streams().iter().map(|s| s.last).max().expect("some");
    let later = down.since(usual);
    // What waited for the cable is lost with what was on it; that the last of it is missing is noticed by a timeout.
    assert!(sim.fabric().drops().of(DropReason::NoCarrier) > 0);
    assert!((us(45)..us(80_000)).contains(&later), "{later}");
    let flap = Fault::new(FaultKind::LinkDown {
        flap: Some((us(1), us(4))),
        reroute: None,
    });
    let sim = run(Mode::Lite, &[flap.on(HostId(3)).between(us(10), us(60))]);
    let later = sim
        .streams()
        .iter()
        .map(|s| s.last)
        .max()
        .expect("some")
        .since(usual);
    // Frames that were being sent are lost, the last of a message only noticed by a timeout.
    assert!(sim.fabric().drops().of(DropReason::LinkDown) > 1);
    assert!((us(8)..us(80_000)).contains(&later), "{later}");
}

#[test]
fn switches_find_another_way_around_a_cable() {
    let link = Link::new(Rate::gbps(100));
    let go = |reroute: Option<Span>| {
        let topology = Topology::leaf_spine(2, 2, 1, link, link);
        let (leaf, spines) = (
            topology.find("leaf0"),
            [topology.find("spine0"), topology.find("spine1")],
        );
        let cables = spines.map(|s| topology.port_between(leaf?, s?));
        let mut sim = Sim::new(topology, config(Mode::Lite)).expect("builds");
        let id = sim
            .add_stream(StreamSpec::write(HostId(0), HostId(1), 1 << 20))
            .expect("connects");
        sim.run_until(Time::ZERO + Span::from_us(10));
        let sent = |c: &Option<_>| sim.fabric().port_stats(c.expect("a cable")).sent_frames[3];
        let used = cables
            .iter()
            .find(|c| sent(c) > 0)
            .copied()
            .flatten()
            .expect("one of them");
        let fault = Fault::new(FaultKind::LinkDown {
            flap: None,
            reroute,
        });
        sim.add_fault(fault.on(Scope::Cable(used)))
            .expect("makes sense");
        sim.run_until(Time::ZERO + Span::from_ms(2_000));
        (sim.stream(id).is_complete(), sim.stream(id).failure)
    };
    assert_eq!(go(Some(Span::from_us(50))), (true, None));
    assert_eq!(go(None), (false, Some(WcStatus::RetryExcErr)));
}

#[test]
fn a_storm_stops_everything_and_a_slow_host_most() {
    let us = Span::from_us;
    let last = |faults: &[Fault]| {
        let sim = run(Mode::Bytes, faults);
        assert_eq!(sim.fabric().drops().total(), 0);
        let last = sim.streams().iter().map(|s| s.last).max().expect("some");
        (last, sim)
    };
    let usual = last(&[]).0;
    let (later, sim) = last(&[Fault::pause_storm(HostId(3), 3).between(us(5), us(1_005))]);
    // It lasts until the last pause has run out: up to 335 us at 100 Gb/s.
    let longer = later.since(usual);
    assert!((us(995)..us(1_400)).contains(&longer), "{longer}");
    assert!(
        sim.fabric()
            .port_stats(sim.fabric().port_of(HostId(3)))
            .pauses_sent
            >= 6
    );
    let other_class = Fault::pause_storm(HostId(3), 0).between(us(5), us(1_005));
    assert_eq!(last(&[other_class]).0, usual);
    let slow = Fault::new(FaultKind::SlowReceiver(Rate::gbps(1))).on(HostId(3));
    let (later, _) = last(&[slow.between(us(1), us(501))]);
    assert!(
        (us(400)..us(600)).contains(&later.since(usual)),
        "{}",
        later.since(usual)
    );
}

#[test]
fn bleached_packets_are_not_marked_and_a_black_hole_swallows_the_long_ones() {
    let topology = || Topology::single_switch(2, Link::new(Rate::gbps(100)));
    let received = |fault: Fault, payload| {
        let mut sim = Sim::new(topology(), config(Mode::Lite)).expect("builds");
        sim.add_fault(fault).expect("makes sense");
        let spec = FlowSpec::new(HostId(0), HostId(1)).payload(payload);
        let flow = sim.add_flow(spec.size(100_000).tos(26 << 2 | 3));
        sim.run();
        (sim.flow(flow).delivered, sim.flow(flow).marked)
    };
    assert_eq!(received(Fault::loss(0.0), 1000), (100, 100));
    assert_eq!(received(Fault::new(FaultKind::BleachEcn), 1000), (100, 0));
    // 44 bytes of headers.
    let hole = |mtu| Fault::new(FaultKind::BlackHole { mtu });
    assert_eq!(received(hole(1044), 1000).0, 100);
    assert_eq!(received(hole(1043), 1000).0, 0);
}

#[test]
fn a_partition_cuts_one_side_off_or_only_what_it_sends() {
    let us = Span::from_us;
    let delivered = |one_way| {
        let topology = Topology::single_switch(3, Link::new(Rate::gbps(10)));
        let mut sim = Sim::new(topology, config(Mode::Lite)).expect("builds");
        let side = vec![HostId(0)];
        let fault = Fault::new(FaultKind::Partition { side, one_way });
        sim.add_fault(fault.between(Span::ZERO, us(50)))
            .expect("makes sense");
        let flows = [(0, 1), (1, 0), (1, 2), (2, 1)]
            .map(|(a, b)| sim.add_flow(FlowSpec::new(HostId(a), HostId(b)).size(5 * 1024)));
        sim.run_until(Time::ZERO + us(40));
        flows.map(|f| sim.flow(f).delivered)
    };
    assert_eq!(delivered(false), [0, 0, 5, 5]);
    assert_eq!(delivered(true), [0, 5, 5, 5]);
}

#[test]
fn a_host_that_crashes_takes_its_connections_with_it_and_flows_go_on_later() {
    let (us, ms) = (Span::from_us, Span::from_ms);
    let mut sim = busy(
        Mode::Bytes,
        &[Fault::crash(HostId(3)).between(us(5), us(500))],
    );
    let flow = sim.add_flow(FlowSpec::new(HostId(3), HostId(0)).size(100 << 10).tos(2));
    sim.run_until(Time::ZERO + us(400));
    assert!(sim.fabric().is_host_down(HostId(3)) && sim.transport(HostId(3)).is_none());
    let before = sim.flow(flow).delivered;
    assert!((1..100).contains(&before), "{before}");
    sim.run_until(Time::ZERO + ms(3_000));
    assert!(!sim.fabric().is_host_down(HostId(3)));
    assert!(sim.fabric().drops().of(DropReason::HostDown) > 0);
    for stream in sim.streams() {
        assert_eq!(stream.failure, Some(WcStatus::RetryExcErr), "{stream:?}");
    }
    // What waited in the adapter is lost; the rest comes after the restart.
    assert!(
        (90..100).contains(&sim.flow(flow).delivered),
        "{}",
        sim.flow(flow).delivered
    );
    sim.fabric().check_books().expect("balanced");
    let sender = busy(Mode::Bytes, &[]);
    let mut sender = sender;
    sender
        .add_fault(Fault::crash(HostId(0)).between(us(5), us(50)))
        .expect("makes sense");
    sender.run();
    let failures: Vec<_> = sender.streams().iter().map(|s| s.failure).collect();
    assert_eq!(failures, [Some(WcStatus::WrFlushErr), None, None]);
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    let mut sim = busy(Mode::Lite, &[]);
    let us = Span::from_us;
    for (fault, expected) in [
        (Fault::loss(1.5), FaultError::Probability(1.5)),
        (Fault::loss(0.5).between(us(5), us(5)), FaultError::Window),
        (Fault::loss(0.5).on(HostId(4)), FaultError::Place),
        (Fault::loss(0.5).on(SwitchId(1)), FaultError::Place),
        (Fault::partition([HostId(9)]), FaultError::Place),
        (Fault::loss(0.5).nth([2, 1]), FaultError::Order),
        (Fault::loss(0.5).every(0), FaultError::Zero("every")),
    ] {
        assert_eq!(sim.add_fault(fault.clone()), Err(expected), "{fault:?}");
    }
    assert_eq!(
        sim.add_fault(Fault::loss(f64::NAN))
            .map_err(|e| e.to_string()),
        Err("NaN is no probability: 0 to 1".to_owned())
    );
    let nowhere = [
        Fault::new(FaultKind::Crash { reroute: None }),
        Fault::new(FaultKind::PauseStorm { classes: 8 }),
        Fault::new(FaultKind::PauseStorm { classes: 0 }).on(HostId(0)),
        Fault::partition([]),
        Fault::new(FaultKind::SlowReceiver(Rate::gbps(1))).on(SwitchId(0)),
    ];
    for fault in nowhere {
        let error = sim.add_fault(fault.clone()).expect_err("is refused");
        assert!(
            matches!(error, FaultError::Scope { .. }),
            "{fault:?}: {error}"
        );
    }
    assert!(sim.fabric().faults().is_empty());
}
