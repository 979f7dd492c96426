//! Keys, bounds and rights of regions.

use urxe_wire::Qpn;

use super::*;
use crate::table::Occupancy;

pub(super) const PD: PdId = PdId(1);
/// The QP that asks.
pub(super) const ME: Accessor = Accessor {
    pd: PD,
    qpn: Qpn::new(2),
};

fn init(access: Access) -> MrInit {
    MrInit {
        pd: PD,
        access,
        host_addr: 0x9000,
        iova: 0x1000,
        len: 0x100,
        remote_invalidate: false,
    }
}

fn table() -> (MrTable, MrKeys) {
    let mut t = MrTable::new(7);
    let keys = t.register(init(Access(0xf))).expect("fits");
    (t, keys)
}

#[test]
fn a_passed_check_translates() {
    let (t, k) = table();
    let span = t
        .check_remote(k.rkey, ME, 0x1010, 8, Access::REMOTE_READ)
        .expect("inside");
    assert_eq!((span.host_addr(), span.len()), (0x9010, 8));
}

#[test]
fn bounds_to_the_byte() {
    let (t, k) = table();
    let at = |addr, len| t.check_local(k.lkey, PD, addr, len, Access::NONE);
    assert!(at(0x1000, 0x100).is_ok());
    assert!(at(0x1100, 0).is_ok());
    assert_eq!(at(0xfff, 1), Err(AccessFault::Bounds));
    assert_eq!(at(0x1000, 0x101), Err(AccessFault::Bounds));
    assert_eq!(at(0x10ff, 2), Err(AccessFault::Bounds));
    assert_eq!(at(u64::MAX, 2), Err(AccessFault::Bounds));
    assert_eq!(at(0x1001, usize::MAX), Err(AccessFault::Bounds));
}

#[test]
fn an_lkey_is_never_an_rkey() {
    let (t, k) = table();
    assert_ne!(k.lkey.0, k.rkey.0);
    assert_eq!(
        t.check_remote(Rkey(k.lkey.0), ME, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    assert_eq!(
        t.check_local(Lkey(k.rkey.0), PD, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
}

/// For programs that send one for the other. More regions than there are hints; windows open nothing locally all the same.
#[test]
fn where_keys_are_equal_each_opens_both_ways() {
    let mut t = MrTable::new(11).with_equal_keys(true);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let init = |n: u64| MrInit {
        pd: PD,
        access,
        host_addr: n << 12,
        iova: n << 12,
        len: 64,
        remote_invalidate: false,
    };
    let all: Vec<_> = (1..3000)
        .map(|n| (n << 12, t.register(init(n)).expect("room")))
        .collect();
    let windows = [(); 8].map(|()| t.alloc_mw(PD, MwType::Type1).expect("room"));
    let opens = |t: &MrTable, key: u32, addr| {
        let local = t.check_local(Lkey(key), PD, addr, 8, Access::LOCAL_WRITE);
        let remote = t.check_remote(Rkey(key), ME, addr, 8, Access::REMOTE_WRITE);
        assert_eq!(local.is_ok(), remote.is_ok());
        local.is_ok()
    };
    for (addr, keys) in &all {
        assert_eq!(keys.lkey.0, keys.rkey.0);
        assert!(opens(&t, keys.rkey.0, *addr) && !opens(&t, keys.rkey.0 ^ 1, *addr));
    }
    for key in windows {
        assert!(!opens(&t, key.0, 1 << 12));
        assert!(t.dealloc_mw(key));
    }
    for (addr, keys) in &all {
        assert!(t.deregister(keys.lkey) && !opens(&t, keys.lkey.0, *addr));
        assert!(!t.deregister(keys.lkey));
    }
    assert!(t.is_empty());
}

#[test]
fn all_32_bits_of_a_key_count() {
    let (t, k) = table();
    for bit in 0..32 {
        let forged = Rkey(k.rkey.0 ^ (1 << bit));
        assert_eq!(
            t.check_remote(forged, ME, 0x1000, 1, Access::NONE),
            Err(AccessFault::Key),
            "bit {bit}"
        );
    }
}

#[test]
fn a_key_dies_with_its_region() {
    let (mut t, k) = table();
    assert!(t.deregister(k.lkey));
    assert!(!t.deregister(k.lkey));
    assert_eq!(
        t.check_local(k.lkey, PD, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    // The slot is used again, under other keys.
    let again = t.register(init(Access(0xf))).expect("fits");
    assert_ne!(again.rkey, k.rkey);
    assert_eq!(
        t.check_remote(k.rkey, ME, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    assert_eq!(t.len(), 1);
}

#[test]
fn pd_and_rights() {
    let mut t = MrTable::new(9);
    let k = t.register(init(Access::REMOTE_READ)).expect("fits");
    let check = |pd, need| t.check_remote(k.rkey, Accessor { pd, ..ME }, 0x1000, 1, need);
    assert!(check(PD, Access::REMOTE_READ).is_ok());
    assert_eq!(check(PdId(2), Access::REMOTE_READ), Err(AccessFault::Pd));
    assert_eq!(check(PD, Access::REMOTE_WRITE), Err(AccessFault::Access));
}

#[test]
fn registrations_that_contradict_themselves() {
    let mut t = MrTable::new(9);
    assert_eq!(
        t.register(init(Access::REMOTE_WRITE)),
        Err(RegisterError::RemoteWithoutLocalWrite)
    );
    assert_eq!(
        t.register(init(Access(0x4000))),
        Err(RegisterError::UnknownAccess(0x4000))
    );
    assert!(
        t.register(init(Access(1 << 20))).is_ok(),
        "optional bits are ignored"
    );
    let wraps = MrInit {
        len: u64::MAX,
        ..init(Access::NONE)
    };
    assert_eq!(t.register(wraps), Err(RegisterError::Wraps));
}

#[test]
fn invalidation_takes_the_rkey_and_leaves_the_lkey() {
    let mut t = MrTable::new(9);
    let k = t
        .register(MrInit {
            remote_invalidate: true,
            ..init(Access(0xf))
        })
        .expect("fits");
    assert_eq!(
        t.check_invalidate(k.rkey, Accessor { pd: PdId(5), ..ME }),
        Err(AccessFault::Pd)
    );
    t.check_invalidate(k.rkey, ME).expect("allowed");
    t.invalidate(k.rkey);
    assert_eq!(
        t.check_remote(k.rkey, ME, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    assert!(t.check_local(k.lkey, PD, 0x1000, 1, Access::NONE).is_ok());
    let (plain, keys) = table();
    assert_eq!(
        plain.check_invalidate(keys.rkey, ME),
        Err(AccessFault::Access)
    );
}

#[test]
fn a_null_region_takes_every_address_and_has_two_faces() {
    let mut t = MrTable::new(3);
    let lkey = t.register_null(PD, 0x5_0000).expect("fits");
    let at = |pd, addr, len, need| t.check_local(lkey, pd, addr, len, need);
    let zeros = at(PD, u64::MAX - 7, 4096, Access::NONE).expect("any address");
    assert_eq!((zeros.host_addr(), zeros.len()), (0x5_0000, 4096));
    let gone = at(PD, 0, 4096, Access::LOCAL_WRITE).expect("any address");
    assert_eq!((gone.host_addr(), gone.len()), (0x6_0000, 4096));
    let whole = at(PD, 0, usize::MAX, Access::NONE).expect("any length");
    assert_eq!(
        whole.len(),
        MrTable::NULL_BYTES,
        "and no span beyond the scratch"
    );
    assert_eq!(at(PdId(2), 0, 1, Access::NONE), Err(AccessFault::Pd));
    assert!(t.deregister(lkey));
}

#[test]
fn the_whole_address_space_is_a_region() {
    let mut t = MrTable::new(3);
    let all = MrInit {
        access: Access(0xf) | Access::ON_DEMAND | Access::HUGETLB | Access::RELAXED_ORDERING,
        host_addr: 0,
        iova: 0,
        len: u64::MAX,
        ..init(Access::NONE)
    };
    let k = t.register(all).expect("fits");
    let span = t.check_remote(k.rkey, ME, 0x1234, 8, Access::REMOTE_WRITE);
    assert_eq!(span.expect("inside").host_addr(), 0x1234);
    let last = t.check_remote(k.rkey, ME, u64::MAX - 7, 8, Access::REMOTE_WRITE);
    assert_eq!(
        last,
        Err(AccessFault::Bounds),
        "one byte more than there is"
    );
}

#[test]
fn a_region_is_registered_again_in_place() {
    let (mut t, k) = table();
    let change = MrChange {
        translation: Some((0x70_0000, 0x40_0000, 16)),
        ..MrChange::default()
    };
    assert_eq!(t.reregister(k.lkey, &change), Ok(k));
    let read = |t: &MrTable, addr| t.check_remote(k.rkey, ME, addr, 8, Access::REMOTE_READ);
    assert_eq!(read(&t, 0x1000), Err(AccessFault::Bounds));
    assert_eq!(read(&t, 0x40_0008).expect("inside").host_addr(), 0x70_0008);
    let change = MrChange {
        access: Some(Access::REMOTE_WRITE),
        pd: Some(PdId(9)),
        ..MrChange::default()
    };
    let refused = t.reregister(k.lkey, &change);
    assert_eq!(refused, Err(RegisterError::RemoteWithoutLocalWrite));
    assert!(read(&t, 0x40_0000).is_ok(), "nothing has changed");
    let change = MrChange {
        access: Some(Access::LOCAL_WRITE),
        pd: Some(PdId(9)),
        ..MrChange::default()
    };
    t.reregister(k.lkey, &change).expect("fits");
    assert_eq!(read(&t, 0x40_0000), Err(AccessFault::Pd));
    let there = t.check_local(k.lkey, PdId(9), 0x40_0000, 16, Access::LOCAL_WRITE);
    assert!(there.is_ok());
    t.deregister(k.lkey);
    assert_eq!(t.reregister(k.lkey, &change), Err(RegisterError::NoRegion));
}

#[test]
fn keys_come_back_late_also_when_the_table_shrank_in_between() {
    const MANY: usize = 2000;
    let (mut t, stays) = table();
    let mut given = std::collections::BTreeSet::new();
    // Each round uses every slot once; a slot has 64 keys, of which the first is not used at first.
    for round in 0..63 {
        let all: Vec<_> = (0..MANY)
            .map(|_| t.register(init(Access(0xf))).expect("fits"))
            .collect();
        for keys in all {
            assert!(given.insert(keys.lkey.0), "{keys:?} again in round {round}");
            t.deregister(keys.lkey);
            let gone = t.check_local(keys.lkey, PD, 0x1000, 1, Access::NONE);
            assert_eq!(gone, Err(AccessFault::Key));
        }
        t.shrink();
        assert_eq!(t.slots.len(), Occupancy::KEPT, "after round {round}");
        let there = t.check_local(stays.lkey, PD, 0x1000, 1, Access::NONE);
        assert!(there.is_ok());
    }
    assert!(t.slots.capacity() + t.free.capacity() < 4 * Occupancy::KEPT);
}
