//! What a connection makes of a long road, or of one that loses packets: in virtual time, exact and repeatable. A bound is what
//! holds now, with a little room; docs/LOSS.md says what to expect.

mod ends;
mod hardship;
mod learnt;
mod rivals;
mod road;
#[path = "../support/mod.rs"]
mod support;

use ends::{Ends, Load, PAYLOAD};
use rivals::{Bbr, Cubic, Rival};
use road::{Flow, Outcome, Road, drive, jain};
use support::RECOVERY;
use urxe_core::Recovery;
use urxe_core::congestion::CongestionControl;
use urxe_core::work::WrOpcode;

const MBIT: u64 = 1_000_000;
const MS: u64 = 1_000_000;
const SEED: u64 = 7;

/// The part of a road's payload that a connection alone carries in so many seconds, with `Auto`.
fn run(road: Road, load: Load, seconds: f64) -> (f64, Outcome) {
    let ends = Ends::new(CongestionControl::Auto, load, SEED);
    let mut flows: Vec<(f64, Box<dyn Flow>)> = vec![(0.0, Box::new(ends))];
    let out = drive(road, &mut flows, seconds, SEED);
    let ratio = out.goodput[0] / (road.rate as f64 * PAYLOAD);
    println!("{load:?} {road:?}: ratio {ratio:.3}, {out:?}");
    assert!(!out.dead, "the connection lives, seed {SEED}");
    (ratio, out)
}

/// What is lost, of 1000 packets, and the ratio that there must be.
fn gate(rate: u64, rtt: u64, op: WrOpcode, bounds: &[(u64, f64)]) {
    let failed: Vec<String> = bounds
        .iter()
        .filter_map(|&(loss, bound)| {
            let road = Road::new(rate, rtt, loss * 100);
            let (ratio, _) = run(road, Load::new(op), 8.0);
            (ratio < bound).then(|| format!("{loss} of 1000 lost: {ratio:.3}, not {bound}"))
        })
        .collect();
    assert!(failed.is_empty(), "seed {SEED}: {failed:?}");
}

#[test]
fn a_long_road_is_filled_by_writes() {
    gate(
        200 * MBIT,
        20 * MS,
        WrOpcode::RdmaWrite,
        &[(0, 0.97), (10, 0.12), (50, 0.02), (100, 0.01)],
    );
}

/// Between two sides that tell each other what is lost.
#[test]
fn a_long_road_stays_full_where_only_what_is_lost_is_sent_again() {
    RECOVERY.set([Recovery::Selective; 2]);
    gate(
        200 * MBIT,
        20 * MS,
        WrOpcode::RdmaWrite,
        &[(0, 0.97), (10, 0.97), (50, 0.90)],
    );
}

#[test]
fn of_sends_only_what_is_lost_comes_again() {
    RECOVERY.set([Recovery::Selective; 2]);
    let bounds = [(0, 0.97), (10, 0.97), (50, 0.90)];
    gate(200 * MBIT, 20 * MS, WrOpcode::Send, &bounds);
}

/// Sixteen requests of 64 KiB are twice what the road holds, and each holds its place only until it was answered once.
#[test]
fn of_reads_only_what_is_lost_comes_again() {
    RECOVERY.set([Recovery::Selective; 2]);
    let bounds = [(0, 0.97), (10, 0.97), (50, 0.90)];
    gate(200 * MBIT, 20 * MS, WrOpcode::RdmaRead, &bounds);
}

#[test]
fn a_long_road_is_filled_by_sends() {
    gate(
        200 * MBIT,
        20 * MS,
        WrOpcode::Send,
        &[(0, 0.97), (10, 0.12)],
    );
}

#[test]
fn a_long_road_is_filled_by_reads() {
    gate(
        200 * MBIT,
        20 * MS,
        WrOpcode::RdmaRead,
        &[(0, 0.97), (10, 0.12)],
    );
}

#[test]
fn a_gigabit_around_half_the_world_is_filled() {
    gate(1000 * MBIT, 100 * MS, WrOpcode::RdmaWrite, &[(0, 0.97)]);
}

#[test]
fn a_short_road_that_loses_is_filled() {
    gate(
        200 * MBIT,
        MS / 10,
        WrOpcode::RdmaWrite,
        &[(0, 0.8), (10, 0.75)],
    );
}

/// How even the shares of a road are.
fn shares(road: Road, names: &str, seconds: f64) -> f64 {
    let flow = |(k, name): (usize, &str)| -> (f64, Box<dyn Flow>) {
        let (name, start) = name.split_once('@').unwrap_or((name, "0"));
        let flow: Box<dyn Flow> = match name {
            "cubic" => Box::new(Rival::new(Cubic::new())),
            "bbr" => Box::new(Rival::new(Bbr::new())),
            _ => Box::new(Ends::new(
                CongestionControl::Auto,
                Load::new(WrOpcode::RdmaWrite),
                SEED + k as u64,
            )),
        };
        (start.parse().expect("seconds"), flow)
    };
    let mut flows: Vec<_> = names.split(' ').enumerate().map(flow).collect();
    let out = drive(road, &mut flows, seconds, SEED);
    let jain = jain(&out.goodput);
    println!("{names}: Jain {jain:.3}, {out:?}");
    assert!(!out.dead, "every connection lives, seed {SEED}");
    jain
}

/// A long road with a queue of one bandwidth-delay product.
fn shared_road() -> Road {
    Road::new(200 * MBIT, 20 * MS, 0)
}

/// So many hosts, of which each begins 10 ms after the one before.
fn share_a_short_road(queue: u64, seconds: f64, bounds: &[(u32, f64)]) {
    RECOVERY.set([Recovery::Selective; 2]);
    let short = Road {
        queue,
        ..Road::new(1000 * MBIT, MS / 10, 0)
    };
    for &(senders, bound) in bounds {
        let names: Vec<_> = (0..senders)
            .map(|k| format!("urxe@{:.4}", f64::from(k) * 0.0103))
            .collect();
        let jain = shares(short, &names.join(" "), seconds);
        assert!(
            jain >= bound,
            "{senders}: {jain:.3}, not {bound}, seed {SEED}"
        );
    }
}

/// Nothing is lost but what the queue drops: none has the road for itself.
#[test]
fn some_share_a_short_road() {
    share_a_short_road(100_000, 2.0, &[(2, 0.9), (4, 0.85), (8, 0.8), (16, 0.8)]);
}

/// A full queue is 32 times as long as the road. Those that come late find it full, and take it for a longer road.
#[test]
fn some_share_a_short_road_with_a_long_queue() {
    share_a_short_road(400_000, 3.0, &[(2, 0.9), (4, 0.85), (8, 0.7), (16, 0.4)]);
}

#[test]
fn two_share_a_road() {
    for (names, bound) in [("urxe urxe", 0.95), ("urxe urxe@2", 0.85)] {
        let jain = shares(shared_road(), names, 12.0);
        assert!(
            jain >= bound,
            "{names}: {jain:.3}, not {bound}, seed {SEED}"
        );
    }
}

/// The first version of BBR heeds no loss, and keeps the queue full.
#[test]
fn others_have_their_share() {
    let going_back = [("urxe cubic@1", 0.8), ("urxe bbr@1", 0.55)];
    let selective = [("urxe cubic@1", 0.8), ("urxe bbr@1", 0.8)];
    let all = going_back.map(|case| (Recovery::GoBackN, case));
    let all = all
        .into_iter()
        .chain(selective.map(|case| (Recovery::Selective, case)));
    for (recovery, (names, bound)) in all {
        RECOVERY.set([recovery; 2]);
        let jain = shares(shared_road(), names, 20.0);
        assert!(
            jain >= bound,
            "{names}: {jain:.3}, not {bound}, seed {SEED}"
        );
    }
}
