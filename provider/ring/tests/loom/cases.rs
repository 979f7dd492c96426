//! Small cases of a producer and a consumer, each in a thread of its own.

use core::ops::Range;

use loom::sync::mpsc::channel;
use loom::thread;

use crate::consumer::{Consumer, Pop};
use crate::layout::{Geometry, LINE, Mark};
use crate::memory::Memory;
use crate::producer::{Producer, Push};
use crate::window::Window;

/// Two chunks of two records each.
const GEOMETRY: Geometry = Geometry {
    chunk: 192,
    chunks: 2,
    tell: 64,
};

fn pair() -> (Producer, Consumer) {
    let (one, other) = Memory::both(&GEOMETRY);
    (Producer::on(one, GEOMETRY), Consumer::on(other, GEOMETRY))
}

fn mark(number: u8) -> Mark {
    Mark {
        kind: number,
        tag: u16::from(number),
        size: 1,
    }
}

/// Tries all interleavings in which a thread is interrupted up to so many times.
fn check(interruptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(interruptions);
    model.check(case);
}

fn push(producer: &mut Producer, number: u8) -> Push {
    producer.push(mark(number), &[number; 3])
}

/// Takes record `number`, if it is there.
fn take(consumer: &mut Consumer, number: u8) -> Pop {
    let pop = consumer.peek();
    if let Pop::Record { len, mark: found } = pop {
        let mut out = [0; 3];
        consumer.copy(0, &mut out);
        consumer.words();
        consumer.advance();
        assert_eq!((len, found), (3, mark(number)));
        assert_eq!(out, [number; 3]);
    }
    pop
}

/// Records arrive whole and in order, whatever was in the memory before; a chunk is written again only after it was read.
pub(crate) fn records_arrive(records: u8, interruptions: usize) {
    arrive(records, interruptions, |producer, numbers| {
        match push(producer, numbers.start) {
            Push::Done => Some(1),
            Push::Full => None,
            Push::Closed => panic!("closed at {}", numbers.start),
        }
    });
}

/// The same of records that are made in a window, two at a time if there is so much room.
pub(crate) fn records_in_windows_arrive(records: u8, interruptions: usize) {
    arrive(records, interruptions, |producer, numbers| {
        let mut window = producer.window();
        let many = numbers.len().min(2) * LINE;
        if !producer.lend(&mut window, LINE, many) {
            return None;
        }
        let lent = (window.len() / LINE) as u8;
        for place in 0..lent {
            let at = usize::from(place) * Window::ALIGN + Window::BEFORE;
            let number = numbers.start + place;
            window.part_mut(at..at + 3).fill(number);
        }
        producer.end_loan(&mut window);
        for number in numbers.start..numbers.start + lent {
            producer.publish(mark(number), 3);
        }
        Some(lent)
    });
}

/// `write` writes some of the records with these numbers, and says how many; none if there is no room.
fn arrive(
    records: u8,
    interruptions: usize,
    write: impl Fn(&mut Producer, Range<u8>) -> Option<u8> + Copy + Sync + Send + 'static,
) {
    check(interruptions, move || {
        let (mut producer, mut consumer) = pair();
        let writer = thread::spawn(move || {
            let mut number = 0;
            while number < records {
                match write(&mut producer, number..records) {
                    Some(written) => number += written,
                    None => thread::yield_now(),
                }
            }
        });
        let mut number = 0;
        loop {
            match take(&mut consumer, number) {
                Pop::Record { .. } => number += 1,
                Pop::Empty => thread::yield_now(),
                Pop::Closed => break,
                Pop::Broken => panic!("broken at {number}"),
            }
        }
        assert_eq!(number, records, "none is lost in the end");
        writer.join().expect("no panic");
    });
}

/// A consumer that sleeps when there is nothing is woken for each record, and for the end if the producer says so. If a
/// wake-up is lost, both sleep for ever, which loom calls a deadlock.
pub(crate) fn sleepers_are_woken(records: u8, interruptions: usize) {
    check(interruptions, move || {
        let (mut producer, mut consumer) = pair();
        let (bell, rung) = channel();
        let writer = thread::spawn(move || {
            for number in 0..records {
                assert_eq!(push(&mut producer, number), Push::Done);
                if producer.must_wake() {
                    bell.send(()).expect("the consumer hears");
                }
            }
            // Kept: what is dropped ends the ring.
            (producer, bell)
        });
        let mut number = 0;
        while number < records {
            match take(&mut consumer, number) {
                Pop::Record { .. } => number += 1,
                Pop::Empty => {
                    if consumer.doze() {
                        rung.recv().expect("the producer is there");
                        consumer.rouse();
                    }
                }
                end => panic!("{end:?} at {number}"),
            }
        }
        writer.join().expect("no panic");
    });
}

/// When the consumer goes, its producer hears of it, and breaks nothing.
pub(crate) fn a_consumer_goes(interruptions: usize) {
    check(interruptions, || {
        let (mut producer, mut consumer) = pair();
        let reader = thread::spawn(move || {
            let pop = take(&mut consumer, 0);
            assert!(matches!(pop, Pop::Record { .. } | Pop::Empty), "{pop:?}");
        });
        let pushes: Vec<Push> = (0..5).map(|n| push(&mut producer, n)).collect();
        reader.join().expect("no panic");
        assert!(producer.is_closed());
        assert!(!pushes[..4].contains(&Push::Full), "{pushes:?}");
        assert_eq!(producer.push(mark(0), &[0; 56]), Push::Closed);
    });
}
