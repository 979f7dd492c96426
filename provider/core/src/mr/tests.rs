//! Keys, bounds and rights of regions.

use super::*;

const PD: PdId = PdId(1);

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
        .check_remote(k.rkey, PD, 0x1010, 8, Access::REMOTE_READ)
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
        t.check_remote(Rkey(k.lkey.0), PD, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    assert_eq!(
        t.check_local(Lkey(k.rkey.0), PD, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
}

#[test]
fn all_32_bits_of_a_key_count() {
    let (t, k) = table();
    for bit in 0..32 {
        let forged = Rkey(k.rkey.0 ^ (1 << bit));
        assert_eq!(
            t.check_remote(forged, PD, 0x1000, 1, Access::NONE),
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
        t.check_remote(k.rkey, PD, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    assert_eq!(t.len(), 1);
}

#[test]
fn pd_and_rights() {
    let mut t = MrTable::new(9);
    let k = t.register(init(Access::REMOTE_READ)).expect("fits");
    let check = |pd, need| t.check_remote(k.rkey, pd, 0x1000, 1, need);
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
    assert_eq!(t.check_invalidate(k.rkey, PdId(5)), Err(AccessFault::Pd));
    t.check_invalidate(k.rkey, PD).expect("allowed");
    t.invalidate(k.rkey);
    assert_eq!(
        t.check_remote(k.rkey, PD, 0x1000, 1, Access::NONE),
        Err(AccessFault::Key)
    );
    assert!(t.check_local(k.lkey, PD, 0x1000, 1, Access::NONE).is_ok());
    let (plain, keys) = table();
    assert_eq!(
        plain.check_invalidate(keys.rkey, PD),
        Err(AccessFault::Access)
    );
}
