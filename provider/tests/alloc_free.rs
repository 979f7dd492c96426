//! Once warm, nothing on the path of packets, posts and polls allocates.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{End, connect};
use urxe::{AddressHandle, ConnectOptions, Mr, Qkey, QpType, Qpn, RecvWr, SendWr, Wc};

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
fn round(a: &End, b: &End, memory: &[Mr; 2]) {
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

/// Two ends of a service that acknowledges nothing, and how datagrams get from one to
/// the other.
struct Unreliable {
    ends: [End; 2],
    memory: [Mr; 2],
    paths: Option<[(AddressHandle, Qpn); 2]>,
}

const QKEY: Qkey = Qkey(0x1111_1111);

impl Unreliable {
    fn open(qp_type: QpType) -> Unreliable {
        let open = || {
            let context = urxe::Context::open(common::address()).expect("the address is free");
            End::with(context, |qp| qp.qp_type(qp_type))
        };
        let ends = [open(), open()];
        let [a, b] = &ends;
        let paths = (qp_type == QpType::Ud).then(|| {
            let group = common::group();
            a.qp.start_datagrams(QKEY).expect("starts");
            b.qp.start_datagrams(QKEY).expect("starts");
            b.qp.attach_mcast(group.into()).expect("attaches");
            let handle = |to| a.pd.create_ah_to(to).expect("a path");
            [
                (handle(b.context.address()), b.qp.qp_num()),
                (handle(group), Qpn::MULTICAST),
            ]
        });
        if paths.is_none() {
            connect(&a.qp, &b.qp, &ConnectOptions::default());
        }
        let memory = [a.memory(4096), b.memory(4096)];
        Unreliable {
            ends,
            memory,
            paths,
        }
    }

    /// Two messages, the second of which goes to a group if there are any.
    fn round(&self) {
        let ([a, b], [of_a, of_b]) = (&self.ends, &self.memory);
        let (sges, room) = ([of_a.sge(..3000)], [of_b.sge(..)]);
        for wr_id in 0..2 {
            b.qp.post_recv(&RecvWr::new(wr_id, &room)).expect("room");
        }
        for place in 0..2 {
            let mut wr = SendWr::send_with_imm(place, &sges, 7).signaled();
            if let Some(paths) = &self.paths {
                let (ah, qpn) = &paths[place as usize];
                wr = wr.ud_addr(ah, *qpn, QKEY);
            }
            a.qp.post_send(&wr).expect("room");
        }
        let mut wcs = [Wc::default(); 4];
        let (mut of_sends, mut of_recvs) = (0, 0);
        common::wait_until("all completions", || {
            of_sends += a.cq.poll(&mut wcs).expect("polls");
            of_recvs += b.cq.poll(&mut wcs).expect("polls");
            assert!(wcs.iter().all(Wc::is_success), "{wcs:?}");
            of_sends == 2 && of_recvs == 2
        });
    }
}

/// Where requests wait that are posted while another thread drives is made once, when
/// that happens first, which may be late: three pieces for sends and two for receives,
/// of eight QPs (or a shared queue in place of one's own); and one more for sends of
/// datagrams.
const ONCE: u64 = 42;

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
    let unreliable = [QpType::Uc, QpType::Ud].map(Unreliable::open);
    // Long enough for the progress threads to have their turns too: a tick comes every
    // millisecond, and ten times a second counters are written.
    let run = || {
        let start = Instant::now();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let mut rounds = 0;
        while rounds < 500 || start.elapsed() < Duration::from_millis(400) {
            round(&a, &b, &memory);
            round(&c, &d, &shared);
            unreliable.iter().for_each(Unreliable::round);
            rounds += 1;
        }
        (rounds, ALLOCATIONS.load(Ordering::Relaxed) - before)
    };
    run();
    let (rounds, allocations) = run();
    assert!(
        allocations <= ONCE,
        "{allocations} allocations in {rounds} rounds of 18 requests"
    );
}
