//! Groups: who gets what, and what is lost without a word.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use urxe::{Context, Mr, Mtu, Qkey, QpType, Qpn, RecvWr, SendWr};

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::lab::{Port, cost, memory};
use crate::error::{CliError, Context as _};
use crate::station::Station;

pub(super) const STUDY: Study = Study {
    name: "multicast",
    question: "What does a group deliver, to which members, and what does no member hear of?",
    claims: &[
        Claim {
            document: Document::Deck,
            says: "UD and SEND/RECV only; one copy for each member and no duplicates; any node may send; a message that finds no receive is lost; a \
                   message is at most an MTU; joining and leaving at any time, without notice.",
        },
        Claim {
            document: Document::Deck,
            says: "the first to join fixes the group's MTU (1024, 2048 or 4096), and a member with a smaller one cannot join.",
        },
    ],
    measure,
};

const QKEY: Qkey = Qkey(0x1900_0019);
/// Bytes in front of a datagram in a receive.
const GRH: usize = 40;

/// A group of this process, so that two studies at a time do not hear each other.
fn group() -> IpAddr {
    let id = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(239, id[1], id[2], id[3]))
}

/// One that sends or subscribes.
struct Member {
    port: Port,
    station: Station,
    inbox: Mr,
}

impl Member {
    /// At 127.19.1.N, with ports of this MTU.
    fn open(number: u8, mtu: Mtu) -> Result<Member, CliError> {
        let address = IpAddr::V4(Ipv4Addr::new(127, 19, 1, number));
        let context = Context::builder(address).mtu(mtu).open();
        let context = context.context("cannot open a device")?;
        let pd = context.alloc_pd().context("no protection domain")?;
        let station = Station { context, pd };
        let port = Port::new(&station, |qp| qp.qp_type(QpType::Ud))?;
        port.qp.start_datagrams(QKEY).context("cannot start")?;
        let inbox = memory(&station, GRH + 4096)?;
        Ok(Member {
            port,
            station,
            inbox,
        })
    }

    fn subscribe(&self) -> Result<(), CliError> {
        let joined = self.port.qp.attach_mcast(group().into());
        joined.context("cannot join the group")
    }

    fn leave(&self) -> Result<(), CliError> {
        let left = self.port.qp.detach_mcast(group().into());
        left.context("cannot leave the group")
    }

    fn expect(&self, count: usize) -> Result<(), CliError> {
        let sges = [self.inbox.sge(..)];
        (0..count).try_for_each(|_| {
            let posted = self.port.qp.post_recv(&RecvWr::new(1, &sges));
            posted.context("cannot post a receive")
        })
    }

    /// Sends so many bytes to the group. False if the verbs refuse it.
    fn publish(&self, len: usize) -> Result<bool, CliError> {
        let ah = self.station.pd.create_ah_to(group());
        let ah = ah.context("no way to the group")?;
        let mr = memory(&self.station, len)?;
        let sges = [mr.sge(..)];
        let wr = SendWr::send(2, &sges).signaled();
        if self
            .port
            .qp
            .post_send(&wr.ud_addr(&ah, Qpn::MULTICAST, QKEY))
            .is_err()
        {
            return Ok(false);
        }
        let wc = self.port.cq.poll_one().context("polling failed")?;
        Ok(wc.is_success())
    }

    /// What has come, with all that comes within a while.
    fn heard(&self) -> Result<usize, CliError> {
        const WHILE: Duration = Duration::from_millis(20);
        let mut count = 0;
        let mut wcs = [urxe::Wc::default(); 8];
        let mut last = Instant::now();
        while last.elapsed() < WHILE {
            let found = self.port.cq.poll(&mut wcs).context("polling failed")?;
            let received = wcs[..found].iter().filter(|wc| wc.wr_id == 1);
            let received = received.count();
            count += received;
            if received > 0 {
                last = Instant::now();
            }
        }
        Ok(count)
    }
}

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let most = effort.pick(2, 8);
    let sender = Member::open(1, Mtu::Mtu4096)?;
    let members = (0..most).map(|n| Member::open(10 + n, Mtu::Mtu4096));
    let members = members.collect::<Result<Vec<_>, _>>()?;
    let times = spread(effort, &sender, &members)?;
    let mut grid = Grid::new(
        "What was sent, and what was heard",
        &["what", "deck", "here"],
    );
    let [one, other] = [&members[0], &members[1]];
    let facts = delivery(&sender, one, other)?.into_iter();
    for (what, deck, here) in facts.chain(sizes(&sender, one)?) {
        grid.row(vec![Cell::text(what), Cell::text(deck), Cell::text(here)]);
    }
    let names = times.iter().map(|(count, _)| format!("{count} members"));
    let values: Vec<f64> = times.iter().map(|(_, us)| *us).collect();
    let picture = Picture {
        name: "multicast".to_owned(),
        title: "A datagram of 64 bytes to a group, until its last member has it".to_owned(),
        x: String::new(),
        y: "microseconds".to_owned(),
        kind: Kind::Bars(names.collect()),
        series: vec![Series::bars("urxe", &values)],
    };
    let mut reach = Grid::new("A datagram of 64 bytes to all members", &["members", "us"]);
    for &(count, us) in &times {
        reach.row(vec![Cell::Number(count as f64, 0), Cell::number(us)]);
    }
    Ok(Findings {
        tables: vec![grid, reach],
        pictures: vec![picture],
        follows: follows(times[0], times[times.len() - 1]),
        lacks: Vec::new(),
    })
}

fn follows(few: (usize, f64), many: (usize, f64)) -> Vec<String> {
    vec![
        "A member posts more receives than it expects to need, and posts one again before it uses what came: what finds none is lost, and the sender has a \
         success all the same."
            .to_owned(),
        "The rule of the first joiner's MTU is that of an InfiniBand subnet manager, which keeps a record of each group. RoCE has none: nothing refuses a member, \
         and each device decides alone what it takes. A program should keep to the smallest MTU that its members may have."
            .to_owned(),
        format!(
            "{} members cost {:.1} times what {} costs: on one host each copy is made by the kernel and handled by the member's own engine, on the same processors.",
            many.0,
            many.1 / few.1,
            few.0
        ),
    ]
}

/// What was done, what the deck says of it, and what was found.
type Fact = (&'static str, &'static str, String);

/// Copies, losses, and leaving.
fn delivery(sender: &Member, one: &Member, other: &Member) -> Result<[Fact; 4], CliError> {
    for member in [one, other] {
        member.subscribe()?;
        // Once more changes nothing.
        member.subscribe()?;
        member.expect(4)?;
    }
    sender.publish(64)?;
    let copies = [one.heard()?, other.heard()?];
    let burst = lost(sender, one)?;
    let _ = other.heard()?;
    other.leave()?;
    one.expect(1)?;
    other.expect(1)?;
    sender.publish(64)?;
    let after = [one.heard()?, other.heard()?];
    one.leave()?;
    let both = |counts: [usize; 2]| format!("{} and {}", counts[0], counts[1]);
    Ok([
        (
            "copies for each of two members that joined twice; the sender has not joined",
            "1 and 1",
            both(copies),
        ),
        (
            "of 10 datagrams, to a member with 3 receives left",
            "3 heard",
            format!("{} heard", burst[1]),
        ),
        (
            "completions with success at the sender, of these",
            "10",
            burst[0].to_string(),
        ),
        (
            "after one has left: heard by the one that stayed, and by the other",
            "1 and 0",
            both(after),
        ),
    ])
}

/// Long datagrams, and a member with a smaller MTU.
fn sizes(sender: &Member, one: &Member) -> Result<[Fact; 3], CliError> {
    one.subscribe()?;
    let long = sender.publish(4097)?;
    let small = Member::open(40, Mtu::Mtu1024)?;
    let joined = small.subscribe().is_ok();
    small.expect(2)?;
    one.expect(2)?;
    sender.publish(4096)?;
    sender.publish(1024)?;
    let heard = small.heard()?;
    one.leave()?;
    let word = |is_so: bool, yes: &str, no: &str| if is_so { yes } else { no }.to_owned();
    Ok([
        (
            "a datagram of 4097 bytes",
            "refused",
            word(long, "sent", "refused"),
        ),
        (
            "a member with an MTU of 1024, after one of 4096",
            "cannot join",
            word(joined, "joins", "cannot join"),
        ),
        (
            "of a datagram of 4096 bytes and one of 1024, heard by that member",
            "-",
            heard.to_string(),
        ),
    ])
}

/// Successes at the sender and datagrams heard, of ten to a member with three receives.
fn lost(sender: &Member, member: &Member) -> Result<[usize; 2], CliError> {
    let mut successes = 0;
    for _ in 0..10 {
        successes += usize::from(sender.publish(64)?);
    }
    Ok([successes, member.heard()?])
}

/// Time of a datagram until all members have it, by their number.
fn spread(
    effort: &Effort,
    sender: &Member,
    members: &[Member],
) -> Result<Vec<(usize, f64)>, CliError> {
    let mut times = Vec::new();
    let mut count = 1;
    while count <= members.len() {
        let joined = &members[..count];
        joined.iter().try_for_each(Member::subscribe)?;
        let us = cost(effort, &mut || {
            joined.iter().try_for_each(|member| member.expect(1))?;
            sender.publish(64)?;
            joined
                .iter()
                .try_for_each(|member| member.port.done().map(|_| ()))
        })?;
        times.push((count, us));
        joined.iter().try_for_each(Member::leave)?;
        count *= 2;
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_that_are_missing_are_datagrams_that_are_lost() {
        let [sender, member] = [60, 61].map(|n| Member::open(n, Mtu::Mtu4096).expect("opens"));
        member.subscribe().expect("joins");
        for planted in [3, 1] {
            member.expect(planted).expect("room");
            assert_eq!(lost(&sender, &member).expect("runs"), [10, planted]);
        }
    }
}
