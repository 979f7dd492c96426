//! Jobs: collectives with dependencies, messages that arrive at random, connection matrices and schedules.

use std::collections::BTreeSet;

use fabric_sim::engine::Rng;
use fabric_sim::host::{ConnectOptions, JobId, JobSpec};
use fabric_sim::workload::{
    Action, Algorithm, Arriving, Collective, CollectiveError, CollectiveKind, Event, Goal, Matrix,
    MessageOutcome, Sizes, Todo, Workload, job_outcomes, messages,
};
use fabric_sim::{FabricConfig, HostId, Link, Rate, Sim, Span, Time, Topology};

fn hosts(count: u32) -> Vec<HostId> {
    (0..count).map(HostId).collect()
}

fn job(workload: impl Workload + 'static) -> JobSpec {
    JobSpec {
        name: "job".to_owned(),
        start: Time::ZERO,
        options: ConnectOptions::default(),
        workload: Box::new(workload),
    }
}

fn star(count: u32) -> Sim {
    let link = Link::new(Rate::gbps(100));
    Sim::new(
        Topology::single_switch(count, link),
        FabricConfig::default(),
    )
    .expect("a switch")
}

/// Runs a job alone on a switch; all checks hold.
fn run(count: u32, workload: impl Workload + 'static) -> (Sim, JobId) {
    let mut sim = star(count);
    let id = sim.add_job(job(workload));
    sim.run();
    sim.verdict().expect("nothing is wrong");
    (sim, id)
}

/// A network that delivers in any order. Returns what each host knows in the end, if each knew its own number in the beginning
/// and a message carries all that its sender knows.
fn knowledge(mut workload: impl Workload, hosts: u32, seed: u64) -> Vec<BTreeSet<u32>> {
    let mut rng = Rng::new(seed);
    let mut known: Vec<BTreeSet<u32>> = (0..hosts).map(|host| BTreeSet::from([host])).collect();
    type Carried = (u32, BTreeSet<u32>);
    let mut under_way: Vec<(Event, Option<Carried>)> = Vec::new();
    let mut todo = Todo::default();
    workload.start(&mut todo);
    loop {
        for action in todo.drain() {
            match action {
                Action::Send { from, to, tag, .. } => {
                    let carried = known[from.0 as usize].clone();
                    under_way.push((Event::Arrived(tag), Some((to.0, carried))));
                }
                Action::Wait { tag, .. } => under_way.push((Event::Due(tag), None)),
            }
        }
        if under_way.is_empty() {
            break;
        }
        let next = rng.below(under_way.len() as u64) as usize;
        let (event, carried) = under_way.swap_remove(next);
        if let (Event::Arrived(tag), Some((to, carried))) = (event, carried) {
            known[to as usize].extend(carried);
            under_way.push((Event::Sent(tag), None));
        }
        workload.on_event(event, &mut todo);
    }
    assert!(
        workload.is_complete(),
        "seed {seed}: {}",
        workload.waits_for()
    );
    known
}

#[test]
fn each_rank_knows_what_it_shall_in_whatever_order_messages_come() {
    use Algorithm::{Halving, HalvingDoubling, RecursiveDoubling, Ring, Tree};
    use CollectiveKind::{AllGather, AllReduce, AllToAll, AllToAllV, Broadcast, ReduceScatter};
    let kinds = |count: u32| {
        let lengths = vec![vec![9; count as usize]; count as usize];
        let any = [
            AllReduce(Ring),
            AllReduce(Tree),
            AllGather(Ring),
            ReduceScatter(Ring),
            AllToAll,
            AllToAllV(lengths),
        ];
        let powers = [
            AllReduce(HalvingDoubling),
            AllReduce(RecursiveDoubling),
            AllGather(RecursiveDoubling),
            ReduceScatter(Halving),
        ];
        let powers = powers.into_iter().filter(|_| count.is_power_of_two());
        any.into_iter().chain(powers).collect::<Vec<_>>()
    };
    for count in [2, 3, 4, 7, 8, 16] {
        for seed in 0..20 {
            for kind in kinds(count) {
                let name = format!("{kind:?} of {count}, seed {seed}");
                let collective = Collective::new(kind, hosts(count), 1000).expect("is possible");
                let collective = collective.repeat(2).compute(Span::from_us(seed % 2));
                let all: BTreeSet<u32> = (0..count).collect();
                for (host, known) in knowledge(collective, count, seed).iter().enumerate() {
                    assert_eq!(*known, all, "{name}: host {host}");
                }
            }
            let broadcast = Collective::new(Broadcast, hosts(count), 1000).expect("is possible");
            for known in knowledge(broadcast, count, seed) {
                assert!(known.contains(&0), "broadcast of {count}, seed {seed}");
            }
        }
    }
}

#[test]
fn collectives_that_are_none_say_why() {
    use CollectiveKind::{AllGather, AllReduce, AllToAllV};
    let error = |kind, hosts: Vec<HostId>, bytes| Collective::new(kind, hosts, bytes).err();
    let ring = AllReduce(Algorithm::Ring);
    assert_eq!(
        error(ring.clone(), hosts(1), 8),
        Some(CollectiveError::Alone)
    );
    let twice = vec![HostId(1), HostId(1)];
    assert_eq!(error(ring.clone(), twice, 8), Some(CollectiveError::Twice));
    let doubling = AllReduce(Algorithm::RecursiveDoubling);
    assert_eq!(
        error(doubling, hosts(6), 8),
        Some(CollectiveError::PowerOfTwo(6))
    );
    let none = AllGather(Algorithm::Tree);
    assert_eq!(error(none, hosts(4), 8), Some(CollectiveError::Algorithm));
    assert_eq!(error(ring, hosts(4), 1 << 40), Some(CollectiveError::Long));
    let few = AllToAllV(vec![vec![1; 4]; 3]);
    assert_eq!(error(few, hosts(4), 8), Some(CollectiveError::Lengths));
}

#[test]
fn a_collective_moves_its_bytes_over_the_real_transport() {
    use Algorithm::{HalvingDoubling, RecursiveDoubling, Ring, Tree};
    // Bytes of all messages together: n hosts, S bytes.
    let (n, s) = (8u64, 80_000u64);
    for (kind, bytes) in [
        (CollectiveKind::AllReduce(Ring), 2 * (n - 1) * s),
        (CollectiveKind::AllReduce(Tree), 2 * (n - 1) * s),
        (CollectiveKind::AllReduce(HalvingDoubling), 2 * (n - 1) * s),
        (CollectiveKind::AllReduce(RecursiveDoubling), 3 * n * s),
        (CollectiveKind::AllGather(RecursiveDoubling), (n - 1) * s),
        (CollectiveKind::ReduceScatter(Ring), (n - 1) * s),
        (CollectiveKind::AllToAll, (n - 1) * s),
        (CollectiveKind::Broadcast, (n - 1) * s),
    ] {
        let name = format!("{kind:?}");
        let collective = Collective::new(kind, hosts(8), s).expect("is possible");
        let (sim, id) = run(8, collective);
        assert_eq!(sim.job(id).bytes, bytes, "{name}");
        assert!(sim.job(id).completion().is_some(), "{name}");
    }
}

#[test]
fn jobs_share_a_fabric_and_have_times_of_their_own() {
    let ring = || {
        let kind = CollectiveKind::AllReduce(Algorithm::Ring);
        Collective::new(kind, hosts(4), 4_000_000).expect("is possible")
    };
    let (alone, id) = run(4, ring());
    let alone = alone.job(id).completion().expect("ends").as_secs_f64();
    let mut sim = star(4);
    let jobs = [0, 1].map(|_| sim.add_job(job(ring())));
    sim.run();
    for id in jobs {
        let both = sim.job(id).completion().expect("ends").as_secs_f64();
        assert!(
            (1.9..2.1).contains(&(both / alone)),
            "{both} beside {alone}"
        );
    }
    let outcome = &job_outcomes(&sim)[0];
    let bus = outcome.bus_bandwidth.expect("has one").as_gbps_f64();
    // Half of the link, less its headers: 1024 of 1106 bytes.
    assert!((44.0..47.0).contains(&bus), "{bus}");
}

fn one_message(bytes: u64) -> MessageOutcome {
    let text = format!("Nodes 8\nConnections 1\n0->7 id 1 start 0 size {bytes}\n");
    let matrix = Matrix::parse(&text).expect("a matrix");
    let link = Link::new(Rate::gbps(25));
    let topology = Topology::leaf_spine(2, 2, 4, link, Link::new(Rate::gbps(100)));
    let mut sim = Sim::new(topology, FabricConfig::default()).expect("a tree");
    sim.add_job(job(matrix));
    sim.run();
    messages(&sim).remove(0)
}

#[test]
fn a_message_alone_takes_no_longer_than_alone() {
    for bytes in [1, 64, 1024, 1025, 100_000, 3_000_000] {
        let message = one_message(bytes);
        // Gaps behind frames that nothing follows are a matter of taste.
        let gaps = Rate::gbps(25).time_of(20) * 8;
        let off = (message.took - message.ideal).max(message.ideal - message.took);
        assert!(
            off <= gaps,
            "{bytes} bytes: {} of {}",
            message.took,
            message.ideal
        );
    }
}

#[test]
fn random_arrivals_come_at_their_load_whether_or_not_earlier_ones_have_ended() {
    let arriving = |seed, load| {
        let sizes = Sizes::fixed(20_000);
        let stop = Time::ZERO + Span::from_ms(4);
        let rate = Rate::gbps(100);
        Arriving::new((seed, 0), sizes, (rate, load), stop, (&hosts(4), hosts(4)))
    };
    let count = |seed, load| {
        let (sim, id) = run(4, arriving(seed, load));
        assert!(sim.job(id).end.is_some(), "seed {seed}");
        messages(&sim)
    };
    // 4 hosts, 1.6 us a message at the full rate.
    let expected = |load: f64| 4.0 * 4_000.0 / 1.6 * load;
    for load in [0.2, 0.6] {
        let seen = count(1, load).len() as f64;
        let off = (seen - expected(load)).abs() / expected(load).sqrt();
        assert!(
            off < 4.0,
            "load {load}: {seen} messages, not {}",
            expected(load)
        );
    }
    let half = |list: &[MessageOutcome]| {
        let mut slow: Vec<f64> = list.iter().map(MessageOutcome::slowdown).collect();
        assert!(slow.iter().all(|&times| times >= 0.99));
        slow.sort_by(f64::total_cmp);
        slow[slow.len() / 2]
    };
    // The higher the load, the more wait for others.
    assert!(half(&count(1, 0.6)) > 1.1 * half(&count(1, 0.2)));
    assert_eq!(count(3, 0.3), count(3, 0.3));
    assert_ne!(count(3, 0.3), count(4, 0.3));
}

fn matrix(lines: &str) -> Vec<MessageOutcome> {
    let (sim, _) = run(8, Matrix::parse(lines).expect("a matrix"));
    let mut all = messages(&sim);
    all.sort_by_key(|message| message.start);
    all
}

#[test]
fn triggers_of_a_matrix_begin_flows() {
    let head =
        "# a comment\nNodes 8\nConnections 3\nTriggers 1\n0->1 id 1 start 1000000 size 5000 ";
    let rest = "2->3 id 2 trigger 7 size 700\n3->4 id 3 trigger 7 size 800\n";
    let end = |m: &MessageOutcome| m.start + m.took;
    // As its sender knows that it has come: both at that moment.
    let all = matrix(&format!(
        "{head}send_done_trigger 7\n{rest}trigger id 7 oneshot\n"
    ));
    assert_eq!(all[0].start, Time::from_ps(1_000_000));
    assert_eq!([all[1].start, all[2].start], [end(&all[0]); 2]);
    // As it comes: earlier.
    let early = matrix(&format!(
        "{head}recv_done_trigger 7\n{rest}trigger id 7 oneshot\n"
    ));
    assert!(early[1].start < all[1].start);
    // One more for each flow that has come.
    let rest = "2->3 id 2 trigger 7 size 700 recv_done_trigger 7\n3->4 id 3 trigger 7 size 800\n";
    let each = matrix(&format!(
        "{head}recv_done_trigger 7\n{rest}trigger id 7 multishot\n"
    ));
    assert!(each[1].start < each[2].start);
    // When two have come.
    let text = "Nodes 8\nConnections 3\nTriggers 1\n0->1 start 0 size 9000 recv_done_trigger 1\n\
                2->3 start 500 size 90000 recv_done_trigger 1\n4->5 id 3 trigger 1 size 10\n\
                trigger id 1 count 2 barrier\n";
    let all = matrix(text);
    assert!(all[2].start > end(&all[0]) && all[2].start < end(&all[1]));
}

#[test]
fn a_matrix_that_is_none_says_where() {
    for (text, line, fault) in [
        ("", 1, "a matrix begins with Nodes"),
        (
            "0->1 start 0 size 1",
            1,
            "Nodes must come before connections",
        ),
        (
            "Nodes x",
            1,
            "\"x\", after Nodes, is no number that is possible there",
        ),
        (
            "Nodes 4\n\n0->4 start 0 size 1",
            3,
            "\"4\" is no node: they are 0 to 3",
        ),
        (
            "Nodes 4\n1->1 start 0 size 1",
            2,
            "a connection leads to another node",
        ),
        (
            "Nodes 4\n0->1 start 0",
            2,
            "a connection has a size of 1 byte to 2 GiB",
        ),
        (
            "Nodes 4\n0->1 size 1",
            2,
            "a connection has a start or a trigger, and not both",
        ),
        (
            "Nodes 4\n0->1 size 1 start 0 trigger 3",
            2,
            "a connection has a start or a trigger, and not both",
        ),
        (
            "Nodes 4\n0->1 start -1 size 1",
            2,
            "start is a time in picoseconds",
        ),
        ("Nodes 4\n0->1 size 1 trigger 3", 2, "there is no trigger 3"),
        (
            "Nodes 4\n0->1 speed 3",
            2,
            "\"speed\" is nothing that a connection has",
        ),
        (
            "Nodes 4\nConnections 2\n0->1 start 0 size 1\n",
            3,
            "1 connections, but the head says 2",
        ),
        (
            "Nodes 4\ntrigger id 1 barrier",
            2,
            "a barrier has a count above 0",
        ),
        (
            "Nodes 4\ntrigger id 1",
            2,
            "a trigger is oneshot, multishot or barrier",
        ),
        (
            "Nodes 4\n0->1 id 1 start 0 size 1\n1->2 id 1 start 0 size 1",
            3,
            "id 1: ids are not 0, and each is there once",
        ),
        (
            "Nodes 4\nFailures 1",
            2,
            "failures are not read: say them as faults of the scenario",
        ),
        (
            "Nodes 4\nhello",
            2,
            "\"hello\" is nothing that a matrix has",
        ),
    ] {
        let error = Matrix::parse(text).expect_err(text);
        assert_eq!(
            (error.line, error.fault.as_str()),
            (line, fault),
            "{text:?}"
        );
    }
}

/// As LogGOPSim's generator makes it: in each round, a byte to the rank that is twice as far as in the round before.
fn dissemination(ranks: u32) -> String {
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        text += &format!("\nrank {rank} {{\n");
        let (mut label, mut distance) = (1, 1);
        while distance < ranks {
            let (to, from) = ((rank + distance) % ranks, (rank + ranks - distance) % ranks);
            text += &format!("l{label}: send 1b to {to} tag 0\n");
            if label > 1 {
                text += &format!("l{label} requires l{}\n", label - 1);
            }
            text += &format!("l{}: recv 1b from {from} tag 0\n", label + 1);
            (label, distance) = (label + 2, distance * 2);
        }
        text += "}\n";
    }
    text
}

#[test]
fn a_schedule_takes_as_long_as_its_longest_way() {
    let goal = Goal::parse(&dissemination(16)).expect("a schedule");
    assert_eq!((goal.ranks(), goal.operations()), (16, 128));
    let (sim, id) = run(16, goal.on(hosts(16)));
    let took = sim.job(id).completion().expect("ends");
    // Four rounds, each a frame over two cables: a byte with three of padding, headers, RETH and immediate. Then the last ACK. ACKs
    // of a round go before the next round's message, out of the host and out of the switch.
    let (rate, link) = (Rate::gbps(100), Link::new(Rate::gbps(100)));
    let frame = rate.time_of(4 + 62 + 20 + 20) * 2 + link.delay * 2;
    let ack = rate.time_of(66 + 20) * 2 + link.delay * 2;
    let (least, most) = (frame * 4 + ack, (frame + ack) * 4);
    assert!(
        (least..=most).contains(&took),
        "{took}, not {least} to {most}"
    );
}

#[test]
fn operations_of_a_schedule_wait_for_what_they_require() {
    let took = |text: &str| {
        let goal = Goal::parse(text).expect(text);
        let ranks = goal.ranks() as u32;
        let (sim, id) = run(ranks, goal.on(hosts(ranks)));
        sim.job(id).completion().expect("ends")
    };
    let us = Span::from_us;
    let calc = |more: &str| {
        format!("num_ranks 1\nrank 0 {{\na: calc 5000{more}\nb: calc 7000 cpu 0\n}}\n")
    };
    // One after the other on a processor, at the same time on two.
    assert_eq!(took(&calc(" cpu 0")), us(12));
    assert_eq!(took(&calc(" cpu 1")), us(7));
    assert_eq!(
        took("num_ranks 1\nrank 0 {\na: calc 5000\nb: calc 7000 cpu 1\nb requires a\n}\n"),
        us(12)
    );
    assert_eq!(
        took("num_ranks 1\nrank 0 {\na: calc 5000\nb: calc 7000 cpu 1\nb irequires a\n}\n"),
        us(7)
    );
    // Any sender, any tag; a message to oneself; comments.
    let any = "num_ranks 3 // three\nrank 0 {\nx: recv 8b from -1 tag -1\ny: recv 8 b from 2 tag 5 cpu 0 nic 0\n}\n\
               rank 1 { /* sends\n late */\nc: calc 1000\ns: send 8b to 0 tag 9\ns requires c\n}\n\
               rank 2 {\nsend 8b to 0 tag 5\nsend 8b to 2\nrecv 8b from 2\n}\n";
    // The receive of anything takes what comes first, which is what the other waits for.
    let goal = Goal::parse(any).expect("a schedule");
    let mut sim = star(3);
    let id = sim.add_job(job(goal.on(hosts(3))));
    sim.run();
    assert_eq!(sim.job(id).completion(), None);
    let failure = job_outcomes(&sim).remove(0).failure;
    assert_eq!(
        failure.as_deref(),
        Some("6 of 7 operations have ended; rank 0 receives from 2 with tag 5")
    );
}

#[test]
fn a_schedule_that_is_none_says_where() {
    for (text, line, fault) in [
        ("", 1, "a schedule begins with num_ranks"),
        ("rank 0 {", 1, "num_ranks must come before ranks"),
        ("num_ranks 0", 1, "0 ranks: 1 to 32768"),
        (
            "num_ranks 2\nrank 2 {",
            2,
            "there is no rank 2: they are 0 to 1",
        ),
        ("num_ranks 2\nrank 0 {\n", 2, "rank 0 has no closing brace"),
        (
            "num_ranks 2\nrank 0 {\n}\nrank 0 {\n}",
            4,
            "rank 0 is there twice",
        ),
        (
            "num_ranks 2\nrank 0 {\nsend 1b to 9\n}",
            3,
            "there is no rank 9: they are 0 to 1",
        ),
        (
            "num_ranks 2\nrank 0 {\nsend xb to 1\n}",
            3,
            "\"x\" is no number that is possible here",
        ),
        (
            "num_ranks 2\nrank 0 {\nl1: sing 1b to 1\n}",
            3,
            "calc, send ... to or recv ... from was expected",
        ),
        (
            "num_ranks 2\nrank 0 {\nl1: send 1b to 1 tag\n}",
            3,
            "\"tag\" has no number",
        ),
        (
            "num_ranks 2\nrank 0 {\nl1: send 1b to 1 tag -1\n}",
            3,
            "\"-1\" is no number that is possible here",
        ),
        (
            "num_ranks 2\nrank 0 {\nl1: calc 1\nl1: calc 1\n}",
            4,
            "l1 is there twice",
        ),
        (
            "num_ranks 2\nrank 0 {\nl1: calc 1\nl1 requires l2\n}",
            4,
            "there is no l2 in this rank",
        ),
        (
            "num_ranks 2\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}",
            3,
            "this operation waits for itself, through others",
        ),
        (
            "num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}",
            3,
            "\"99999999999999999999\" is no number that is possible here",
        ),
        (
            "num_ranks 1\nrank 0 {\ncalc 99999999999999999\n}",
            3,
            "a computation takes a day at most",
        ),
        ("num_ranks 1\n/* rank", 2, "a comment has no end"),
        ("calc 5", 1, "an operation is of a rank"),
    ] {
        let error = Goal::parse(text).expect_err(text);
        assert_eq!(
            (error.line, error.fault.as_str()),
            (line, fault),
            "{text:?}"
        );
    }
}

/// Texts that are nearly right: pieces lost, doubled, exchanged, and bytes that do not belong there.
#[test]
fn readers_take_any_text() {
    let words = [
        "->",
        "-1",
        "rank",
        "{",
        "}",
        ":",
        "b",
        "requires",
        "99999999999999999999",
        "1e308",
        "é",
        "//",
        "/*",
        "\n",
        "trigger",
    ];
    let originals = [
        dissemination(4),
        "Nodes 8\nConnections 2\nTriggers 1\n0->1 id 1 start 0 size 5000 send_done_trigger 7\n1->2 id 2 trigger 7 size 8\n\
         trigger id 7 count 2 barrier\n".to_owned(),
        "0 0\n100 1\n1000000 97.5\n2000000 100\n".to_owned(),
    ];
    let (mut good, mut bad) = (0, 0);
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let mut pieces: Vec<String> = originals[rng.below(3) as usize]
            .split_inclusive([' ', '\n'])
            .map(str::to_owned)
            .collect();
        for _ in 0..rng.below(4) {
            let [a, b] = [0; 2].map(|_: u32| rng.below(pieces.len() as u64) as usize);
            match rng.below(4) {
                0 => drop(pieces.remove(a)),
                1 => pieces.insert(a, pieces[b].clone()),
                2 => pieces.swap(a, b),
                _ => pieces.insert(
                    a,
                    words[rng.below(words.len() as u64) as usize].to_owned() + " ",
                ),
            }
        }
        let text = pieces.concat();
        let lines = text.lines().count().max(1);
        let read = [
            Goal::parse(&text).map(drop).map_err(|e| e.line),
            Matrix::parse(&text).map(drop).map_err(|e| e.line),
            text.parse::<Sizes>().map(drop).map_err(|e| e.line),
        ];
        for read in read {
            match read {
                Ok(()) => good += 1,
                Err(line) => {
                    bad += 1;
                    assert!(
                        (1..=lines).contains(&line),
                        "seed {seed}: line {line} of {lines}"
                    );
                }
            }
        }
    }
    assert!(good > 500 && bad > 500, "{good} read, {bad} refused");
}

#[test]
fn a_host_that_crashes_fails_the_jobs_that_use_it() {
    use fabric_sim::Fault;
    use fabric_sim::fault::FaultKind;
    let ring = |hosts| {
        let kind = CollectiveKind::AllReduce(Algorithm::Ring);
        Collective::new(kind, hosts, 40_000_000).expect("is possible")
    };
    let mut sim = star(8);
    let hit = sim.add_job(job(ring(hosts(4))));
    let other = sim.add_job(job(ring((4..8).map(HostId).collect())));
    let crash = Fault::new(FaultKind::Crash { reroute: None }).on(HostId(2));
    let crash = crash.between(Span::from_ms(1), Span::from_ms(2));
    sim.add_fault(crash).expect("a host can crash");
    sim.run();
    assert!(sim.job(hit).failure.is_some() && sim.job(hit).end.is_none());
    assert!(sim.job(other).failure.is_none() && sim.job(other).end.is_some());
}
