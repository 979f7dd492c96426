//! Memory windows, and regions of every kind, over sockets.

use crate::common::{ALL, End, bytes, connect, pair};
use urxe::{
    Access, Advice, AdviseFault, BindMw, ErrorKind, Fault, Mr, MwType, RecvWr, RegisterError,
    Rereg, SendWr, Sge, Wc, WcOpcode, WcStatus,
};

const WINDOWS: Access = Access(0xf | Access::MW_BIND.0);

fn run(end: &End, wr: SendWr<'_>) -> Wc {
    end.qp.post_send(&wr.signaled()).expect("room in the queue");
    end.complete()
}

fn bindable(end: &End, len: usize) -> Mr {
    end.pd.reg_owned(vec![0; len], WINDOWS).expect("memory")
}

fn write_to(a: &End, addr: u64, rkey: urxe::Rkey) -> Wc {
    run(a, SendWr::rdma_write_inline(7, b"written!", addr, rkey))
}

#[test]
fn a_window_of_type_1_moves_over_its_region() {
    let (a, b) = pair();
    let memory = bindable(&b, 4096);
    let window = b.pd.alloc_mw(MwType::Type1).expect("a window");
    let part = |from: usize| memory.bind_info(from..from + 64, Access::REMOTE_WRITE);
    let first = b.qp.bind_mw(&window, 1, &part(0), true).expect("room");
    assert_eq!(first, window.rkey());
    let wc = b.succeed();
    assert_eq!((wc.wr_id, wc.opcode), (1, WcOpcode::BindMw));
    assert!(write_to(&a, memory.addr() + 56, first).is_success());
    assert_eq!(&bytes(&memory, 64)[56..], b"written!");

    let second = b.qp.bind_mw(&window, 2, &part(64), true).expect("room");
    b.succeed();
    assert_ne!(first, second);
    assert!(write_to(&a, memory.addr() + 64, second).is_success());
    let (memory, error) = memory.dereg().expect_err("a window is bound to it");
    assert_eq!(error.kind(), &ErrorKind::Register(RegisterError::Bound(1)));
    assert_eq!(error.errno(), 16, "EBUSY");

    let nothing = BindMw {
        length: 0,
        ..memory.bind_info(.., Access::NONE)
    };
    b.qp.bind_mw(&window, 3, &nothing, true).expect("room");
    b.succeed();
    memory.dereg().expect("nothing is bound to it");
    let wc = write_to(&a, 0, second);
    assert_eq!(
        (wc.status, wc.fault()),
        (WcStatus::RemAccessErr, Fault::NakRemoteAccess)
    );
}

#[test]
fn a_window_of_type_2_is_lent_to_a_peer_who_gives_it_back() {
    let (a, b) = pair();
    let (memory, inbox) = (bindable(&b, 4096), b.memory(64));
    let window = b.pd.alloc_mw(MwType::Type2).expect("a window");
    for round in 0..3 {
        let at = 100 * round;
        let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
        let bind = window.bind(1, &memory.bind_info(at..at + 8, access));
        assert_eq!(run(&b, bind).status, WcStatus::Success, "round {round}");
        assert!(write_to(&a, 0, window.rkey()).is_success());
        assert_eq!(&bytes(&memory, 4096)[at..at + 8], b"written!");
        b.recv(5, &inbox);
        let wc = run(&a, SendWr::send_with_inv(6, &[], window.rkey()));
        assert!(wc.is_success(), "{wc}");
        assert_eq!(b.succeed().invalidated_rkey, Some(window.rkey()));
    }
    assert_eq!(
        write_to(&a, 0, window.rkey()).status,
        WcStatus::RemAccessErr
    );
}

#[test]
fn a_window_of_type_2_opens_to_the_qp_that_bound_it() {
    let (a, b) = pair();
    let memory = bindable(&b, 64);
    let window = b.pd.alloc_mw(MwType::Type2).expect("a window");
    let part = memory.bind_info(.., Access::REMOTE_WRITE);
    assert!(run(&b, window.bind(1, &part)).is_success());
    // Another connection between the same domains.
    let (c, d) = (End::on(a.context.clone()), &b);
    let qp = d.pd.qp(&d.cq).create().expect("a QP");
    connect(&c.qp, &qp, &urxe::ConnectOptions::default());
    assert_eq!(
        write_to(&c, memory.addr(), window.rkey()).status,
        WcStatus::RemAccessErr
    );
    assert!(write_to(&a, memory.addr(), window.rkey()).is_success());
    let wc = run(&b, SendWr::local_inv(2, window.rkey()));
    assert_eq!(
        (wc.status, wc.opcode),
        (WcStatus::Success, WcOpcode::LocalInv)
    );
    assert_eq!(
        write_to(&a, memory.addr(), window.rkey()).status,
        WcStatus::RemAccessErr
    );
}

#[test]
fn windows_that_cannot_be_bound() {
    let (a, b) = pair();
    let plain = b.memory(64);
    let one = b.pd.alloc_mw(MwType::Type1).expect("a window");
    let two = b.pd.alloc_mw(MwType::Type2).expect("a window");
    let part = plain.bind_info(.., Access::REMOTE_READ);
    let error = b.qp.bind_mw(&two, 1, &part, true).expect_err("of type 2");
    assert_eq!((error.kind(), error.errno()), (&ErrorKind::WindowType, 22));
    let elsewhere = a.pd.alloc_mw(MwType::Type1).expect("a window");
    let error =
        b.qp.bind_mw(&elsewhere, 1, &part, true)
            .expect_err("of another context");
    assert_eq!(error.kind(), &ErrorKind::ForeignObject("memory window"));
    let before = one.rkey();
    let reset = b.pd.qp(&b.cq).create().expect("a QP");
    reset
        .bind_mw(&one, 1, &part, true)
        .expect_err("a QP in RESET");
    assert_eq!(one.rkey(), before, "nothing happened");
    b.qp.bind_mw(&one, 9, &part, true).expect("room");
    let wc = b.complete();
    assert_eq!(
        (wc.wr_id, wc.status),
        (9, WcStatus::MwBindErr),
        "without MW_BIND: {wc}"
    );
    assert_eq!(wc.fault(), Fault::WindowBind);
}

#[test]
fn a_window_of_another_domain_than_the_qp_is_a_bind_error() {
    let (_a, b) = pair();
    let other = b.context.alloc_pd().expect("a PD");
    let memory = other.reg_owned(vec![0; 64], WINDOWS).expect("memory");
    let window = other.alloc_mw(MwType::Type1).expect("a window");
    let part = memory.bind_info(.., Access::REMOTE_READ);
    b.qp.bind_mw(&window, 3, &part, true)
        .expect("that is found when it is carried out");
    let wc = b.complete();
    assert_eq!((wc.wr_id, wc.status), (3, WcStatus::MwBindErr), "{wc}");
    assert_eq!(wc.fault(), Fault::WindowBind);
    memory.dereg().expect("nothing is bound to it");
}

#[test]
fn a_region_that_goes_takes_its_windows_along() {
    let (a, b) = pair();
    let memory = bindable(&b, 64);
    let addr = memory.addr();
    let window = b.pd.alloc_mw(MwType::Type1).expect("a window");
    let part = memory.bind_info(.., Access::REMOTE_WRITE);
    b.qp.bind_mw(&window, 1, &part, true).expect("room");
    b.succeed();
    drop(memory);
    assert_eq!(
        write_to(&a, addr, window.rkey()).status,
        WcStatus::RemAccessErr
    );
}

#[test]
fn a_null_region_sends_zeros_and_receives_into_nothing() {
    let (a, b) = pair();
    let (from, to) = (a.memory(10_000), b.memory(10_000));
    let (nothing, hole) = (
        a.pd.alloc_null_mr().expect("a null region"),
        b.pd.alloc_null_mr().expect("a null region"),
    );
    from.write(0, &[9; 10_000]);
    // 5000 bytes vanish on the way in, 3000 were never there.
    for round in 0..2 {
        let sges = [hole.sge(5000), to.sge(..5000)];
        b.qp.post_recv(&RecvWr::new(round, &sges)).expect("room");
        let sges = [from.sge(..7000), nothing.sge(3000)];
        assert!(run(&a, SendWr::send(1, &sges)).is_success());
        assert_eq!(b.succeed().byte_len, 10_000);
        let mut expected = vec![9; 2000];
        expected.resize(5000, 0);
        assert_eq!(bytes(&to, 5000), expected);
    }
    // Nor does an atomic's result have to go anywhere.
    let wr = SendWr::atomic_fetch_add(2, &[], to.addr(), to.rkey(), 1);
    assert_eq!(
        run(&a, wr).status,
        WcStatus::LocLenErr,
        "a result of no bytes"
    );
    let (a, b) = pair();
    let (to, nothing) = (b.memory(8), a.pd.alloc_null_mr().expect("a null region"));
    let sges = [nothing.sge(8)];
    let wr = SendWr::atomic_fetch_add(2, &sges, to.addr(), to.rkey(), 5);
    assert!(run(&a, wr).is_success());
    assert_eq!(to.load_u64(0), 5);
    let elsewhere = a.context.alloc_pd().expect("a PD");
    let foreign = elsewhere.alloc_null_mr().expect("a null region");
    let wc = run(&a, SendWr::send(3, &[foreign.sge(8)]));
    assert_eq!(
        (wc.status, wc.fault()),
        (WcStatus::LocProtErr, Fault::LocalPd)
    );
}

/// A message of many packets: there is no memory for all of it, neither where it comes from nor where it goes.
#[test]
fn a_null_region_streams() {
    const LEN: usize = 300_000;
    let (a, b) = pair();
    let (from, to) = (a.memory(LEN), b.memory(LEN));
    let null = |end: &End| end.pd.alloc_null_mr().expect("a null region");
    let (nothing, hole) = (null(&a), null(&b));
    let zeros = [nothing.sge(LEN as u32)];
    // Out of nothing, by each operation.
    to.write(0, &[7; LEN]);
    let write = SendWr::rdma_write(1, &zeros, to.addr(), to.rkey());
    assert!(run(&a, write).is_success());
    assert!(bytes(&to, LEN) == [0; LEN]);
    to.write(0, &[7; LEN]);
    b.qp.post_recv(&RecvWr::new(2, &[to.sge(..)]))
        .expect("room");
    assert!(run(&a, SendWr::send(2, &zeros)).is_success());
    assert_eq!(b.succeed().byte_len as usize, LEN);
    assert!(bytes(&to, LEN) == [0; LEN]);
    // And into it.
    from.write(0, &[9; LEN]);
    b.qp.post_recv(&RecvWr::new(3, &[hole.sge(LEN as u32)]))
        .expect("room");
    assert!(run(&a, SendWr::send(3, &[from.sge(..)])).is_success());
    assert_eq!(b.succeed().byte_len as usize, LEN);
    let read = SendWr::rdma_read(4, &zeros, to.addr(), to.rkey());
    assert!(run(&a, read).is_success());
}

#[test]
fn a_zero_based_region_counts_from_nothing() {
    let (a, b) = pair();
    let access = ALL | Access::ZERO_BASED | Access::ON_DEMAND | Access::RELAXED_ORDERING;
    let memory = b.pd.reg_owned(vec![0; 64], access).expect("memory");
    assert_eq!(memory.addr(), 0);
    assert!(write_to(&a, 56, memory.rkey()).is_success());
    assert_eq!(&bytes(&memory, 64)[56..], b"written!");
    assert_eq!(memory.sge(8..16).addr, 8);
    assert_eq!(
        write_to(&a, 57, memory.rkey()).status,
        WcStatus::RemAccessErr
    );
}

#[test]
fn device_memory_is_reached_by_copies_and_by_peers() {
    let (a, b) = pair();
    let dm = b.context.alloc_dm(256).expect("device memory");
    dm.copy_to(0, &[1; 256]).expect("inside");
    let access = ALL | Access::ZERO_BASED;
    let part = b.pd.reg_dm_mr(&dm, 100, 16, access).expect("registers");
    assert!(write_to(&a, 8, part.rkey()).is_success());
    let mut back = [0; 18];
    dm.copy_from(107, &mut back).expect("inside");
    assert_eq!(&back, b"\x01written!\x01\x01\x01\x01\x01\x01\x01\x01\x01");
    assert_eq!(write_to(&a, 9, part.rkey()).status, WcStatus::RemAccessErr);

    dm.copy_to(250, &[0; 7]).expect_err("not all inside");
    dm.copy_from(usize::MAX, &mut [0; 2])
        .expect_err("not inside");
    b.pd.reg_dm_mr(&dm, 250, 7, access)
        .expect_err("not all inside");
    let error = b.pd.reg_dm_mr(&dm, 0, 8, ALL).expect_err("not zero-based");
    assert_eq!(error.errno(), 22);
    a.pd.reg_dm_mr(&dm, 0, 8, access)
        .expect_err("another context's");
    b.context.alloc_dm(0).expect_err("none");
    b.context.alloc_dm(usize::MAX).expect_err("too much");
    // A region keeps the memory.
    dm.free();
    part.write(0, b"still there");
}

#[test]
fn registering_again_changes_what_peers_reach() {
    let (a, b) = pair();
    let mut memory = b.memory(64);
    let (old, rkey) = (memory.addr(), memory.rkey());
    memory
        .rereg(Rereg::new().owned(vec![3; 4096]))
        .expect("may change");
    assert_eq!((memory.len(), memory.rkey()), (4096, rkey));
    assert!(write_to(&a, memory.addr() + 4088, rkey).is_success());
    assert_eq!(
        &bytes(&memory, 4096)[4080..],
        b"\x03\x03\x03\x03\x03\x03\x03\x03written!"
    );
    assert_eq!(write_to(&a, old, rkey).status, WcStatus::RemAccessErr);

    let (a, b) = pair();
    let mut memory = b.memory(64);
    let refused = memory.rereg(Rereg::new().access(Access::REMOTE_WRITE));
    let error = refused.expect_err("without LOCAL_WRITE");
    assert_eq!(
        error.kind(),
        &ErrorKind::Register(RegisterError::RemoteWithoutLocalWrite)
    );
    memory
        .rereg(Rereg::new().pd(&a.pd))
        .expect_err("another context's PD");
    assert!(
        write_to(&a, memory.addr(), memory.rkey()).is_success(),
        "as it was"
    );
    let other = b.context.alloc_pd().expect("a PD");
    memory.rereg(Rereg::new().pd(&other)).expect("may change");
    assert_eq!(
        write_to(&a, memory.addr(), memory.rkey()).status,
        WcStatus::RemAccessErr
    );

    let (_a, b) = pair();
    let mut memory = bindable(&b, 64);
    let window = b.pd.alloc_mw(MwType::Type1).expect("a window");
    let part = memory.bind_info(.., Access::REMOTE_READ);
    b.qp.bind_mw(&window, 1, &part, true).expect("room");
    b.succeed();
    let error = memory
        .rereg(Rereg::new().access(ALL))
        .expect_err("a window is bound");
    assert_eq!(error.errno(), 16, "EBUSY");
    window.dealloc();
    memory.rereg(Rereg::new().access(ALL)).expect("may change");
}

#[test]
fn advice_is_checked_entry_by_entry() {
    let a = End::open();
    let memory = a.memory(1 << 20);
    memory.write(0, &[5; 1 << 20]);
    for advice in [
        Advice::Prefetch,
        Advice::PrefetchWrite,
        Advice::PrefetchNoFault,
    ] {
        a.pd.advise_mr(advice, &[memory.sge(..), memory.sge(1..2)])
            .expect("all is there");
    }
    assert_eq!(bytes(&memory, 1 << 20), vec![5; 1 << 20], "nothing changes");
    let readable = a.pd.reg_owned(vec![0; 64], Access::NONE).expect("memory");
    let other = a.context.alloc_pd().expect("a PD");
    let foreign = other.reg_owned(vec![0; 64], ALL).expect("memory");
    let outside = Sge {
        length: 65,
        ..readable.sge(..)
    };
    let nobodys = Sge {
        lkey: urxe::Lkey(memory.rkey().0),
        ..memory.sge(..)
    };
    for (sge, advice, fault, errno) in [
        (
            readable.sge(..),
            Advice::PrefetchWrite,
            AdviseFault::Access,
            1,
        ),
        (foreign.sge(..), Advice::Prefetch, AdviseFault::Pd, 1),
        (outside, Advice::Prefetch, AdviseFault::Bounds, 14),
        (nobodys, Advice::PrefetchNoFault, AdviseFault::Key, 2),
    ] {
        let error =
            a.pd.advise_mr(advice, &[memory.sge(..), sge])
                .expect_err("refused");
        assert_eq!(error.kind(), &ErrorKind::Advise { entry: 1, fault });
        assert_eq!(error.errno(), errno);
    }
}

#[test]
fn a_parent_domain_is_the_domain() {
    let a = End::open();
    let td = a.context.alloc_td().expect("a thread domain");
    let parent =
        a.pd.alloc_parent_domain(Some(&td))
            .expect("a parent domain");
    let memory = parent.reg_owned(vec![0; 8], ALL).expect("memory");
    a.pd.advise_mr(Advice::Prefetch, &[memory.sge(..)])
        .expect("the same domain");
    let stranger = End::open();
    stranger
        .pd
        .alloc_parent_domain(Some(&td))
        .expect_err("another context's");
}

#[test]
fn a_region_of_numbers() {
    let (a, b) = pair();
    let counters = b.pd.reg_array(&[5u64; 1000], ALL).expect("memory");
    let old = a.pd.reg_array(&[0u64], ALL).expect("memory");
    for add in 1..=10 {
        let target = counters.remote(999..);
        let sges = [old.sge(..)];
        let add = SendWr::atomic_fetch_add(1, &sges, target.addr, target.rkey, add);
        assert!(run(&a, add).is_success());
    }
    assert_eq!((counters.get(999), counters.get(998)), (60, 5));
    assert_eq!(old.get(0), 50, "before the last");

    // A part is written by a peer, and no element beside it.
    let signs = b.pd.reg_array(&[-1i16; 300], ALL).expect("memory");
    let source = a.pd.reg_array(&[-2i16, -3], ALL).expect("memory");
    let target = signs.remote(100..102);
    let sges = [source.sge(..)];
    let write = SendWr::rdma_write(2, &sges, target.addr, target.rkey);
    assert!(run(&a, write).is_success());
    assert_eq!(signs.to_vec(99..103), [-1, -2, -3, -1]);
    let all = signs.into_vec().map_err(|(_, error)| error);
    assert_eq!(all.expect("no window").len(), 300, "not the whole page");

    // Its key is gone with it.
    let wc = run(&a, SendWr::rdma_write(3, &sges, target.addr, target.rkey));
    assert_eq!(wc.fault(), Fault::NakRemoteAccess);
}

#[test]
fn a_region_of_numbers_at_its_ends() {
    let end = End::open();
    let none = end.pd.reg_array::<f32>(&[], ALL).expect("memory");
    assert!(none.is_empty() && none.to_vec(..).is_empty());
    assert_eq!(none.sge(..).length, 0);
    let three = end.pd.reg_array(&[1.5f64, 2.5, 3.5], ALL).expect("memory");
    three.set(2, f64::INFINITY);
    let beyond = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| three.get(3)));
    assert!(beyond.is_err());
    // A window holds it, and it comes back whole.
    let (bytes, peer) = (
        end.pd.reg_array(&[7u8; 9], WINDOWS).expect("memory"),
        End::open(),
    );
    connect(&end.qp, &peer.qp, &urxe::ConnectOptions::default());
    let window = end.pd.alloc_mw(MwType::Type1).expect("a window");
    let part = bytes.bind_info(..9, Access::REMOTE_READ);
    end.qp.bind_mw(&window, 1, &part, true).expect("room");
    end.succeed();
    let (bytes, error) = bytes.into_vec().expect_err("a window is bound to it");
    assert_eq!(error.kind(), &ErrorKind::Register(RegisterError::Bound(1)));
    window.dealloc();
    let bytes = bytes.into_bytes().map_err(|(_, error)| error);
    assert_eq!(&*bytes.expect("free"), [7; 9]);
    let back = three.into_vec().map_err(|(_, error)| error);
    assert_eq!(back.expect("free"), [1.5, 2.5, f64::INFINITY]);
}
