//! Once warm, nothing on the path of packets, posts and polls allocates.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{End, connect};
use urxe::{ConnectOptions, RecvWr, SendWr, Wc};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One of everything, both ways; `b` receives from its own queue or a shared one.
fn round(a: &End, b: &End, memory: &[urxe::Mr; 2]) {
    let [of_a, of_b] = memory;
    let (addr, rkey) = (of_b.addr(), of_b.rkey());
    let (all, word) = ([of_a.sge(..)], [of_a.sge(..8)]);
    for n in 0..4 {
        let sges = [of_b.sge(..)];
        let wr = RecvWr::new(n, &sges);
        match b.qp.srq() {
            Some(srq) => srq.post_recv(&wr).expect("room"),
            None => b.qp.post_recv(&wr).expect("room"),
        }
    }
    let wrs = [
        SendWr::send(0, &all),
        SendWr::send_inline(1, b"inline"),
        SendWr::rdma_write(2, &all, addr, rkey),
        SendWr::rdma_read(3, &all, addr, rkey).signaled(),
        SendWr::atomic_fetch_add(4, &word, addr, rkey, 1).signaled(),
        SendWr::send_with_imm(5, &word, 5).signaled(),
    ];
    a.qp.post_send_list(&wrs).expect("room");
    a.qp.post_send(&SendWr::send(6, &word).signaled())
        .expect("room");
    let mut wcs = [Wc::default(); 8];
    let (mut of_sends, mut of_recvs) = (0, 0);
    common::wait_until("all completions", || {
        of_sends += a.cq.poll(&mut wcs).expect("polls");
        // Sometimes by event.
        b.cq.req_notify(false).expect("has a channel");
        of_recvs += b.cq.poll(&mut wcs).expect("polls");
        let _ = b.channel.try_get().expect("works");
        assert!(wcs.iter().all(Wc::is_success), "{wcs:?}");
        of_sends == 4 && of_recvs == 4
    });
}

/// Where requests wait that are posted while somebody else drives is made once, when
/// that happens first, which may be late: three pieces for sends and two for receives,
/// of four QPs (or a shared queue in place of one's own).
const ONCE: u64 = 20;

#[test]
fn a_warm_engine_allocates_nothing() {
    if std::env::var_os("URXE_STRICT").is_some() {
        println!("skipped: strict mode keeps copies of what is posted, so it allocates");
        return;
    }
    let (a, b) = (End::open(), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let memory = [a.memory(20_000), b.memory(20_000)];
    let open = || urxe::Context::open(common::address()).expect("the address is free");
    let (c, server) = (End::open(), open());
    let srq = server
        .alloc_pd()
        .and_then(|pd| pd.create_srq(&urxe::SrqAttr::default()))
        .expect("an SRQ");
    let mut d = End::on(server);
    // All in the domain of the queue.
    d.pd = srq.pd().clone();
    let qp = d.pd.qp(&d.cq).srq(&srq).create();
    d.qp = qp.expect("a QP");
    connect(&c.qp, &d.qp, &ConnectOptions::default());
    let shared = [c.memory(20_000), d.memory(20_000)];
    // Long enough for the progress threads to have their turns too: a tick comes every
    // millisecond, and ten times a second counters are written.
    let run = || {
        let start = Instant::now();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let mut rounds = 0;
        while rounds < 500 || start.elapsed() < Duration::from_millis(400) {
            round(&a, &b, &memory);
            round(&c, &d, &shared);
            rounds += 1;
        }
        (rounds, ALLOCATIONS.load(Ordering::Relaxed) - before)
    };
    run();
    let (rounds, allocations) = run();
    assert!(
        allocations <= ONCE,
        "{allocations} allocations in {rounds} rounds of 14 requests"
    );
}
