//! Messages matched by sender, tag and context over SEND and receive, as an MPI library does it.
//!
//! `cargo run -p urxe --example matching`: two senders and a receiver in one process. `layer.rs` is the part to read. With the
//! argument `curve` it measures what the length of a queue costs.

#![allow(unreachable_pub, reason = "the files are modules of a test, too")]

mod curve;
mod header;
mod layer;
mod queues;

use curve::Long;
use layer::{Buffer, Done, Layer, MatchError};
use queues::Pattern;
use urxe::Context;

/// Longer messages go by rendezvous.
const EAGER_MAX: usize = 1024;

fn open(rank: u16) -> Result<Layer, MatchError> {
    let address = [127, 0, 0, 1 + rank as u8];
    Layer::open(&Context::open(address.into())?, rank, EAGER_MAX)
}

/// Polls all until this one has an operation that is over.
fn wait(layers: &mut [Layer], who: usize) -> Result<Done, MatchError> {
    loop {
        for (number, layer) in layers.iter_mut().enumerate() {
            match layer.poll()? {
                Some(done) if number == who => return Ok(done),
                Some(done) => println!("rank {number}: {done:?}"),
                None => {}
            }
        }
    }
}

fn main() -> Result<(), MatchError> {
    match std::env::args().nth(1).as_deref() {
        None => show(),
        Some("curve") => curve(),
        Some(other) => {
            eprintln!("matching: no argument, or `curve`; not {other:?}");
            std::process::exit(2);
        }
    }
}

/// A table: microseconds a message by the length of each queue.
fn curve() -> Result<(), MatchError> {
    println!(
        "{:>8} {:>8} {:>12} {:>12}",
        "waiting", "posted", "any sender", "unexpected"
    );
    for len in [0, 10, 100, 1000, 10_000, 100_000] {
        print!("{len:>8}");
        for (long, width) in [
            (Long::Posted, 8),
            (Long::PostedWild, 12),
            (Long::Unexpected, 12),
        ] {
            let mut layers = [open(0)?, open(1)?];
            let [receiver, sender] = &mut layers;
            Layer::join(receiver, sender)?;
            let time = curve::latency(&mut layers, long, len, 1001)?;
            print!(" {:>width$.1}", time.as_secs_f64() * 1e6);
        }
        println!();
    }
    Ok(())
}

fn show() -> Result<(), MatchError> {
    let mut layers = [open(0)?, open(1)?, open(2)?];
    let [receiver, first, second] = &mut layers;
    Layer::join(receiver, first)?;
    Layer::join(receiver, second)?;
    let inbox = receiver.memory(30_000)?;
    let (short, long) = (first.memory(100)?, second.memory(10_000)?);
    short.write(0, &[1; 100]);
    long.write(0, &[2; 10_000]);

    println!("rank 0 wants tag 7 from rank 2, and anything from any rank");
    receiver.recv(
        Pattern::new(0, Some(2), Some(7)),
        Buffer::new(&inbox, 0..10_000),
    )?;
    receiver.recv(
        Pattern::new(0, None, None),
        Buffer::new(&inbox, 10_000..20_000),
    )?;
    println!("rank 1 sends 100 bytes of tag 7 (eager), rank 2 10000 bytes of tag 7 (rendezvous)");
    first.send(0, 0, 7, Buffer::new(&short, 0..100))?;
    second.send(0, 0, 7, Buffer::new(&long, 0..10_000))?;
    for _ in 0..2 {
        println!("rank 0: {:?}", wait(&mut layers, 0)?);
    }
    let (from_second, from_first) = (inbox.load_u8(0), inbox.load_u8(10_000));
    println!("the bytes are those of ranks {from_second} and {from_first}");

    println!("rank 1 sends tag 9, and only then rank 0 wants it");
    layers[1].send(0, 0, 9, Buffer::new(&short, 0..50))?;
    let nine = Pattern::new(0, None, Some(9));
    while layers[0].probe(nine).is_none() {
        for layer in &mut layers {
            layer.poll()?;
        }
    }
    layers[0].recv(nine, Buffer::new(&inbox, 20_000..30_000))?;
    println!("rank 0: {:?}", wait(&mut layers, 0)?);

    let receiver = &mut layers[0];
    let late = receiver.recv(nine, Buffer::new(&inbox, 20_000..30_000))?;
    println!(
        "rank 0 takes a receive back that got nothing: {}",
        receiver.cancel(late)
    );
    let (arrived, waiting) = (receiver.arrived(), receiver.lens());
    println!("{arrived} messages came; receives and messages that wait: {waiting:?}");
    Ok(())
}
