//! What it takes to lose nothing, and what that may cost.

use urxe_wire::Pause;

use crate::engine::{Rate, Rng, Span, Time};
use crate::experiments::{Bound, Findings, PAYLOAD_SHARE, network};
use crate::host::FlowSpec;
use crate::switch::headroom::{BufferPlan, required};
use crate::switch::{Threshold, Watchdog, WatchdogAction};
use crate::topology::{HostId, SwitchId};
use crate::{FabricConfig, Link, Sim, SwitchConfig, Topology};

pub(super) fn thresholds(findings: &mut Findings) {
    let plan = BufferPlan {
        buffer: 12_000_000,
        ports: 32,
        classes: 8,
        headroom: 22_400,
    };
    let close = Bound::Within(0.002);
    for (what, expected, bytes, bound) in [
        ("static pause threshold", 24.47, plan.static_pause(), close),
        (
            "static mark threshold",
            0.85,
            plan.static_mark(),
            Bound::AtMost,
        ),
        ("dynamic mark threshold", 21.75, plan.dynamic_mark(8), close),
    ] {
        let measured = bytes.unwrap_or(0) as f64 / 1000.0;
        findings.add(what, "KB", expected, measured, bound);
    }
}

/// The longest pause of the lossless class.
const LONGEST: Pause = Pause::Priorities {
    enabled: 1 << 3,
    quanta: [u16::MAX; 8],
};

/// Moments at which the receiver stops.
const MOMENTS: u64 = 500;

pub(super) fn headroom(findings: &mut Findings) {
    // Frames of 4160 bytes.
    let link = Link {
        mtu: 4142,
        ..Link::new(Rate::gbps(100)).metres(100)
    };
    let needed = required(&link, 1);
    findings.add("headroom", "B", 46_120.0, f64::from(needed), Bound::Exactly);
    let loses = |room: u32, seed: u64| {
        let sim = receiver_that_stops(link, room, seed);
        sim.fabric().drops().lossless_overruns() > 0
    };
    let losing = |room: u32, moments: u64| {
        let lost = (0..moments).filter(|&seed| loses(room, seed));
        lost.count() as f64
    };
    let what = "runs that lose, with it";
    findings.exactly(what, 0.0, losing(needed, MOMENTS));
    // Nearly tight: of all frames that could be on their way only a part of one is not.
    let what = "runs of 2000 that lose, 600 bytes less";
    findings.at_least(what, 1.0, losing(needed - 600, 4 * MOMENTS));
    let what = "runs that lose, a frame less";
    findings.at_least(what, 1.0, losing(needed - 4160, MOMENTS));
}

/// Three hosts on a switch with so much headroom, in full traffic; one of them stopped taking anything
/// at a random moment, some time ago.
pub fn receiver_that_stops(link: Link, headroom: u32, seed: u64) -> Sim {
    let mut rng = Rng::new(seed);
    let switch = SwitchConfig {
        threshold: Threshold::Static(20_000),
        headroom: Some(headroom),
        ..SwitchConfig::default()
    };
    let config = FabricConfig {
        switch,
        seed,
        ..FabricConfig::default()
    };
    let mut sim = Sim::new(Topology::single_switch(3, link), config).expect("a switch");
    // Data both ways, so that a pause frame has to wait for a long frame to leave.
    for (from, to) in [(0, 1), (1, 0), (2, 0)] {
        let start = Time::from_ps(rng.below(1_000_000));
        sim.add_flow(
            FlowSpec::new(HostId(from), HostId(to))
                .payload(4160 - 62)
                .start(start),
        );
    }
    sim.run_until(Time::ZERO + Span::from_us(20) + Span::from_ps(rng.below(1_000_000)));
    let receiver = sim.fabric().port_of(HostId(1));
    sim.fabric_mut().send_pause(receiver, LONGEST);
    sim.run_for(Span::from_us(100));
    sim
}

pub(super) fn deadlock(findings: &mut Findings) {
    let ms = Span::from_ms;
    for (name, third, watchdog, stuck) in [
        ("ring, two flows", false, None, false),
        ("ring, three flows", true, None, true),
        (
            "ring, three flows, watchdog drops",
            true,
            Some(WatchdogAction::Drop),
            false,
        ),
        (
            "ring, three flows, watchdog sends",
            true,
            Some(WatchdogAction::Forward),
            false,
        ),
    ] {
        let watchdog = watchdog.map(|action| Watchdog {
            detect: ms(2),
            restore: ms(2),
            action,
        });
        let mut sim = cycle_of_buffers(third, watchdog);
        sim.run_until(Time::ZERO + ms(60));
        let found = sim.fabric().find_deadlock().is_some();
        findings.is(format!("{name}: deadlock"), stuck, found);
        let inside = sim.fabric().frames_inside() > 0;
        findings.is(format!("{name}: frames stay"), stuck, inside);
    }
    // Two switches, 40 Gb/s, TTL 16: 2 * 40 / 16 Gb/s on the wire.
    for (part, stuck) in [(0.8, false), (1.2, true)] {
        let found = routing_loop(Rate::bps((part * 5e9) as u64));
        findings.is(
            format!("loop at {part} of the limit: deadlock"),
            stuck,
            found,
        );
    }
}

/// A ring of four switches, before it runs: A to D and C to B clockwise, which makes a cyclic dependency
/// of buffers, and B to C if there is a third, which closes it; 5 ms of traffic.
pub fn cycle_of_buffers(third: bool, watchdog: Option<Watchdog>) -> Sim {
    let link = Link::new(Rate::gbps(40));
    let switch = SwitchConfig {
        buffer: 1 << 20,
        threshold: Threshold::Static(20_000),
        watchdog,
        ..SwitchConfig::default()
    };
    let mut sim = network(Topology::ring(4, 2, link, link), switch);
    // Clockwise always, also where the other way is as short.
    for host in 0..8 {
        for at in (0..4).filter(|&at| at != host / 2) {
            let topology = sim.fabric().topology();
            let next = topology.port_between(SwitchId(at), SwitchId((at + 1) % 4));
            let next = next.expect("neighbours are connected");
            let routes = sim.fabric_mut().routes_mut();
            routes.set(SwitchId(at), HostId(host), &[next]);
        }
    }
    let stop = Time::ZERO + Span::from_ms(5);
    let flows = [(0, 6), (4, 2), (3, 5)];
    for &(from, to) in flows.iter().take(if third { 3 } else { 2 }) {
        sim.add_flow(FlowSpec {
            stop,
            ..FlowSpec::new(HostId(from), HostId(to))
        });
    }
    sim
}

/// Two switches send what is for a host on the second back and forth.
fn routing_loop(rate: Rate) -> bool {
    let link = Link::new(Rate::gbps(40));
    let switch = SwitchConfig {
        buffer: 1 << 20,
        ..SwitchConfig::default()
    };
    let mut sim = network(Topology::dumbbell(1, 1, link, link), switch);
    let topology = sim.fabric().topology();
    let back = topology.port_between(SwitchId(1), SwitchId(0));
    let routes = sim.fabric_mut().routes_mut();
    routes.set(SwitchId(1), HostId(1), &[back.expect("connected")]);
    let stop = Time::ZERO + Span::from_ms(20);
    let spec = FlowSpec {
        stop,
        ttl: 16,
        ..FlowSpec::new(HostId(0), HostId(1))
    };
    sim.add_flow(spec.paced(rate));
    sim.run_until(Time::ZERO + Span::from_ms(40));
    sim.fabric().find_deadlock().is_some()
}

/// A host of a rack pauses without end; the others talk to each other across the racks.
pub(super) fn storm(findings: &mut Findings) {
    for (name, has_watchdog) in [("no watchdog", false), ("watchdog", true)] {
        let link = Link::new(Rate::gbps(40));
        let watchdog = Watchdog {
            detect: Span::from_ms(5),
            restore: Span::from_ms(5),
            action: WatchdogAction::Drop,
        };
        let switch = SwitchConfig {
            buffer: 2 << 20,
            watchdog: has_watchdog.then_some(watchdog),
            ..SwitchConfig::default()
        };
        let mut sim = network(Topology::dumbbell(2, 2, link, link), switch);
        // h0 sends to the sick h2, and h1 to the healthy h3, over the same cable.
        sim.add_flow(FlowSpec::new(HostId(0), HostId(2)));
        let healthy = sim.add_flow(FlowSpec::new(HostId(1), HostId(3)));
        let sick = sim.fabric().port_of(HostId(2));
        let mut before = 0;
        for step in 0..400 {
            sim.fabric_mut().send_pause(sick, LONGEST);
            sim.run_for(Span::from_us(100));
            if step == 199 {
                before = sim.flow(healthy).delivered_bytes;
            }
        }
        let rate = (sim.flow(healthy).delivered_bytes - before) as f64 * 8e-9 / 0.02;
        let what = format!("{name}: the healthy flow");
        if has_watchdog {
            // Half of the cable: the other half goes to where it is dropped.
            let half = 20.0 * PAYLOAD_SHARE;
            findings.within(0.05, what, "Gb/s", half, rate);
        } else {
            findings.add(what, "Gb/s", 0.0, rate, Bound::Exactly);
        }
    }
}
