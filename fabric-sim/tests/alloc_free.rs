//! A warmed-up simulation allocates nothing for a packet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fabric_sim::host::{FlowSpec, StreamSpec};
use fabric_sim::{FabricConfig, HostId, Link, Mode, Rate, Sim, Span, SwitchConfig, Time, Topology};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn packets_allocate_nothing_once_warm() {
    for mode in [Mode::Bytes, Mode::Lite] {
        let switch = SwitchConfig {
            buffer: 4 << 20,
            ..SwitchConfig::default()
        };
        let config = FabricConfig {
            mode,
            switch,
            ..FabricConfig::default()
        };
        let link = Link::new(Rate::gbps(100));
        let topology = Topology::leaf_spine(2, 2, 4, link, link);
        let mut sim = Sim::new(topology, config).expect("builds");
        for h in 0..6 {
            let spec = StreamSpec::write(HostId(h), HostId(7), 1 << 20);
            sim.add_stream(StreamSpec {
                count: 1_000,
                depth: 2,
                ..spec
            })
            .expect("connects");
        }
        sim.add_flow(FlowSpec::new(HostId(6), HostId(0)).tos(2));
        sim.run_until(Time::ZERO + Span::from_ms(4));
        let packets = |sim: &Sim| {
            let received = sim.transport_stats().map(|(_, s)| s.rcvd_pkts).sum::<u64>();
            received + u64::from(sim.flows()[0].delivered)
        };
        let (before, so_far) = (ALLOCATIONS.get(), packets(&sim));
        sim.run_for(Span::from_ms(1));
        let allocations = ALLOCATIONS.get() - before;
        let packets = packets(&sim) - so_far;
        assert!(packets > 10_000, "{packets}");
        // A bucket of the queue of events may find out that it is busier than ever before.
        assert!(
            allocations < 50,
            "{mode:?}: {allocations} allocations, {packets} packets"
        );
    }
}
