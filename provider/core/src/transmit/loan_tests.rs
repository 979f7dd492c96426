//! Batches that have memory of others.

use core::any::Any;
use core::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

#[derive(Debug)]
struct Plain(Vec<u8>);

impl LentMemory for Plain {
    fn part_mut(&mut self, part: Range<usize>) -> &mut [u8] {
        &mut self.0[part]
    }
}

const BEFORE: usize = 8;
const ALIGN: usize = 64;
const LEN: usize = 32 << 10;
const RUN_MAX: usize = 16 << 10;

fn dest(n: u8, in_memory: bool) -> TxDest {
    TxDest {
        local: Ipv4Addr::LOCALHOST.into(),
        remote: Ipv4Addr::new(127, 0, 0, n).into(),
        tos: 0,
        source_port: 4791,
        chunk: QpnChunk(0),
        in_memory,
        near_port: None,
    }
}

fn plain(memory: Option<Box<dyn LentMemory>>) -> Vec<u8> {
    let memory: Box<dyn Any> = memory.expect("it was lent");
    memory.downcast::<Plain>().expect("this one").0
}

fn lend(batch: &mut TxBatch) {
    batch.lend(Loan {
        memory: Box::new(Plain(vec![0; LEN])),
        len: LEN,
        before: BEFORE,
        align: ALIGN,
        run_max: RUN_MAX,
        to: (dest(1, true).remote, QpnChunk(0)),
    });
}

proptest! {
    /// Whatever is gathered: packets for the memory that is lent lie there, in order, each run behind room for a word at a multiple of
    /// a line; the others leave in a batch without any of those; and all bytes are found at either place, also after they were
    /// brought home.
    #[test]
    fn packets_lie_where_they_belong(
        packets in proptest::collection::vec((1u8..3, any::<bool>(), prop_oneof![Just(16usize), Just(1040), Just(4112), 16usize..4200, Just(40_000)], any::<bool>()), 0..60),
        segments_max in 1usize..=128,
        comes_home: bool,
    ) {
        let limits = RunLimits { segments_max, bytes_max: RunLimits::UDP_PAYLOAD_MAX };
        let mut batch = TxBatch::new(128 << 10, limits);
        lend(&mut batch);
        let mut sent = Vec::new();
        for (to, in_memory, len, is_kept) in packets {
            let dest = dest(to, in_memory);
            let belongs = to == 1 && in_memory && len <= LEN - BEFORE;
            let Some(slot) = batch.reserve(&dest, len) else {
                prop_assert!(!batch.is_empty(), "an empty batch takes any packet");
                prop_assert!(batch.is_away() != belongs || batch.used() + ALIGN + BEFORE + len > batch.capacity());
                break;
            };
            slot.bytes.fill(if is_kept { sent.len() as u8 + 1 } else { 0 });
            if is_kept {
                sent.push((dest, len));
                if sent.len() == 1 {
                    prop_assert_eq!(batch.is_away(), belongs);
                }
                prop_assert_eq!(batch.last_from(batch.used() - 1), vec![sent.len() as u8; len]);
            } else {
                batch.retract(len);
            }
        }
        prop_assert_eq!(batch.packets(), sent.len());
        let (is_away, runs) = (batch.is_away(), batch.runs().to_vec());
        let bytes = if is_away && !comes_home {
            plain(batch.end_loan())
        } else {
            let lent = plain(batch.take_home());
            prop_assert!(is_away || lent.iter().all(|&byte| byte == 0) || sent.is_empty());
            batch.bytes().to_vec()
        };
        let (mut numbers, mut at) = (1u8.., 0);
        for run in &runs {
            let start = if is_away { at + BEFORE } else { at };
            prop_assert_eq!(run.range.start, start);
            prop_assert!(!is_away || run.segments() == 1 || run.range.len() <= RUN_MAX);
            for packet in run.packets(&bytes[run.range.clone()]) {
                let number = numbers.next().expect("few packets");
                prop_assert_eq!((run.dest, packet.len()), sent[usize::from(number) - 1]);
                prop_assert!(packet.iter().all(|&byte| byte == number));
            }
            at = if is_away { run.range.end.next_multiple_of(ALIGN) } else { run.range.end };
        }
    }
}

#[test]
fn packets_for_elsewhere_do_not_end_a_loan() {
    let mut batch = TxBatch::new(64 << 10, RunLimits::SINGLE);
    lend(&mut batch);
    assert!(batch.reserve(&dest(2, true), 100).is_some());
    assert!(!batch.is_away());
    assert_eq!(batch.bytes().len(), 100);
    batch.clear();
    assert!(batch.is_away());
    assert!(batch.reserve(&dest(1, true), 100).is_some());
    assert!(batch.reserve(&dest(2, true), 100).is_none());
    assert!(batch.reserve(&dest(1, false), 100).is_none());
    assert_eq!(batch.runs()[0].range, 8..108);
}
