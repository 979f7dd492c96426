//! The memory that neighbours share in place of sockets (docs/SHARING.md, "Through memory").

mod ends;
mod in_place;
mod junk;
mod limits;
mod losses;
mod other_users;
mod peer;
mod process;
mod sleepers;
mod stopped;
mod which;

use std::net::IpAddr;

use crate::common::{End, address};
use urxe::{ConnectOptions, Context, Wire};

/// An end that takes memory, whatever the environment says.
fn end() -> End {
    end_at(address())
}

fn end_at(addr: IpAddr) -> End {
    let context = Context::builder(addr).wire(Wire::Auto);
    End::on(context.open().expect("the address is shared"))
}

/// For tests that count rings and participants: each shard is one.
fn end_of_one_shard() -> End {
    let context = Context::builder(address()).wire(Wire::Auto).shards(1);
    End::on(context.open().expect("the address is shared"))
}

/// Records that an end has written, and has read.
fn records(end: &End) -> [u64; 2] {
    ["tx_records", "rx_records"].map(|name| end.counter(name))
}

/// An ACK timeout of 4 s: no timer of the transport does in time what should have been done without one.
fn patient() -> ConnectOptions {
    ConnectOptions {
        timeout: 20,
        ..ConnectOptions::default()
    }
}

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The seed of the environment, or this one. It is printed: a failure shows it.
fn seed(usual: u64) -> Dice {
    let set = std::env::var("URXE_SEED").ok();
    let seed = set.map_or(usual, |text| text.parse().expect("URXE_SEED is a number"));
    println!("URXE_SEED={seed} repeats what is drawn");
    Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}
