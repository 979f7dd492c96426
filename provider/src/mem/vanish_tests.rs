//! Registered memory that the program takes away: an error completion on the right side,
//! never a crash, and no other QP is disturbed.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::guarded;
use crate::testing::{PATIENCE, address};
use crate::{
    Access, Advice, ConnectOptions, Context, Cq, Fault, Mr, Pd, Qp, RecvWr, Rereg, SendWr, Wc,
    WcStatus,
};

const ALL: Access = Access(15);
const PAGE: usize = 4096;
const LEN: usize = 4 * PAGE;

struct End {
    pd: Pd,
    cq: Cq,
    qp: Qp,
}

impl End {
    fn on(context: &Context) -> End {
        let (pd, cq) = (context.alloc_pd().expect("a PD"), context.create_cq(256));
        let cq = cq.expect("a CQ");
        let qp = pd.qp(&cq).create().expect("a QP");
        End { pd, cq, qp }
    }

    fn own(&self, len: usize) -> Mr {
        self.pd.reg_owned(vec![7; len], ALL).expect("memory")
    }

    #[track_caller]
    fn complete(&self) -> Wc {
        let (start, mut wc) = (Instant::now(), [Wc::default()]);
        while self.cq.poll(&mut wc).expect("polls") == 0 {
            assert!(start.elapsed() < PATIENCE, "no completion");
            std::thread::yield_now();
        }
        wc[0]
    }

    #[track_caller]
    fn run(&self, wr: SendWr<'_>) -> Wc {
        self.qp.post_send(&wr.signaled()).expect("room");
        self.complete()
    }
}

fn contexts() -> [Context; 2] {
    [address(), address()].map(|addr| Context::open(addr.into()).expect("free"))
}

fn pair_on(contexts: &[Context; 2]) -> (End, End) {
    let (a, b) = (End::on(&contexts[0]), End::on(&contexts[1]));
    let connect = |a: &End, b: &End| {
        a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default())
            .expect("connects");
    };
    connect(&a, &b);
    connect(&b, &a);
    (a, b)
}

/// Pages that are mapped until they are taken away in one of several manners.
struct Pages(*mut u8);

impl Pages {
    fn anonymous() -> Pages {
        Pages::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn map(flags: libc::c_int, fd: libc::c_int) -> Pages {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which has no other user.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), LEN, rights, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Pages(at.cast())
    }

    fn register(&self, pd: &Pd) -> Mr {
        let iova = self.0.expose_provenance() as u64;
        // SAFETY: `LEN` bytes that only the engine uses; that they vanish is the test.
        unsafe { pd.reg_raw(self.0, LEN, iova, ALL) }.expect("registers")
    }

    fn protect(&self, rights: libc::c_int) {
        // SAFETY: our own mapping, of which no reference exists.
        assert_eq!(unsafe { libc::mprotect(self.0.cast(), LEN, rights) }, 0);
    }

    /// Only where no other thread could be given the addresses again.
    fn unmap(&self) {
        // SAFETY: our own mapping, of which no reference exists.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), LEN) }, 0);
    }
}

#[test]
fn a_peer_learns_that_the_memory_is_gone() {
    let contexts = contexts();
    let (bystander, other) = pair_on(&contexts);
    let theirs = other.own(LEN);
    for rights in [libc::PROT_NONE, libc::PROT_READ] {
        for operation in ["write", "read", "atomic"] {
            let (a, b) = pair_on(&contexts);
            let pages = Pages::anonymous();
            let (remote, local) = (pages.register(&b.pd), a.own(LEN));
            let (sges, word) = ([local.sge(..)], [local.sge(..8)]);
            let wr = || match operation {
                "write" => SendWr::rdma_write(1, &sges, remote.addr(), remote.rkey()),
                "read" => SendWr::rdma_read(1, &sges, remote.addr(), remote.rkey()),
                _ => SendWr::atomic_fetch_add(1, &word, remote.addr(), remote.rkey(), 1),
            };
            assert!(a.run(wr()).is_success(), "{operation}: all is there");
            pages.protect(rights);
            let wc = a.run(wr());
            if operation == "read" && rights == libc::PROT_READ {
                assert!(wc.is_success(), "reading is permitted: {wc}");
            } else {
                assert_eq!(wc.status, WcStatus::RemAccessErr, "{operation}: {wc}");
            }
            let mine = bystander.own(64);
            let sges = [mine.sge(..)];
            let wr = SendWr::rdma_write(2, &sges, theirs.addr(), theirs.rkey());
            assert!(bystander.run(wr).is_success(), "another QP is disturbed");
        }
    }
}

#[test]
fn a_truncated_file_is_gone_memory() {
    let contexts = contexts();
    for operation in ["write", "read", "send"] {
        let (a, b) = pair_on(&contexts);
        let path = std::env::temp_dir().join(format!("urxe-vanish-{}", std::process::id()));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("it is open");
        file.set_len(LEN as u64).expect("room");
        // SAFETY: no other code has the file; that it is truncated is the test.
        let map = unsafe { memmap2::MmapMut::map_mut(&file) }.expect("maps");
        let end = if operation == "send" { &a } else { &b };
        let mapped = end.pd.reg_mapped(map, ALL).expect("registers");
        let own = a.own(LEN);
        let (from, into) = ([mapped.sge(..)], [own.sge(..)]);
        let wr = || match operation {
            "write" => SendWr::rdma_write(1, &into, mapped.addr(), mapped.rkey()),
            "read" => SendWr::rdma_read(1, &into, mapped.addr(), mapped.rkey()),
            _ => SendWr::send(1, &from),
        };
        let landing = b.own(LEN);
        b.qp.post_recv(&RecvWr::new(9, &[landing.sge(..)]))
            .expect("room");
        assert!(a.run(wr()).is_success(), "{operation}: all is there");
        file.set_len(PAGE as u64).expect("shorter");
        let wc = a.run(wr());
        if operation == "send" {
            assert_eq!(wc.fault(), Fault::LocalMemory, "{wc}");
            assert_eq!(wc.status, WcStatus::LocProtErr);
        } else {
            assert_eq!(wc.status, WcStatus::RemAccessErr, "{operation}: {wc}");
        }
    }
}

#[test]
fn a_send_buffer_that_vanishes_between_post_and_send() {
    let (a, b) = pair_on(&contexts());
    let pages = Pages::anonymous();
    let (local, landing) = (pages.register(&a.pd), b.own(LEN));
    // Without a receive at the peer one message may go ahead; the second waits.
    for wr_id in [1, 2] {
        a.qp.post_send(&SendWr::send(wr_id, &[local.sge(..64)]).signaled())
            .expect("room");
    }
    pages.protect(libc::PROT_NONE);
    for wr_id in [1, 2] {
        b.qp.post_recv(&RecvWr::new(wr_id, &[landing.sge(..)]))
            .expect("room");
    }
    // The first may have left before, and need not be sent again.
    let mut wc = a.complete();
    if wc.is_success() {
        assert_eq!(wc.wr_id, 1);
        wc = a.complete();
    }
    assert_eq!(wc.fault(), Fault::LocalMemory, "{wc}");
    assert_eq!(wc.status, WcStatus::LocProtErr);
}

#[test]
fn a_receive_buffer_that_vanishes_fails_the_receive_and_tells_the_sender() {
    let (a, b) = pair_on(&contexts());
    let pages = Pages::anonymous();
    let landing = pages.register(&b.pd);
    b.qp.post_recv(&RecvWr::new(5, &[landing.sge(..)]))
        .expect("room");
    pages.protect(libc::PROT_NONE);
    let wc = a.run(SendWr::send_inline(1, b"hello"));
    assert_eq!(wc.status, WcStatus::RemOpErr, "{wc}");
    let wc = b.complete();
    assert_eq!((wc.wr_id, wc.status), (5, WcStatus::LocProtErr), "{wc}");
    assert_eq!(wc.fault(), Fault::LocalMemory);
}

#[test]
fn a_read_into_memory_that_vanished_is_a_local_fault() {
    let (a, b) = pair_on(&contexts());
    let pages = Pages::anonymous();
    let (local, remote) = (pages.register(&a.pd), b.own(LEN));
    pages.protect(libc::PROT_READ);
    let wc = a.run(SendWr::rdma_read(
        1,
        &[local.sge(..)],
        remote.addr(),
        remote.rkey(),
    ));
    assert_eq!(
        (wc.status, wc.fault()),
        (WcStatus::LocProtErr, Fault::LocalMemory),
        "{wc}"
    );
}

#[test]
fn a_region_is_registered_again_over_other_pages() {
    let (a, b) = pair_on(&contexts());
    let (before, after) = (Pages::anonymous(), Pages::anonymous());
    let mut remote = before.register(&b.pd);
    // SAFETY: `LEN` bytes that only the engine uses.
    let change = unsafe { Rereg::new().raw(after.0, LEN, 0x5000) };
    remote.rereg(change).expect("may change");
    let wr = SendWr::rdma_write_inline(1, b"elsewhere", 0x5000, remote.rkey());
    assert!(a.run(wr).is_success());
    let mut found = [0; 9];
    remote.read(0, &mut found);
    assert_eq!(&found, b"elsewhere");
}

#[test]
fn the_whole_address_space_where_nothing_is_mapped() {
    let (a, b) = pair_on(&contexts());
    // SAFETY: only the addresses below are named, of memory of this test.
    let all = unsafe { b.pd.reg_implicit(ALL) }.expect("registers");
    let pages = Pages::anonymous();
    let at = pages.0.expose_provenance() as u64;
    let write = || SendWr::rdma_write_inline(1, b"anywhere", at, all.rkey());
    assert!(a.run(write()).is_success());
    // SAFETY: mapped, and not otherwise used; the write is complete.
    let written = unsafe { pages.0.cast::<[u8; 8]>().read_volatile() };
    assert_eq!(written, *b"anywhere");
    let landing = a.own(8);
    a.qp.post_recv(&RecvWr::new(5, &[landing.sge(..)]))
        .expect("room");
    assert!(b.run(SendWr::send(2, &[all.sge(pages.0, 8)])).is_success());
    assert_eq!(a.complete().wr_id, 5);
    assert_eq!(landing.load_u64(0).to_ne_bytes(), *b"anywhere");
    pages.protect(libc::PROT_NONE);
    assert_eq!(a.run(write()).status, WcStatus::RemAccessErr);
    let touched = b.pd.advise_mr(Advice::Prefetch, &[all.sge(pages.0, 8)]);
    assert_eq!(touched.expect_err("not readable").errno(), libc::EFAULT);
}

/// Runs a test of this program in a process of its own, where nothing else is mapped
/// into a hole that it makes.
fn in_a_process_of_its_own(test: &str) -> bool {
    if std::env::var_os("URXE_TEST_ALONE").is_some() {
        return false;
    }
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", test, "--nocapture"])
        .env("URXE_TEST_ALONE", "1")
        .output()
        .expect("starts");
    assert!(
        output.status.success(),
        "{}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

/// Waits until a count is so high.
fn reaches(count: &AtomicU32, goal: u32) {
    let start = Instant::now();
    while count.load(Ordering::Relaxed) < goal {
        assert!(start.elapsed() < PATIENCE, "{count:?} of {goal}");
        std::thread::yield_now();
    }
}

/// One end goes on writing and reading until its memory or the peer's is gone.
fn until_it_fails(a: &End, local: &Mr, remote: &Mr, rounds: &AtomicU32) -> Wc {
    let (sges, start) = ([local.sge(..)], Instant::now());
    loop {
        assert!(start.elapsed() < PATIENCE, "it never fails");
        let wc = match rounds.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => a.run(SendWr::rdma_write(1, &sges, remote.addr(), remote.rkey())),
            _ => a.run(SendWr::rdma_read(1, &sges, remote.addr(), remote.rkey())),
        };
        if !wc.is_success() {
            return wc;
        }
    }
}

#[test]
fn a_thread_unmaps_a_region_while_a_peer_writes_and_reads_it() {
    const NAME: &str =
        "mem::vanish_tests::a_thread_unmaps_a_region_while_a_peer_writes_and_reads_it";
    if in_a_process_of_its_own(NAME) {
        return;
    }
    let contexts = contexts();
    for is_local in [false, true] {
        let (a, b) = pair_on(&contexts);
        let (bystander, other) = pair_on(&contexts);
        let pages = Pages::anonymous();
        let (local, remote) = if is_local {
            (pages.register(&a.pd), b.own(LEN))
        } else {
            (a.own(LEN), pages.register(&b.pd))
        };
        let (mine, theirs) = (bystander.own(64), other.own(64));
        let done = AtomicBool::new(false);
        let [rounds, others] = [AtomicU32::new(0), AtomicU32::new(0)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let sges = [mine.sge(..)];
                    let wr = SendWr::rdma_write(2, &sges, theirs.addr(), theirs.rkey());
                    assert!(bystander.run(wr).is_success(), "another QP is disturbed");
                    others.fetch_add(1, Ordering::Relaxed);
                }
            });
            let worker = scope.spawn(|| until_it_fails(&a, &local, &remote, &rounds));
            reaches(&rounds, 20);
            pages.unmap();
            let wc = worker.join().expect("no panic");
            if is_local {
                assert_eq!(wc.fault(), Fault::LocalMemory, "{wc}");
            } else {
                assert_eq!(wc.status, WcStatus::RemAccessErr, "{wc}");
            }
            reaches(&others, others.load(Ordering::Relaxed) + 20);
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn the_progress_thread_survives_too() {
    let (a, b) = pair_on(&contexts());
    let pages = Pages::anonymous();
    let (local, remote) = (a.own(64), pages.register(&b.pd));
    pages.protect(libc::PROT_NONE);
    let sges = [local.sge(..)];
    let wr = SendWr::rdma_write(1, &sges, remote.addr(), remote.rkey());
    a.qp.post_send(&wr.signaled()).expect("room");
    // Only its own thread drives the target; here no thread drives anything.
    let start = Instant::now();
    while b.qp.state().expect("there") != crate::QpState::Err {
        assert!(start.elapsed() < PATIENCE, "the target's thread is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
}

/// What the program's own handlers see, and when. Each case is a process of its own.
mod handlers {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    static CALLS: AtomicU32 = AtomicU32::new(0);
    static EARLIER: std::sync::OnceLock<libc::sigaction> = std::sync::OnceLock::new();

    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

    /// Repairs what `fault` breaks: a handler as debuggers and runtimes have them.
    extern "C" fn repair(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the kernel says where the fault was: on a page of `fault`.
        unsafe {
            let page = (*info).si_addr().map_addr(|addr| addr & !(PAGE - 1));
            libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        }
    }

    /// Counts, and leaves the fault to the handler that was there before.
    extern "C" fn count(
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        CALLS.fetch_add(1000, Ordering::Relaxed);
        let earlier = EARLIER.get().expect("set when installed");
        // SAFETY: what was installed before, which is ours: it takes three arguments.
        unsafe {
            let earlier: Handler = core::mem::transmute(earlier.sa_sigaction);
            earlier(signal, info, context);
        }
    }

    fn install(handler: Handler) -> libc::sigaction {
        // SAFETY: the handlers here do what handlers may.
        unsafe {
            let (mut new, mut old): (libc::sigaction, libc::sigaction) = core::mem::zeroed();
            new.sa_sigaction = handler as usize;
            new.sa_flags = libc::SA_SIGINFO;
            assert_eq!(
                libc::sigaction(libc::SIGSEGV, &raw const new, &raw mut old),
                0
            );
            old
        }
    }

    /// A fault in the program's own code.
    fn fault() {
        let pages = Pages::anonymous();
        pages.protect(libc::PROT_NONE);
        // SAFETY: mapped; the handler gives it its rights back, or the process ends.
        unsafe { pages.0.write_volatile(1) };
    }

    /// A fault in one of the routines.
    fn vanish() {
        let pages = Pages::anonymous();
        pages.protect(libc::PROT_NONE);
        // SAFETY: no other code uses the pages.
        let outcome = unsafe { guarded::fetch_add(pages.0, 1) };
        assert!(outcome.is_err(), "the page is not accessible");
    }

    fn calls() -> u32 {
        CALLS.swap(0, Ordering::Relaxed)
    }

    fn run(case: &str) {
        match case {
            "earlier" => {
                install(repair);
                guarded::protect();
                vanish();
                fault();
                assert_eq!(calls(), 1, "called for its own fault only");
            }
            "later" => {
                guarded::protect();
                install(repair);
                guarded::protect();
                vanish();
                fault();
                vanish();
                assert_eq!(calls(), 1, "we are in front again, and pass on");
            }
            "later, passing on" => {
                install(repair);
                guarded::protect();
                let old = install(count);
                assert!(EARLIER.set(old).is_ok());
                vanish();
                assert_eq!(calls(), 1000, "the fault came through it");
                guarded::protect();
                vanish();
                assert_eq!(calls(), 0, "we are in front");
                // Ours, then the later one, then ours of old, then the earlier one.
                fault();
                assert_eq!(calls(), 1001, "no circle");
            }
            "again and again" => {
                for _ in 0..20 {
                    install(repair);
                    guarded::protect();
                }
                fault();
                assert_eq!(calls(), 1);
            }
            "crash" => {
                guarded::protect();
                fault();
                unreachable!("a fault of the program is the end of it");
            }
            "sent" => {
                // The Rust runtime's own handler ignores signals that were sent.
                // SAFETY: back to the default.
                unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
                guarded::protect();
                // SAFETY: sends this process a signal.
                unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
                std::thread::sleep(PATIENCE);
            }
            _ => panic!("no case {case}"),
        }
    }

    #[test]
    fn one_case() {
        match std::env::var("URXE_TEST_HANDLER") {
            Ok(case) => run(&case),
            Err(_) => println!("nothing to do: this is a part of the next test"),
        }
    }

    #[test]
    fn of_the_program_are_called_for_its_own_faults_whenever_they_were_installed() {
        for case in [
            "earlier",
            "later",
            "later, passing on",
            "again and again",
            "crash",
            "sent",
        ] {
            let output = Command::new(std::env::current_exe().expect("a path"))
                .args([
                    "--exact",
                    "mem::vanish_tests::handlers::one_case",
                    "--nocapture",
                ])
                .env("URXE_TEST_HANDLER", case)
                .output()
                .expect("starts");
            let text = String::from_utf8_lossy(&output.stderr);
            if ["crash", "sent"].contains(&case) {
                let signal = output.status.signal();
                assert_eq!(
                    signal,
                    Some(libc::SIGSEGV),
                    "{case}: {}\n{text}",
                    output.status
                );
            } else {
                assert!(output.status.success(), "{case}: {}\n{text}", output.status);
            }
        }
    }
}
