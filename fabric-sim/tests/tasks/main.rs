//! Async programs on simulated hosts: tasks that await completions, events and connections, in virtual time.

mod connections;
#[path = "../end/mod.rs"]
mod end;
#[path = "../race/mod.rs"]
mod race;
mod races;
mod streams;
mod tasks;
mod waiting;

use fabric_sim::HostId;
use fabric_sim::program::{task, tell};
use urxe::{ConnectOptions, CqStream, Rkey, Wc, WcStatus};

use end::{End, options};

const A: HostId = HostId(0);
const B: HostId = HostId(1);

/// An end with its completions as a stream.
fn open() -> (End, CqStream) {
    let (end, _) = End::open(false);
    let completions = CqStream::of(&end.cq).expect("a stream");
    (end, completions)
}

/// Connects with the peer, under the two names. Other tasks go on meanwhile.
async fn meet(end: &End, me: &str, peer: &str) -> (u64, Rkey) {
    meet_with(end, me, peer, &options()).await
}

async fn meet_with(end: &End, me: &str, peer: &str, options: &ConnectOptions) -> (u64, Rkey) {
    let keys = (end.memory.addr(), end.memory.rkey().0);
    tell(me, format!("{} {} {}", keys.0, keys.1, end.qp.endpoint()));
    let words = task::ask(peer).await;
    let mut words = words.splitn(3, ' ');
    let mut word = || words.next().expect("three words");
    let (addr, rkey) = (word(), word());
    let endpoint = word().parse().expect("an endpoint");
    end.qp.connect(&endpoint, options).expect("connects");
    let rkey = Rkey(rkey.parse().expect("a number"));
    (addr.parse().expect("a number"), rkey)
}

async fn next(completions: &mut CqStream) -> Wc {
    let wc = completions.next().await.expect("polls");
    assert_eq!(wc.status, WcStatus::Success, "{wc}");
    wc
}

/// Nothing is lost between the last message and the end of its sender: all stay until all have all.
async fn leave_together(me: usize, all: usize) {
    tell(&format!("{me} has all"), "");
    for other in 0..all {
        task::ask(&format!("{other} has all")).await;
    }
}
