//! Windows: the rules one by one, and random sequences beside a model of a few lines.

use urxe_wire::Qpn;

use super::tests::{ME, PD};
use super::*;

const BASE: u64 = 0x1000;
const LEN: u64 = 0x100;
const ALL: Access = Access(0xf | 0x10);
const OTHER_QP: Accessor = Accessor {
    pd: PD,
    qpn: Qpn::new(9),
};

fn region(t: &mut MrTable, access: Access) -> MrKeys {
    let init = MrInit {
        pd: PD,
        access,
        host_addr: 0x9000,
        iova: BASE,
        len: LEN,
        remote_invalidate: false,
    };
    t.register(init).expect("fits")
}

fn bind(keys: MrKeys) -> BindMw {
    BindMw {
        lkey: keys.lkey,
        addr: BASE + 0x10,
        length: 0x20,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

fn write(t: &MrTable, by: Accessor, rkey: Rkey, addr: u64) -> Result<u64, AccessFault> {
    let span = t.check_remote(rkey, by, addr, 8, Access::REMOTE_WRITE)?;
    Ok(span.host_addr())
}

#[test]
fn a_window_of_type_1_is_bound_again_and_again() {
    let mut t = MrTable::new(1);
    let keys = region(&mut t, ALL);
    let first = t.alloc_mw(PD, MwType::Type1).expect("fits");
    assert_eq!(
        write(&t, ME, first, BASE),
        Err(AccessFault::Key),
        "not bound"
    );
    let second = inc_rkey(first);
    t.bind_mw(ME, second, &bind(keys)).expect("may be bound");
    assert_eq!(t.windows_of(keys.lkey), 1);
    assert_eq!(write(&t, ME, second, BASE + 0x10), Ok(0x9010));
    assert_eq!(
        write(&t, OTHER_QP, second, BASE + 0x28),
        Ok(0x9028),
        "any QP"
    );
    assert_eq!(write(&t, ME, second, BASE + 0x29), Err(AccessFault::Bounds));
    assert_eq!(write(&t, ME, second, BASE + 0xf), Err(AccessFault::Bounds));
    let read = t.check_remote(second, ME, BASE + 0x10, 8, Access::REMOTE_ATOMIC);
    assert_eq!(read, Err(AccessFault::Access));
    let stranger = Accessor { pd: PdId(7), ..ME };
    assert_eq!(
        write(&t, stranger, second, BASE + 0x10),
        Err(AccessFault::Pd)
    );
    assert_eq!(t.check_invalidate(second, ME), Err(AccessFault::Access));

    let third = inc_rkey(second);
    let elsewhere = BindMw {
        addr: BASE,
        ..bind(keys)
    };
    t.bind_mw(OTHER_QP, third, &elsewhere).expect("bound again");
    assert_eq!(
        write(&t, ME, second, BASE + 0x10),
        Err(AccessFault::Key),
        "the old key"
    );
    assert_eq!(write(&t, ME, third, BASE), Ok(0x9000));
    assert_eq!(t.windows_of(keys.lkey), 1);

    let fourth = inc_rkey(third);
    let nothing = BindMw {
        length: 0,
        ..bind(keys)
    };
    t.bind_mw(ME, fourth, &nothing).expect("unbinds");
    assert_eq!(t.windows_of(keys.lkey), 0);
    for rkey in [third, fourth] {
        assert_eq!(write(&t, ME, rkey, BASE), Err(AccessFault::Key));
    }
    assert!(t.dealloc_mw(fourth));
    assert!(!t.dealloc_mw(fourth));
}

#[test]
fn a_window_of_type_2_opens_to_its_qp_until_it_is_invalidated() {
    let mut t = MrTable::new(2);
    let keys = region(&mut t, ALL);
    let free = t.alloc_mw(PD, MwType::Type2).expect("fits");
    assert_eq!(t.check_invalidate(free, ME), Err(AccessFault::Key), "free");
    let rkey = inc_rkey(free);
    let nothing = BindMw {
        length: 0,
        ..bind(keys)
    };
    assert_eq!(t.bind_mw(ME, rkey, &nothing), Err(WindowFault::Bounds));
    t.bind_mw(ME, rkey, &bind(keys)).expect("may be bound");
    assert_eq!(write(&t, ME, rkey, BASE + 0x10), Ok(0x9010));
    assert_eq!(write(&t, OTHER_QP, rkey, BASE + 0x10), Err(AccessFault::Pd));
    assert_eq!(
        t.bind_mw(ME, inc_rkey(rkey), &bind(keys)),
        Err(WindowFault::State)
    );
    assert_eq!(t.check_invalidate(rkey, OTHER_QP), Err(AccessFault::Pd));
    t.check_invalidate(rkey, ME).expect("its own QP may");
    t.invalidate(rkey);
    assert_eq!(write(&t, ME, rkey, BASE + 0x10), Err(AccessFault::Key));
    assert_eq!(t.windows_of(keys.lkey), 0);

    let zero_based = BindMw {
        access: bind(keys).access | Access::ZERO_BASED,
        ..bind(keys)
    };
    let rkey = inc_rkey(rkey);
    t.bind_mw(ME, rkey, &zero_based).expect("may be bound");
    assert_eq!(write(&t, ME, rkey, 0x18), Ok(0x9028));
    assert_eq!(write(&t, ME, rkey, 0x19), Err(AccessFault::Bounds));

    // The number of a QP that is gone may be another's next.
    t.unbind_qp(OTHER_QP.qpn);
    assert!(write(&t, ME, rkey, 0).is_ok());
    t.unbind_qp(ME.qpn);
    assert_eq!(write(&t, ME, rkey, 0), Err(AccessFault::Key));
    assert_eq!(t.windows_of(keys.lkey), 0);
}

#[test]
fn a_window_of_type_2_is_bound_with_any_8_bits() {
    let mut t = MrTable::new(3);
    let keys = region(&mut t, ALL);
    for low in 0..=0xff {
        let free = t.alloc_mw(PD, MwType::Type2).expect("fits");
        let rkey = Rkey(free.0 & !0xff | low);
        t.bind_mw(ME, rkey, &bind(keys))
            .unwrap_or_else(|fault| panic!("{free:?} with {low:#x}: {fault}"));
        // The same again, once it is free.
        t.invalidate(rkey);
        assert_eq!(write(&t, ME, rkey, BASE + 0x10), Err(AccessFault::Key));
        t.bind_mw(ME, rkey, &bind(keys)).expect("it is free");
        assert_eq!(write(&t, ME, rkey, BASE + 0x10), Ok(0x9010));
        assert!(t.dealloc_mw(rkey));
    }
}

#[test]
fn a_bind_that_fails_leaves_what_was_bound() {
    let mut t = MrTable::new(6);
    let keys = region(&mut t, ALL);
    let no_bind = region(&mut t, Access(0xf)).lkey;
    for mw_type in [MwType::Type1, MwType::Type2] {
        let rkey = inc_rkey(t.alloc_mw(PD, mw_type).expect("fits"));
        let good = bind(keys);
        t.bind_mw(ME, rkey, &good).expect("may be bound");
        let stranger = Accessor { pd: PdId(7), ..ME };
        for (by, bad) in [
            (stranger, good),
            (
                ME,
                BindMw {
                    lkey: no_bind,
                    ..good
                },
            ),
            (
                ME,
                BindMw {
                    addr: BASE + LEN,
                    ..good
                },
            ),
            (
                ME,
                BindMw {
                    access: Access::LOCAL_WRITE,
                    ..good
                },
            ),
        ] {
            t.bind_mw(by, inc_rkey(rkey), &bad).expect_err("refused");
            assert_eq!(write(&t, ME, rkey, BASE + 0x10), Ok(0x9010), "{bad:?}");
            let new = write(&t, ME, inc_rkey(rkey), BASE + 0x10);
            assert_eq!(new, Err(AccessFault::Key), "{bad:?}");
        }
    }
    assert_eq!(t.windows_of(keys.lkey), 2);
}

#[test]
fn what_cannot_be_bound() {
    let mut t = MrTable::new(4);
    let keys = region(&mut t, ALL);
    let free = t.alloc_mw(PD, MwType::Type2).expect("fits");
    let rkey = inc_rkey(free);
    let refuse = |t: &mut MrTable, by, rkey, bind: BindMw, fault| {
        assert_eq!(t.bind_mw(by, rkey, &bind), Err(fault), "{bind:?}");
    };
    let good = bind(keys);
    refuse(
        &mut t,
        Accessor { pd: PdId(7), ..ME },
        rkey,
        good,
        WindowFault::Pd,
    );
    refuse(&mut t, ME, keys.rkey, good, WindowFault::Window);
    refuse(
        &mut t,
        ME,
        Rkey(free.0 ^ 0x8000_0000),
        good,
        WindowFault::Window,
    );
    let access = Access::LOCAL_WRITE;
    refuse(
        &mut t,
        ME,
        rkey,
        BindMw { access, ..good },
        WindowFault::Access,
    );
    let lkey = Lkey(keys.rkey.0);
    refuse(
        &mut t,
        ME,
        rkey,
        BindMw { lkey, ..good },
        WindowFault::Region,
    );
    for (addr, length) in [
        (BASE - 1, 1),
        (BASE, LEN + 1),
        (BASE + LEN, 1),
        (u64::MAX, 2),
    ] {
        let bad = BindMw {
            addr,
            length,
            ..good
        };
        refuse(&mut t, ME, rkey, bad, WindowFault::Bounds);
    }
    let no_bind = region(&mut t, Access(0xf)).lkey;
    refuse(
        &mut t,
        ME,
        rkey,
        BindMw {
            lkey: no_bind,
            ..good
        },
        WindowFault::Region,
    );
    let zero = region(&mut t, ALL | Access::ZERO_BASED).lkey;
    refuse(
        &mut t,
        ME,
        rkey,
        BindMw { lkey: zero, ..good },
        WindowFault::Region,
    );
    let read_only = region(&mut t, Access::REMOTE_READ | Access::MW_BIND).lkey;
    let readable = BindMw {
        lkey: read_only,
        ..good
    };
    refuse(&mut t, ME, rkey, readable, WindowFault::Region);
    let access = Access::REMOTE_READ;
    t.bind_mw(ME, rkey, &BindMw { access, ..readable })
        .expect("reading is no writing");
    let type_1 = inc_rkey(t.alloc_mw(PD, MwType::Type1).expect("fits"));
    let access = Access::REMOTE_READ | Access::ZERO_BASED;
    refuse(
        &mut t,
        ME,
        type_1,
        BindMw { access, ..good },
        WindowFault::Access,
    );
}

#[test]
fn a_region_with_windows_cannot_change_and_takes_them_along_when_it_goes() {
    let mut t = MrTable::new(5);
    let keys = region(&mut t, ALL);
    t.set_remote_invalidate(keys.lkey, true);
    let rkey = inc_rkey(t.alloc_mw(PD, MwType::Type1).expect("fits"));
    t.bind_mw(ME, rkey, &bind(keys)).expect("may be bound");
    let again = t.reregister(keys.lkey, &MrChange::default());
    assert_eq!(again, Err(RegisterError::Bound(1)));
    assert_eq!(t.check_invalidate(keys.rkey, ME), Err(AccessFault::Access));
    assert!(t.deregister(keys.lkey));
    assert_eq!(write(&t, ME, rkey, BASE + 0x10), Err(AccessFault::Key));
    let next = region(&mut t, ALL);
    t.bind_mw(ME, inc_rkey(rkey), &bind(next))
        .expect("the window is still there");
}

/// What the model knows of a key: which QP may write where.
#[derive(Clone, Copy, Debug)]
struct Known {
    rkey: Rkey,
    base: u64,
    len: u64,
    host: u64,
    access: u32,
    qpn: Option<Qpn>,
}

/// What a window is bound to: its place, and the region.
type Binding = Option<(Known, Lkey)>;

/// A model of regions and windows: lists of what is valid, and nothing else.
#[derive(Default)]
struct Model {
    regions: Vec<(MrKeys, Known)>,
    windows: Vec<(Rkey, MwType, Binding)>,
    dead: Vec<Rkey>,
}

impl Model {
    fn valid(&self) -> impl Iterator<Item = &Known> {
        let bound = self
            .windows
            .iter()
            .filter_map(|w| w.2.as_ref().map(|(k, _)| k));
        self.regions.iter().map(|(_, k)| k).chain(bound)
    }

    fn answer(&self, rkey: Rkey, by: Accessor, addr: u64, need: u32) -> Option<u64> {
        let known = self.valid().find(|k| k.rkey == rkey)?;
        let fits = addr >= known.base && addr + 8 <= known.base + known.len;
        let may = known.access & need == need && known.qpn.is_none_or(|qpn| qpn == by.qpn);
        (fits && may).then(|| known.host + addr - known.base)
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n.max(1)
    }
}

#[test]
fn random_sequences_agree_with_the_model() {
    for seed in 1..=60 {
        let (mut t, mut model) = (MrTable::new(seed), Model::default());
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for step in 0..400 {
            step_of(&mut t, &mut model, &mut rng);
            let keys: Vec<Rkey> = model
                .valid()
                .map(|k| k.rkey)
                .chain(model.dead.clone())
                .collect();
            for _ in 0..4 {
                let Some(&rkey) = keys.get(rng.below(keys.len())) else {
                    break;
                };
                let by = [ME, OTHER_QP][rng.below(2)];
                let addr = BASE - 16 + rng.below(LEN as usize + 32) as u64;
                let need = [0, 2, 4, 8, 6][rng.below(5)];
                let got = t.check_remote(rkey, by, addr, 8, Access(need)).ok();
                let expected = model.answer(rkey, by, addr, need);
                assert_eq!(
                    got.map(MrSpan::host_addr),
                    expected,
                    "seed {seed}, step {step}: {rkey:?} by {by:?} at {addr:#x} for {need}"
                );
            }
        }
    }
}

fn step_of(t: &mut MrTable, model: &mut Model, rng: &mut Rng) {
    match rng.below(7) {
        0 if model.regions.len() < 8 => {
            let access = [0x1f, 0x17, 0x14, 0xf][rng.below(4)];
            let keys = region(t, Access(access));
            let known = Known {
                rkey: keys.rkey,
                base: BASE,
                len: LEN,
                host: 0x9000,
                access,
                qpn: None,
            };
            model.regions.push((keys, known));
        }
        1 if model.windows.len() < 8 => {
            let mw_type = [MwType::Type1, MwType::Type2][rng.below(2)];
            let rkey = t.alloc_mw(PD, mw_type).expect("fits");
            model.windows.push((rkey, mw_type, None));
        }
        2 if !model.regions.is_empty() && rng.below(3) == 0 => {
            let (keys, _) = model.regions.swap_remove(rng.below(model.regions.len()));
            assert!(t.deregister(keys.lkey));
            model.dead.push(keys.rkey);
            for (rkey, _, bound) in &mut model.windows {
                if bound.take_if(|(_, lkey)| *lkey == keys.lkey).is_some() {
                    model.dead.push(*rkey);
                }
            }
        }
        3 if !model.windows.is_empty() && rng.below(3) == 0 => {
            let (rkey, ..) = model.windows.swap_remove(rng.below(model.windows.len()));
            assert!(t.dealloc_mw(rkey));
            model.dead.push(rkey);
        }
        4 if !model.windows.is_empty() => {
            let at = rng.below(model.windows.len());
            let (rkey, mw_type, bound) = &mut model.windows[at];
            let by = [ME, OTHER_QP][rng.below(2)];
            let may = match bound {
                Some((known, _)) => *mw_type == MwType::Type2 && known.qpn == Some(by.qpn),
                None => false,
            };
            assert_eq!(t.check_invalidate(*rkey, by).is_ok(), may);
            if may {
                t.invalidate(*rkey);
                *bound = None;
                model.dead.push(*rkey);
            }
        }
        _ if !model.windows.is_empty() && !model.regions.is_empty() => bind_some(t, model, rng),
        _ => {}
    }
}

fn bind_some(t: &mut MrTable, model: &mut Model, rng: &mut Rng) {
    let (keys, over) = model.regions[rng.below(model.regions.len())];
    let at = rng.below(model.windows.len());
    let (old, mw_type, bound) = model.windows[at];
    let by = [ME, OTHER_QP][rng.below(2)];
    let (addr, length) = (BASE + rng.below(0x90) as u64, rng.below(0x90) as u64);
    let access = [0, 2, 4, 6, 8, 1][rng.below(6)];
    let request = BindMw {
        lkey: keys.lkey,
        addr,
        length,
        access: Access(access),
    };
    let rkey = inc_rkey(old);
    let suits = length == 0
        || over.access & 0x10 != 0
            && addr + length <= BASE + LEN
            && (access & 0xa == 0 || over.access & 1 != 0);
    let free = mw_type == MwType::Type1 || bound.is_none() && length > 0;
    let outcome = t.bind_mw(by, rkey, &request);
    assert_eq!(
        outcome.is_ok(),
        suits && free && access & 1 == 0,
        "{request:?}: {outcome:?}"
    );
    if outcome.is_err() {
        return;
    }
    model.dead.push(old);
    // A key of 8 bits comes round again.
    model.dead.retain(|&dead| dead != rkey);
    let known = Known {
        rkey,
        base: addr,
        len: length,
        host: 0x9000 + addr - BASE,
        access,
        qpn: (mw_type == MwType::Type2).then_some(by.qpn),
    };
    let binding = (length > 0).then_some((known, keys.lkey));
    if binding.is_none() {
        model.dead.push(rkey);
    }
    model.windows[at] = (rkey, mw_type, binding);
}
