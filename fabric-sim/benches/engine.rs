//! The queue of events by the hold model (take one out, put one in), beside a heap alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fabric_sim::Time;
use fabric_sim::engine::{EventQueue, Rng};

/// How far ahead events are: frames of 64 to 4200 bytes at 100 Gb/s, and a timer now and then.
fn ahead(rng: &mut Rng) -> u64 {
    if rng.below(100) == 0 {
        rng.below(1 << 32)
    } else {
        5_000 + rng.below(336_000)
    }
}

fn hold(c: &mut Criterion) {
    let mut group = c.benchmark_group("hold");
    group.throughput(Throughput::Elements(1));
    for pending in [1_000u64, 10_000, 100_000] {
        group.bench_function(format!("ring/{pending}"), |b| {
            let (mut rng, mut queue) = (Rng::new(1), EventQueue::new());
            for n in 0..pending {
                queue.push(Time::from_ps(ahead(&mut rng)), n as u32 % 1000, [n, n]);
            }
            b.iter(|| {
                let (time, event) = queue.pop().expect("never empty");
                let at = Time::from_ps(time.ps() + ahead(&mut rng));
                queue.push(at, event[0] as u32 % 1000, black_box(event));
            });
        });
        group.bench_function(format!("heap/{pending}"), |b| {
            let (mut rng, mut queue) = (Rng::new(1), BinaryHeap::new());
            let mut sequence = pending;
            for n in 0..pending {
                queue.push(Reverse((ahead(&mut rng), n, [n, n])));
            }
            b.iter(|| {
                let Reverse((time, _, event)) = queue.pop().expect("never empty");
                sequence += 1;
                queue.push(Reverse((
                    time + ahead(&mut rng),
                    sequence,
                    black_box(event),
                )));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, hold);
criterion_main!(benches);
