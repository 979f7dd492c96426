//! What a ring costs: two threads that pass short records to and fro, and a stream of long ones. No engine, no packets.
//!
//! `cargo run --release -p urxe-ring --example measure`, on a machine with two idle processors at least.

use std::hint::spin_loop;
use std::thread;
use std::time::Instant;

use urxe_ring::{Consumer, Mark, Pop, Producer, Push, RECORD_MAX};

const MARK: Mark = Mark {
    kind: 1,
    tag: 2,
    size: 3,
};

/// Each is measured so often: the best is what the ring costs, the others what the machine adds.
const RUNS: usize = 5;

fn main() -> std::io::Result<()> {
    for len in [8, 48, 300, 4096] {
        let runs = (0..RUNS).map(|_| ping_pong(len, 300_000));
        let runs: Vec<f64> = runs.collect::<Result<_, _>>()?;
        report(&format!("{len:5} bytes to and fro, ns each way"), &runs);
    }
    for (len, records) in [(48, 10_000_000), (4096, 1_000_000), (16 << 10, 400_000)] {
        let runs = (0..RUNS).map(|_| stream(len, records));
        let runs: Vec<f64> = runs.collect::<Result<_, _>>()?;
        let bits = 8.0 * len as f64;
        report(&format!("{len:5} bytes in a stream, ns a record"), &runs);
        let speeds: Vec<f64> = runs.iter().map(|ns| bits / ns).collect();
        report(&format!("{len:5} bytes in a stream, Gbit/s"), &speeds);
    }
    Ok(())
}

fn report(what: &str, runs: &[f64]) {
    let runs: Vec<String> = runs.iter().map(|run| format!("{run:8.1}")).collect();
    println!("{what:38} {}", runs.join(" "));
}

fn ring() -> std::io::Result<(Producer, Consumer)> {
    let (producer, memory) = Producer::create()?;
    Ok((producer, Consumer::open(memory)?))
}

/// Nanoseconds from the push of a record to its pop in the other thread.
fn ping_pong(len: usize, rounds: u32) -> std::io::Result<f64> {
    let (mut to, mut from_us) = ring()?;
    let (mut back, mut from_them) = ring()?;
    let answering = thread::spawn(move || {
        let mut record = vec![0; RECORD_MAX];
        for _ in 0..rounds {
            take(&mut from_us, &mut record);
            put(&mut back, &record[..len]);
        }
    });
    let mut record = vec![0; RECORD_MAX];
    let start = Instant::now();
    for _ in 0..rounds {
        put(&mut to, &record[..len]);
        take(&mut from_them, &mut record);
    }
    let ns = start.elapsed().as_nanos() as f64;
    answering.join().expect("no panic");
    Ok(ns / f64::from(rounds) / 2.0)
}

/// Nanoseconds a record, from the first push to the last pop.
fn stream(len: usize, records: u32) -> std::io::Result<f64> {
    let (mut to, mut from) = ring()?;
    let start = Instant::now();
    let writing = thread::spawn(move || {
        let record = vec![7; len];
        for _ in 0..records {
            while to.push(MARK, &record) == Push::Full {
                spin_loop();
            }
            // Between batches an engine asks this; here it is a batch each time.
            assert!(!to.must_wake(), "the reader never sleeps");
        }
    });
    let mut record = vec![0; RECORD_MAX];
    for _ in 0..records {
        take(&mut from, &mut record);
    }
    let ns = start.elapsed().as_nanos() as f64;
    writing.join().expect("no panic");
    Ok(ns / f64::from(records))
}

/// As an engine sends: a record, and a look whether the reader sleeps.
fn put(producer: &mut Producer, record: &[u8]) {
    assert_eq!(producer.push(MARK, record), Push::Done);
    assert!(!producer.must_wake(), "the reader never sleeps");
}

/// As a thread that polls receives.
fn take(consumer: &mut Consumer, out: &mut [u8]) {
    loop {
        match consumer.pop(out) {
            Pop::Record { .. } => break,
            Pop::Empty => {
                consumer.release();
                spin_loop();
            }
            end => panic!("{end:?}"),
        }
    }
}
