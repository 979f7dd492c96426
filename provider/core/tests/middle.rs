//! Packets in the middle of a message are sent and taken in rows, which must make no difference: the same programs on the same wire, where
//! packets leave in trains and where each leaves by itself.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use crate::script::{forge_with, line, sge};
use crate::support::trains::Train;
use crate::support::*;
use urxe_core::Time;
use urxe_core::cq::Cqe;
use urxe_core::qp::attr::Mtu;
use urxe_core::transmit::RunLimits;
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Aeth, Bth, CreditCode, IcrcPolicy, Msn, Opcode, Psn, Reth, Syndrome};

/// Where the messages are on the sending side, and where they go.
const FROM: u64 = 0x20000;
const TO: u64 = 0x10000;
/// Bytes of a message, at most.
const LEN_MAX: u32 = 20_000;

/// Messages that are alike, and lie one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub side: usize,
    pub opcode: WrOpcode,
    pub len: u32,
    /// Bytes of the first entry of its list.
    pub split: Option<u32>,
    pub count: u32,
    /// Flags of every second one, and of the others.
    pub flags: [SendFlags; 2],
    pub is_inline: bool,
    /// Receives that are missing for them.
    pub missing: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub posts: Vec<Post>,
    pub faults: Faults,
    /// Memory of a side is gone from so many bytes of the messages on.
    pub gone: Option<(usize, u64)>,
    pub mtu: Mtu,
    pub window: u32,
    pub batch: usize,
    pub seed: u64,
}

/// What is seen at the end: completions and counters of both sides, the bytes, and the time.
type Seen = (Vec<Vec<Cqe>>, Vec<Vec<u64>>, Vec<Vec<u8>>, Time);

pub(crate) fn run(program: &Program, segments_max: usize) -> Seen {
    let mut settings = Settings {
        batch_bytes: program.batch,
        ..Settings::default()
    };
    (settings.cap.max_send_wr, settings.cap.max_recv_wr) = (256, 256);
    if program.posts.iter().any(|post| post.missing > 0) {
        // It does not wait for them for ever.
        settings.rnr_retry = 2;
    }
    settings.limits = RunLimits {
        segments_max,
        ..settings.limits
    };
    (settings.mtu, settings.window_bytes) = (program.mtu, program.window);
    settings.memory = 0x40000;
    let mut pair = Pair::new(&settings, program.seed);
    pair.faults = program.faults;
    for side in 0..2 {
        let pattern: Vec<u8> = (0..LEN_MAX).map(|n| (n * 7 + n / 251 + 1) as u8).collect();
        pair.nodes[side].memory.write(FROM, &pattern);
    }
    if let Some((side, at)) = program.gone {
        let base = if side == 0 { FROM } else { TO };
        pair.nodes[side].memory.gone_from.set(base + at);
    }
    for (number, post) in program.posts.iter().enumerate() {
        for at in 0..post.count {
            post_one(&mut pair, number as u64, post, at);
        }
    }
    pair.run();
    let ends = [0, 1].map(|side| {
        let node = &mut pair.nodes[side];
        let done = [SEND_CQ, RECV_CQ].map(|cq| node.take(cq)).concat();
        let stats = node.shard.stats().iter().map(|(_, count)| count).collect();
        (done, stats, node.memory.read(TO, LEN_MAX as usize))
    });
    let [(done, stats, bytes), (done_1, stats_1, bytes_1)] = ends;
    (
        vec![done, done_1],
        vec![stats, stats_1],
        vec![bytes, bytes_1],
        pair.now,
    )
}

/// Posts message `at` of several, and its receive.
fn post_one(pair: &mut Pair, wr_id: u64, post: &Post, at: u32) {
    let keys = [0, 1].map(|side| pair.nodes[side].keys);
    let offset = u64::from(at * post.len);
    let sge = |addr, length| Sge {
        addr: IOVA + addr + offset,
        length,
        lkey: keys[post.side].lkey,
    };
    if takes_receive(post.opcode) && at >= post.missing {
        let sges = [Sge {
            addr: IOVA + TO + offset,
            length: LEN_MAX,
            lkey: keys[1 - post.side].lkey,
        }];
        pair.post_recv(1 - post.side, &RecvWr { wr_id, sges: &sges });
    }
    let place = match post.opcode {
        WrOpcode::RdmaRead => TO,
        _ => FROM,
    };
    let first = post.split.unwrap_or(post.len).min(post.len);
    let sges = [
        sge(place, first),
        sge(place + u64::from(first), post.len - first),
    ];
    let mut wr = SendWr::new(wr_id, post.opcode, WrData::Sges(&sges));
    let bytes: Vec<u8> = (0..post.len).map(|n| (n + at) as u8).collect();
    if post.is_inline {
        wr.data = WrData::Inline(&bytes);
    } else if post.split.is_none() {
        wr.data = WrData::Sges(&sges[..1]);
    }
    wr.flags = post.flags[at as usize % 2];
    wr.remote_addr = IOVA + offset + if place == TO { FROM } else { TO };
    wr.rkey = keys[1 - post.side].rkey;
    pair.post_send(post.side, &wr);
}

fn takes_receive(opcode: WrOpcode) -> bool {
    matches!(
        opcode,
        WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::RdmaWriteWithImm
    )
}

pub(crate) fn faults() -> impl Strategy<Value = Faults> {
    let rate = || prop_oneof![2 => Just(0u64), 1 => 1..60u64];
    (rate(), rate(), rate(), rate()).prop_map(|(lose, duplicate, corrupt, reorder)| Faults {
        lose,
        duplicate,
        corrupt,
        reorder,
        delay_ns: 1000,
        ..Faults::default()
    })
}

fn programs() -> impl Strategy<Value = Program> {
    let opcode = prop_oneof![
        Just(WrOpcode::RdmaWrite),
        Just(WrOpcode::Send),
        Just(WrOpcode::RdmaRead)
    ];
    let split = prop_oneof![3 => Just(None), 1 => (0..LEN_MAX).prop_map(Some)];
    let post = (0..2usize, opcode, 0..LEN_MAX, split).prop_map(|(side, opcode, len, split)| Post {
        side,
        opcode,
        len,
        split,
        count: 1,
        flags: [SendFlags::SIGNALED; 2],
        is_inline: false,
        missing: 0,
    });
    let faults = faults();
    let gone = proptest::option::weighted(0.3, (0..2usize, 0..u64::from(LEN_MAX)));
    let mtu = prop_oneof![Just(Mtu::Mtu256), Just(Mtu::Mtu1024), Just(Mtu::Mtu4096)];
    let posts = proptest::collection::vec(post, 1..6);
    (posts, faults, gone, mtu, 2048..200_000u32, any::<u64>()).prop_map(
        |(posts, faults, gone, mtu, window, seed)| Program {
            posts,
            faults,
            gone,
            mtu,
            window,
            batch: 128 << 10,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn rows_make_no_difference(program in programs()) {
        let rows = run(&program, 64);
        ROWS.set(Rows::None);
        let trains = run(&program, 64);
        ROWS.set(Rows::Own);
        prop_assert_eq!(&rows.0, &trains.0);
        prop_assert_eq!(&rows.1, &trains.1);
        prop_assert!(rows.2 == trains.2, "other bytes");
        prop_assert_eq!(rows.3, trains.3);
        // Packets that come by themselves may leave a timer behind that nothing needs: the time at the end is another.
        let single = run(&program, 1);
        prop_assert_eq!(&rows.0, &single.0);
        prop_assert_eq!(&rows.1, &single.1);
        prop_assert!(rows.2 == single.2, "other bytes");
    }
}

/// What is out of the ordinary about a packet.
#[derive(Clone, Copy, Debug)]
enum Oddity {
    /// Nothing.
    None,
    Opcode(Opcode),
    Psn(i32),
    /// A byte of the header is another one.
    Byte(usize, u8),
}

#[derive(Clone, Debug)]
struct Strange {
    opcode: WrOpcode,
    /// Packets of the message, with the first and the last one.
    packets: u32,
    /// Those of the train that follows the first one.
    train: Vec<Oddity>,
}

const MTU: u32 = 256;

/// Has a peer send such packets; what came of it.
fn suffer(strange: &Strange) -> (Vec<Cqe>, Vec<u64>, Vec<u8>, String, Vec<String>) {
    let settings = Settings {
        icrc: IcrcPolicy::Skip,
        read_chunk_bytes: 16 * MTU,
        ..Settings::default()
    };
    let mut p = Pair::new(&settings, 1);
    let (said, len) = (Rc::new(RefCell::new(Vec::new())), strange.packets * MTU);
    let sink = said.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        if from == 1 {
            sink.borrow_mut().push(line(bytes));
        }
        Verdict::Drop
    }));
    let (first, middle) = match strange.opcode {
        WrOpcode::RdmaWrite => (Opcode::RC_WRITE_FIRST, Opcode::RC_WRITE_MIDDLE),
        WrOpcode::Send => (Opcode::RC_SEND_FIRST, Opcode::RC_SEND_MIDDLE),
        _ => (
            Opcode::RC_READ_RESPONSE_FIRST,
            Opcode::RC_READ_RESPONSE_MIDDLE,
        ),
    };
    let mut psn = settings.psn[0];
    let sges = [sge(&p, 1, TO, len)];
    if strange.opcode == WrOpcode::Send {
        p.post_recv(
            1,
            &RecvWr {
                wr_id: 1,
                sges: &sges,
            },
        );
    }
    if strange.opcode == WrOpcode::RdmaRead {
        let mut wr = SendWr::new(1, WrOpcode::RdmaRead, WrData::Sges(&sges));
        (wr.remote_addr, wr.rkey) = (IOVA, p.nodes[0].keys.rkey);
        p.post_send(1, &wr);
        p.transmit();
        psn = settings.psn[1];
    }
    let dest = p.nodes[1].qpn;
    let payload = |number: u32| [number as u8 + 1; MTU as usize];
    let bth = Bth::new(first, dest, Psn::new(psn));
    let reth = Reth {
        va: IOVA + TO,
        rkey: p.nodes[1].keys.rkey,
        dma_len: len,
    };
    let aeth = Aeth {
        syndrome: Syndrome::ack(CreditCode::encode(1)),
        msn: Msn::new(0),
    };
    let packet = forge_with(&p, 0, &bth, &payload(0), |w| match strange.opcode {
        WrOpcode::RdmaWrite => w.reth(&reth),
        WrOpcode::Send => {}
        _ => w.aeth(&aeth),
    });
    p.deliver(1, 0, &packet);
    let train: Vec<Vec<u8>> = (1..)
        .zip(&strange.train)
        .map(|(number, oddity)| {
            let mut bth = Bth::new(middle, dest, Psn::new(psn + number));
            bth.ack_req = number % 5 == 0;
            match *oddity {
                Oddity::Opcode(opcode) => bth.opcode = opcode,
                Oddity::Psn(off) => bth.psn = Psn::new((psn + number).wrapping_add_signed(off)),
                Oddity::None | Oddity::Byte(..) => {}
            }
            let mut packet = forge_with(&p, 0, &bth, &payload(number), |_| ());
            if let Oddity::Byte(at, bits) = *oddity {
                packet[at] ^= bits;
            }
            packet
        })
        .collect();
    p.deliver_train(&Train::of_all(1, &train));
    p.transmit();
    let node = &mut p.nodes[1];
    let done = [SEND_CQ, RECV_CQ].map(|cq| node.take(cq)).concat();
    let stats = node.shard.stats().iter().map(|(_, count)| count).collect();
    let bytes = node.memory.read(TO, (len + 2 * MTU) as usize);
    // Each packet fills its place with its number.
    let ends = bytes
        .chunks(MTU as usize)
        .flat_map(|place| [place[0], place[MTU as usize - 1]]);
    let bytes = ends.collect();
    (
        done,
        stats,
        bytes,
        format!("{:?}", node.state()),
        said.take(),
    )
}

fn stranges() -> impl Strategy<Value = Strange> {
    let opcode = prop_oneof![
        Just(WrOpcode::RdmaWrite),
        Just(WrOpcode::Send),
        Just(WrOpcode::RdmaRead)
    ];
    let others = [
        Opcode::RC_WRITE_MIDDLE,
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_READ_RESPONSE_MIDDLE,
        Opcode::RC_WRITE_LAST,
        Opcode::RC_SEND_LAST,
        Opcode::RC_SEND_FIRST,
        Opcode::UC_SEND_MIDDLE,
    ];
    let oddity = prop_oneof![
        30 => Just(Oddity::None),
        1 => proptest::sample::select(others.to_vec()).prop_map(Oddity::Opcode),
        1 => (-2..3i32).prop_map(Oddity::Psn),
        1 => Just(Oddity::Byte(1, 0x10)),
        1 => (0..12usize, 1..=255u8).prop_map(|(at, bits)| Oddity::Byte(at, bits)),
    ];
    let train = proptest::collection::vec(oddity, 1..12);
    (opcode, 2..14u32, train).prop_map(|(opcode, packets, train)| Strange {
        opcode,
        packets,
        train,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Whatever is wrong with a packet, it is dropped, refused or taken as if it came by itself.
    #[test]
    fn what_does_not_fit_ends_a_row(strange in stranges()) {
        ROWS.set(Rows::None);
        let trains = suffer(&strange);
        for rows in [Rows::Shared, Rows::Own] {
            ROWS.set(rows);
            prop_assert_eq!(suffer(&strange), trains.clone(), "{:?}", rows);
        }
    }
}
