use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use proptest::prelude::*;

use super::*;
use crate::layout::Geometry;
use crate::memory::Memory;
use crate::sync::Ordering;

const SMALL: Geometry = Geometry {
    chunk: 512,
    chunks: 8,
    tell: 128,
};

fn pair(geometry: Geometry) -> (Producer, Consumer) {
    let memory = Memory::shared(geometry).expect("memory");
    let memory = || memory().expect("a mapping");
    let producer = Producer::on(memory(), geometry);
    (producer, Consumer::on(memory(), geometry))
}

fn mark(tag: u16) -> Mark {
    Mark {
        kind: (tag % 64) as u8,
        tag,
        size: !tag,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    /// A window of so many bytes, and records of these lengths in it.
    Lend(usize, Vec<usize>),
    Pop,
    /// Looked at twice, and left or taken.
    Peek(bool),
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0usize..100).prop_map(Step::Push),
        2 => (64usize..600, prop::collection::vec(0usize..100, 0..4)).prop_map(|(len, records)| Step::Lend(len, records)),
        3 => Just(Step::Pop),
        2 => any::<bool>().prop_map(Step::Peek),
        1 => Just(Step::Release),
    ]
}

proptest! {
    /// Whatever is written is read, once and in order; what does not fit is refused, and nothing else is.
    #[test]
    fn what_goes_in_comes_out(steps in prop::collection::vec(step(), 0..400)) {
        let (mut producer, mut consumer) = pair(SMALL);
        let mut expected = VecDeque::new();
        let mut out = [0; RECORD_MAX];
        // Where the records ended that are read, and those that are not.
        let (mut read, mut unread_ends) = (None, VecDeque::new());
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(len) => {
                    let bytes = vec![n as u8; len];
                    let unread: usize = expected.iter().map(|(_, b): &(_, Vec<u8>)| b.len() + 72).sum();
                    match producer.push(mark(n as u16), &bytes) {
                        Push::Done => {
                            expected.push_back((n as u16, bytes));
                            unread_ends.push_back(producer.position());
                        }
                        Push::Full => prop_assert!(unread > 7 * 256, "refused with {unread} bytes in it"),
                        Push::Closed => prop_assert!(false, "nobody closed it"),
                    }
                }
                Step::Lend(len, records) => {
                    let mut window = producer.window();
                    if !producer.lend(&mut window, 64, len) {
                        let unread: usize = expected.iter().map(|(_, b): &(_, Vec<u8>)| b.len() + 72).sum();
                        prop_assert!(unread > 7 * 256, "refused with {unread} bytes in it");
                        continue;
                    }
                    prop_assert!((64..=len).contains(&window.len()));
                    let mut at = 0;
                    let mut made = Vec::new();
                    for len in records {
                        let start = at + Window::BEFORE;
                        if start + len > window.len() {
                            break;
                        }
                        window.part_mut(start..start + len).fill(n as u8);
                        at = (start + len).next_multiple_of(Window::ALIGN);
                        made.push(len);
                    }
                    producer.end_loan(&mut window);
                    for len in made {
                        producer.publish(mark(n as u16), len);
                        expected.push_back((n as u16, vec![n as u8; len]));
                        unread_ends.push_back(producer.position());
                    }
                }
                Step::Pop => match (consumer.pop(&mut out), expected.pop_front()) {
                    (Pop::Empty, None) => {
                        consumer.release();
                        prop_assert!(producer.is_drained());
                    }
                    (Pop::Record { len, mark: found }, Some((tag, bytes))) => {
                        prop_assert_eq!(found, mark(tag));
                        prop_assert_eq!(&out[..len], &bytes[..]);
                        read = unread_ends.pop_front();
                    }
                    other => prop_assert!(false, "{other:?}"),
                },
                Step::Peek(takes) => {
                    let pop = consumer.peek();
                    prop_assert_eq!(consumer.peek(), pop);
                    let Some((tag, bytes)) = expected.front() else {
                        prop_assert_eq!(pop, Pop::Empty);
                        continue;
                    };
                    prop_assert_eq!(pop, Pop::Record { len: bytes.len(), mark: mark(*tag) });
                    let words = consumer.words().iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
                    let words: Vec<u8> = words.flatten().collect();
                    prop_assert_eq!(&words[..], &bytes[..bytes.len() / 4 * 4]);
                    let from = bytes.len() / 3;
                    consumer.copy(from, &mut out[from..bytes.len()]);
                    prop_assert_eq!(&out[from..bytes.len()], &bytes[from..]);
                    if takes {
                        consumer.advance();
                        expected.pop_front();
                        read = unread_ends.pop_front();
                    }
                }
                Step::Release => {
                    consumer.release();
                    prop_assert!(read.is_none_or(|end| producer.has_read(end)));
                    prop_assert!(unread_ends.iter().all(|&end| !producer.has_read(end)));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_script_finds_nothing(script in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::script(&script);
    }

    /// Without what damages the memory.
    #[test]
    fn a_script_of_two_sides_finds_nothing(steps in prop::collection::vec((0u8..12, any::<[u8; 2]>()), 0..600)) {
        let steps = steps.into_iter().flat_map(|(step, [low, high])| match step {
            0..4 => vec![step, low, high],
            _ => vec![step],
        });
        fuzzing::script(&steps.collect::<Vec<u8>>());
    }
}

#[test]
fn a_pair_that_keeps_up_stays_at_the_beginning() {
    let (mut producer, mut consumer) = pair(SMALL);
    let mut out = [0; 256];
    for n in 0..if cfg!(miri) { 100 } else { 10_000 } {
        assert_eq!(producer.push(mark(n), &[n as u8; 100]), Push::Done);
        let found = Pop::Record {
            len: 100,
            mark: mark(n),
        };
        assert_eq!(consumer.pop(&mut out), found);
        consumer.release();
        assert!(producer.chunk() < 2, "{}", producer.chunk());
    }
}

#[test]
fn a_consumer_that_does_not_read_leaves_all_of_it_to_be_filled() {
    let (mut producer, mut consumer) = pair(SMALL);
    let count = (0..)
        .take_while(|&n| producer.push(mark(n), &[1; 56]) == Push::Done)
        .count();
    assert_eq!(count, 8 * (512 / 64 - 1));
    let mut out = [0; 64];
    for n in 0..count {
        assert!(
            matches!(consumer.pop(&mut out), Pop::Record { mark: m, .. } if m == mark(n as u16))
        );
    }
    assert_eq!(consumer.pop(&mut out), Pop::Empty);
    consumer.release();
    assert!(producer.is_drained());
    assert_eq!(producer.push(mark(0), &[2; 56]), Push::Done);
}

#[test]
fn each_side_sees_that_the_other_is_gone() {
    let (mut producer, consumer) = pair(SMALL);
    assert!(!producer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());
    let pushes = (0..100).map(|n| producer.push(mark(n), &[0; 100]));
    assert_eq!(pushes.last(), Some(Push::Closed));

    let (mut producer, mut consumer) = pair(SMALL);
    assert_eq!(producer.push(mark(1), b"last words"), Push::Done);
    drop(producer);
    let mut out = [0; 64];
    let last = Pop::Record {
        len: 10,
        mark: mark(1),
    };
    assert_eq!(consumer.pop(&mut out), last);
    assert_eq!(consumer.pop(&mut out), Pop::Closed);
    assert!(!consumer.doze(), "there is something to see");
}

/// Either a consumer opens it or the producer takes it back, and the other one is told.
#[test]
fn a_ring_has_one_reader_or_none() {
    let (producer, memory) = Producer::create_sized(SMALL).expect("memory");
    let again = || memory.try_clone().expect("a descriptor");
    let mut producer = producer;
    assert!(!producer.has_reader());
    let consumer = Consumer::open_sized(again(), SMALL).expect("it is the first");
    assert!(producer.has_reader() && !producer.take_back());
    let error = Consumer::open_sized(again(), SMALL).expect_err("it has one");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    assert!(!producer.is_closed(), "the first one reads on");
    drop(consumer);
    assert!(producer.is_closed());

    let (mut producer, memory) = Producer::create_sized(SMALL).expect("memory");
    assert!(producer.take_back() && producer.is_closed());
    assert!(!producer.has_reader() && !producer.take_back());
    Consumer::open_sized(memory, SMALL).expect_err("it was taken back");
}

#[test]
fn a_sleeper_is_woken_once_and_only_if_it_sleeps() {
    let (mut producer, mut consumer) = pair(SMALL);
    assert_eq!(producer.push(mark(0), b"a"), Push::Done);
    assert!(!producer.must_wake());
    assert!(!consumer.doze(), "there is a record");
    assert!(!producer.must_wake());
    let mut out = [0; 8];
    assert!(matches!(consumer.pop(&mut out), Pop::Record { .. }));
    assert!(consumer.doze());
    assert_eq!(producer.push(mark(0), b"b"), Push::Done);
    assert!(producer.must_wake());
    assert!(!producer.must_wake(), "once");
    assert!(matches!(consumer.pop(&mut out), Pop::Record { .. }));
    assert!(consumer.doze());
    consumer.rouse();
    assert!(!producer.must_wake());
}

#[test]
fn what_is_no_ring_is_refused() {
    let refused = |fd: OwnedFd| {
        let error = Consumer::open(fd).expect_err("it is none");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    };
    let null = || std::fs::File::open("/dev/null").expect("every system has it");
    refused(null().into());
    let (_, smaller) = Producer::create_sized(SMALL).expect("memory");
    refused(smaller);
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create(c"test", flags).expect("memory");
    rustix::fs::ftruncate(&unsealed, Geometry::USUAL.len() as u64).expect("it can be so long");
    refused(unsealed.try_clone().expect("a descriptor"));
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&unsealed, seals).expect("it takes seals");
    refused(unsealed);
}

#[test]
fn nothing_else_is_written_while_a_window_is_out() {
    let (mut producer, mut consumer) = pair(SMALL);
    let mut window = producer.window();
    assert!(producer.lend(&mut window, 64, 128));
    let panics = |what: &mut dyn FnMut()| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(what)).expect_err("refused");
    };
    let mut other = producer.window();
    panics(&mut || _ = producer.push(mark(1), b"x"));
    panics(&mut || producer.publish(mark(1), 1));
    panics(&mut || _ = producer.lend(&mut other, 64, 128));
    panics(&mut || window.part_mut(0..8).fill(1));
    panics(&mut || window.part_mut(100..129).fill(1));
    panics(&mut || other.part_mut(8..9).fill(1));
    producer.end_loan(&mut other);
    panics(&mut || _ = producer.push(mark(1), b"x"));
    window.part_mut(8..13).copy_from_slice(b"hello");
    producer.end_loan(&mut window);
    panics(&mut || window.part_mut(8..9).fill(1));
    producer.publish(mark(3), 5);
    let mut out = [0; 64];
    let (len, mark) = (5, mark(3));
    assert_eq!(consumer.pop(&mut out), Pop::Record { len, mark });
    assert_eq!(&out[..5], b"hello");
    let (mut elsewhere, _consumer) = pair(SMALL);
    panics(&mut || _ = elsewhere.lend(&mut window, 64, 128));
    // Nothing is no loan that could not end.
    assert!(producer.lend(&mut window, 0, 0));
    assert_eq!(window.len(), 64);
    producer.end_loan(&mut window);
    assert_eq!(producer.push(mark, b"on we go"), Push::Done);
    consumer.close();
    assert!(!producer.lend(&mut window, 64, 128));
}

#[test]
fn two_threads_lose_and_mix_nothing() {
    const RECORDS: u32 = if cfg!(miri) { 100 } else { 300_000 };
    let (mut producer, mut consumer) = pair(SMALL);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..RECORDS {
                let bytes = n.to_le_bytes().repeat(1 + n as usize % 60);
                while producer.push(mark(n as u16), &bytes) != Push::Done {
                    std::thread::yield_now();
                }
            }
        });
        let mut out = [0; RECORD_MAX];
        for n in 0..RECORDS {
            let len = loop {
                match consumer.pop(&mut out) {
                    Pop::Record { len, mark: found } => {
                        assert_eq!(found, mark(n as u16));
                        break len;
                    }
                    Pop::Empty => {
                        consumer.release();
                        std::thread::yield_now();
                    }
                    end => panic!("{end:?} at {n}"),
                }
            };
            assert_eq!(&out[..len], n.to_le_bytes().repeat(1 + n as usize % 60));
        }
    });
}

/// Any word of the shared memory may change at any moment.
#[test]
fn damage_never_leads_out_of_the_memory() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut ends = [0; 3];
    for _ in 0..2000 {
        let memory = Memory::shared(SMALL).expect("memory");
        let memory = || memory().expect("a mapping");
        let mut producer = Producer::on(memory(), SMALL);
        let mut consumer = Consumer::on(memory(), SMALL);
        let third = memory();
        let mut out = [0; 512];
        for n in 0..60 {
            let at = (random() as usize % (SMALL.len() / 8)) * 8;
            let value = match random() % 4 {
                0 => random(),
                1 => random() % 4096,
                2 => random() % 256,
                _ => 0,
            };
            if random() % 4 == 0 {
                let at = if random() % 2 == 0 {
                    (at % 256) & !7
                } else {
                    at
                };
                third.word(at).store(value, Ordering::Relaxed);
            }
            let len = random() as usize % 400;
            ends[0] += u32::from(producer.push(mark(n), &out[..len]) == Push::Closed);
            if random() % 2 == 0 {
                match consumer.pop(&mut out) {
                    Pop::Broken => ends[1] += 1,
                    Pop::Closed => ends[2] += 1,
                    Pop::Empty | Pop::Record { .. } => {}
                }
            }
            consumer.doze();
            producer.must_wake();
        }
    }
    assert!(ends.iter().all(|&count| count > 100), "{ends:?}");
}
