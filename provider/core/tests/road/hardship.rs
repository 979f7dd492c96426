//! Roads that lose much, in bursts, or deliver in another order, and receivers that are slow: between two sides that tell
//! each other what is lost.

use urxe_core::Recovery;
use urxe_core::work::WrOpcode;

use crate::ends::{Load, PAYLOAD};
use crate::road::{Outcome, Road};
use crate::support::RECOVERY;
use crate::{MBIT, MS, SEED, run};

const WRITE: WrOpcode = WrOpcode::RdmaWrite;

fn long(loss: u64) -> Road {
    Road::new(200 * MBIT, 20 * MS, loss)
}

fn short(loss: u64) -> Road {
    Road::new(200 * MBIT, MS / 10, loss)
}

fn carried(road: Road, load: Load, least: f64) -> Outcome {
    RECOVERY.set([Recovery::Selective; 2]);
    let (ratio, out) = run(road, load, 8.0);
    assert!(ratio >= least, "{ratio:.3}, not {least}, seed {SEED}");
    out
}

/// So many were sent again for each that was lost, or a few more.
fn sent_again_at_most(out: &Outcome, times: f64) {
    let most = out.lost_forth as f64 * times + 20.0;
    assert!(out.again as f64 <= most, "seed {SEED}: {out:?}");
}

#[test]
fn what_is_sent_again_is_what_was_lost() {
    for (loss, least) in [(1_000, 0.97), (5_000, 0.90), (10_000, 0.80)] {
        let out = carried(long(loss), Load::new(WRITE), least);
        sent_again_at_most(&out, 1.02);
    }
}

#[test]
fn a_short_road_that_loses_stays_full() {
    let out = carried(short(1_000), Load::new(WRITE), 0.95);
    sent_again_at_most(&out, 1.02);
}

/// Queues hold several round trips: a few losses are theirs, and most are the road's.
#[test]
fn a_short_road_with_a_queue_stays_full() {
    for (rate, rtt, queue) in [
        (1_000, MS / 10, 100_000),
        (500, MS / 2, 100_000),
        (1_000, MS / 2, 200_000),
        (200, MS * 9 / 10, 100_000),
        (4_000, MS / 10, 400_000),
    ] {
        let road = Road {
            queue,
            ..Road::new(rate * MBIT, rtt, 1_000)
        };
        for (op, least) in [(WRITE, 0.95), (WrOpcode::RdmaRead, 0.88)] {
            RECOVERY.set([Recovery::Selective; 2]);
            let (ratio, _) = run(road, Load::new(op), 2.0);
            assert!(
                ratio >= least,
                "{op:?}: {ratio:.3}, not {least}, seed {SEED}"
            );
        }
    }
}

#[test]
fn losses_in_bursts_cost_their_share() {
    let road = Road {
        burst: 5,
        ..long(1_000)
    };
    let out = carried(road, Load::new(WRITE), 0.93);
    sent_again_at_most(&out, 1.02);
}

/// Packets that were only late are waited for once it is known that they come late.
#[test]
fn another_order_costs_little() {
    let road = Road {
        reorder: 1_000,
        ..long(0)
    };
    carried(road, Load::new(WRITE), 0.97);
    carried(road, Load::new(WrOpcode::RdmaRead), 0.97);
}

#[test]
fn a_small_message_that_was_lost_is_late_by_little() {
    RECOVERY.set([Recovery::Selective; 2]);
    let load = Load {
        message: 64,
        posted: 1,
        ..Load::new(WRITE)
    };
    for (road, most, seconds) in [(long(1_000), 60.0, 60.0), (short(1_000), 6.0, 4.0)] {
        let (_, out) = run(road, load, seconds);
        assert!(out.p99_ms <= most, "seed {SEED}: {out:?}");
    }
}

/// A receiver with sixteen receives that takes 5 ms for each 64 KiB: 105 Mb/s.
#[test]
fn a_slow_receiver_is_kept_busy() {
    let load = Load {
        op: WrOpcode::Send,
        message: 64 << 10,
        posted: 64,
        takes: 5 * MS,
        ..Load::new(WrOpcode::Send)
    };
    for loss in [0, 1_000] {
        RECOVERY.set([Recovery::Selective; 2]);
        let (ratio, out) = run(long(loss), load, 8.0);
        let receiver = f64::from(load.message) * 8e9 / load.takes as f64;
        let of_receiver = ratio * 200e6 * PAYLOAD / receiver;
        assert!(
            of_receiver >= 0.75,
            "{of_receiver:.3}, seed {SEED}: {out:?}"
        );
    }
}

/// With seven retries, as programs have them.
#[test]
fn a_connection_survives_a_road_that_loses_a_third() {
    RECOVERY.set([Recovery::Selective; 2]);
    let load = Load {
        message: 64 << 10,
        ..Load::new(WRITE)
    };
    let (ratio, _) = run(long(30_000), load, 10.0);
    assert!(ratio >= 0.6, "{ratio:.3}, seed {SEED}");
}

/// Hosts without processor time to spare answer late, far later than the path takes: timeouts end for nothing, one after the
/// other. A rate that such silence lowers is found again, and no packet waits for it longer than hosts do.
#[test]
fn silence_of_busy_hosts_stops_no_stream() {
    let road = Road {
        pause: Some((20 * MS, 15 * MS)),
        ..Road::new(1000 * MBIT, MS / 50, 2_000)
    };
    let load = Load {
        message: 64 << 10,
        posted: 8,
        timeout: 10,
        ..Load::new(WRITE)
    };
    for recovery in [Recovery::GoBackN, Recovery::Selective] {
        RECOVERY.set([recovery; 2]);
        let (_, out) = run(road, load, 12.0);
        assert!(out.longest_ms <= 1000.0, "seed {SEED}: {out:?}");
    }
}
