//! Short messages that are alike are sent in rows, which must make no difference: the same programs, where packets leave in trains and
//! where each leaves by itself.

use proptest::prelude::*;

use crate::middle::{Post, Program, faults, run};
use urxe_core::qp::attr::Mtu;
use urxe_core::work::{SendFlags, WrOpcode};

/// Bytes of a message, at most: more than one MTU, at times.
const LEN_MAX: u32 = 500;
const INLINE_MAX: u32 = 256;

fn posts() -> impl Strategy<Value = Post> {
    let opcode = prop_oneof![
        4 => Just(WrOpcode::RdmaWrite),
        4 => Just(WrOpcode::Send),
        1 => Just(WrOpcode::SendWithImm),
        1 => Just(WrOpcode::RdmaWriteWithImm),
        1 => Just(WrOpcode::RdmaRead),
    ];
    let flags = || {
        prop_oneof![
            4 => Just(SendFlags::SIGNALED),
            4 => Just(SendFlags::NONE),
            1 => Just(SendFlags(SendFlags::SIGNALED.0 | SendFlags::SOLICITED.0)),
            1 => Just(SendFlags(SendFlags::SIGNALED.0 | SendFlags::FENCE.0)),
        ]
    };
    let len = prop_oneof![2 => Just(8), 1 => 0..=16u32, 1 => 0..LEN_MAX];
    let split = proptest::option::weighted(0.2, 0..LEN_MAX);
    let missing = prop_oneof![4 => Just(0u32), 1 => 1..3u32];
    let data = (opcode, len, split, any::<bool>());
    (0..2usize, data, 1..40u32, [flags(), flags()], missing).prop_map(
        |(side, (opcode, len, split, inline), count, flags, missing)| Post {
            side,
            opcode,
            len,
            split,
            count,
            flags,
            is_inline: inline && len <= INLINE_MAX && opcode != WrOpcode::RdmaRead,
            missing,
        },
    )
}

fn programs() -> impl Strategy<Value = Program> {
    let gone = proptest::option::weighted(0.2, (0..2usize, 0..4 * u64::from(LEN_MAX)));
    let mtu = prop_oneof![Just(Mtu::Mtu256), Just(Mtu::Mtu1024), Just(Mtu::Mtu4096)];
    let batch = prop_oneof![Just(128usize << 10), 4096..16_000usize];
    let posts = proptest::collection::vec(posts(), 1..7);
    let room = (1024..100_000u32, batch);
    (posts, faults(), gone, mtu, room, any::<u64>()).prop_map(
        |(posts, faults, gone, mtu, (window, batch), seed)| Program {
            posts,
            faults,
            gone,
            mtu,
            window,
            batch,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn rows_make_no_difference(program in programs()) {
        let (rows, single) = (run(&program, 64), run(&program, 1));
        prop_assert_eq!(&rows.0, &single.0);
        prop_assert_eq!(&rows.1, &single.1);
        prop_assert!(rows.2 == single.2, "other bytes");
    }
}
