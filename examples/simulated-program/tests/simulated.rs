//! The same program on simulated hosts, on a network that loses, repeats and reorders frames: `cargo test`.

use fabric_sim::fault::Fault;
use fabric_sim::program::Simulation;
use fabric_sim::{HostId, Span};
use simulated_program::{LIMIT, add, serve};

#[fabric_sim::test(seeds = 50)]
fn nothing_is_lost_or_counted_twice(sim: &mut Simulation) {
    let at = "10.0.0.1:7471".parse().expect("an address");
    sim.limit(Span::from_ms(LIMIT.as_millis() as u64));
    sim.fault(Fault::loss(0.02));
    sim.fault(Fault::duplicate(0.02, Span::from_us(3)));
    sim.fault(Fault::reorder(0.02, Span::from_us(5)));
    sim.host(HostId(0), move || {
        assert_eq!(serve(at, 2).expect("serves"), 30)
    });
    sim.host(HostId(1), move || add(at, 10).expect("adds"));
    sim.host(HostId(2), move || add(at, 20).expect("adds"));
    sim.run()?.assert_sometimes("retransmit");
}
