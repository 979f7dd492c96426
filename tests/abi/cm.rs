//! Programs that connect by addresses: those that come with librdmacm, and others that use it.

use std::time::{Duration, Instant};

use crate::c_program::compile;
use crate::cm_ends::{Talking, cm_ends, command};
use crate::ends::{User, alone, loopback};
use crate::harness::{LIMIT, Ran, port, run, wait_for_listener};

const UTILS: &str = "rdmacm-utils";

fn utils(user: User, server: &str, client: &str) -> Option<(String, String)> {
    cm_ends(user, UTILS, server, client)
}

#[test]
fn rping_verifies_its_data() {
    for (size, count) in [("64", "50"), ("65535", "100")] {
        let end = format!("-a ADDR -p PORT -S {size} -C {count} -V");
        utils(
            User::Myself,
            &format!("rping -s {end}"),
            &format!("rping -c {end}"),
        );
    }
}

/// Printing what went over the connection, a thousand times.
#[test]
fn rping_a_thousand_times() {
    let end = "-a ADDR -p PORT -v -C 1000";
    let Some((_, client)) = utils(
        User::Myself,
        &format!("rping -s {end}"),
        &format!("rping -c {end}"),
    ) else {
        return;
    };
    let pings = client.matches("ping data:").count();
    assert_eq!(pings, 1000);
}

/// `-q`: the program brings its queue pair from state to state by `rdma_init_qp_attr`, and says `rdma_establish`.
#[test]
fn rping_with_its_own_queue_pair() {
    let end = "-a ADDR -p PORT -C 20 -V -q";
    utils(
        User::Myself,
        &format!("rping -s {end}"),
        &format!("rping -c {end}"),
    );
}

#[test]
fn ucmatose_one_and_many() {
    for options in ["", "-c 50", "-c 4 -C 20 -S 4096", "-m", "-a 14 -t 8"] {
        utils(
            User::Myself,
            &format!("ucmatose -b ADDR -p PORT {options}"),
            &format!("ucmatose -b ADDR -s ADDR -p PORT {options}"),
        );
    }
}

/// The client is not told its own address, nor the server where to listen.
#[test]
fn ucmatose_on_all_addresses() {
    utils(User::Myself, "ucmatose -p PORT", "ucmatose -s ADDR -p PORT");
}

#[test]
fn udaddy_exchanges_datagrams() {
    for options in ["", "-c 4 -C 5 -S 1000"] {
        utils(
            User::Myself,
            &format!("udaddy -b ADDR {options}"),
            &format!("udaddy -b ADDR -s ADDR {options}"),
        );
    }
}

#[test]
fn rdma_client_and_server() {
    utils(
        User::Myself,
        "rdma_server -s ADDR -p PORT",
        "rdma_client -s ADDR -p PORT",
    );
}

#[test]
fn rdma_xclient_and_xserver() {
    for service in ["r", "x"] {
        utils(
            User::Myself,
            &format!("rdma_xserver -p PORT -c {service}"),
            &format!("rdma_xclient -s ADDR -p PORT -c {service}"),
        );
    }
}

/// Runs cmtime with so many connections at once, made and ended. Its server serves until it is ended.
fn cmtime(count: usize) -> Option<(Talking, Ran)> {
    let port = port();
    let end = format!("cmtime -b ADDR -p PORT -c {count}");
    let server = Talking::start(command(User::Myself, UTILS, &end, &port)?);
    let start = Instant::now();
    let client = loop {
        let line = format!("{end} -s ADDR");
        let ran = run(command(User::Myself, UTILS, &line, &port).expect("it was there"));
        // There was no listener yet.
        if ran.code == Some(0) || start.elapsed() > LIMIT {
            break ran;
        }
    };
    Some((server, client))
}

/// The drop-in library gives memory back as the Rust API does.
#[test]
fn a_server_is_small_again_after_thousands_of_connections() {
    const SMALL_KIB: u64 = 4096;
    let _alone = alone();
    let Some((server, client)) = cmtime(6000) else {
        return;
    };
    assert_eq!(client.code, Some(0), "{client:?}");
    let memory = |name| server.memory_kib(name).expect("it goes on serving");
    let peak = memory("VmHWM") - memory("RssFile");
    if peak < SMALL_KIB + 2048 {
        // Some end before the others begin, where the server has a processor for itself.
        println!("skipped: too few were there at once, in {peak} KiB");
        return;
    }
    let start = Instant::now();
    loop {
        let now = memory("RssAnon");
        if now < SMALL_KIB {
            println!("{peak} KiB, and {now} after {:?}", start.elapsed());
            break;
        }
        let waited = start.elapsed();
        assert!(waited < LIMIT, "{peak} KiB, and {now} after {waited:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn cmtime_makes_a_thousand_connections() {
    let _alone = alone();
    let Some((server, client)) = cmtime(1000) else {
        return;
    };
    drop(server);
    assert_eq!(client.code, Some(0), "{client:?}");
    // Its table: a line for each step, and the time of all in milliseconds first.
    let total_ms = |step: &str| {
        let row = client.text.lines().find_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            (name.trim() == step).then_some(numbers)
        });
        let total = row.and_then(|row| row.split_whitespace().next()?.parse::<f64>().ok());
        total.unwrap_or_else(|| panic!("no {step}: {client:?}"))
    };
    let steps = [
        "create id",
        "bind addr",
        "resolve addr",
        "resolve route",
        "create qp",
        "connect",
        "disconnect",
        "destroy",
    ];
    let all: f64 = steps.map(total_ms).iter().sum();
    println!("{}{:.0} connections a second", client.text, 1e6 / all);
}

#[test]
fn all_over_ipv6() {
    let _loopback = loopback();
    for (server, client) in [
        (
            "rping -s -a ADDR6 -p PORT -C 20 -V",
            "rping -c -a ADDR6 -p PORT -C 20 -V",
        ),
        (
            "ucmatose -b ADDR6 -p PORT -c 5",
            "ucmatose -b ADDR6 -s ADDR6 -p PORT -c 5",
        ),
        ("udaddy -b ADDR6", "udaddy -b ADDR6 -s ADDR6"),
        (
            "rdma_server -s ADDR6 -p PORT",
            "rdma_client -s ADDR6 -p PORT",
        ),
        (
            "rstream -b ADDR6 -p PORT -T v -I 10 -C 1 -S 8000",
            "rstream -s ADDR6 -p PORT -T v -I 10 -C 1 -S 8000",
        ),
    ] {
        utils(User::Myself, server, client);
    }
}

#[test]
fn as_an_ordinary_user() {
    if !User::Nobody.is_available() {
        return;
    }
    for (server, client) in [
        (
            "rping -s -a ADDR -p PORT -C 20 -V",
            "rping -c -a ADDR -p PORT -C 20 -V",
        ),
        (
            "ucmatose -b ADDR -p PORT -c 5",
            "ucmatose -b ADDR -s ADDR -p PORT -c 5",
        ),
        ("udaddy -b ADDR", "udaddy -b ADDR -s ADDR"),
        ("rdma_server -s ADDR -p PORT", "rdma_client -s ADDR -p PORT"),
    ] {
        utils(User::Nobody, server, client);
    }
}

/// Two that listen to a group, and one that sends to it.
#[test]
fn mckey_reaches_every_member() {
    let _alone = alone();
    let port = port();
    let member = |more: &str| {
        let line = format!("stdbuf -oL mckey -m 239.20.30.40 -b ADDR {more}");
        command(User::Myself, UTILS, "mckey", &port)?;
        command(User::Myself, "coreutils", &line, &port)
    };
    let mut receivers = Vec::new();
    for _ in 0..2 {
        let Some(receiver) = member("") else {
            return;
        };
        receivers.push(Talking::start(receiver));
    }
    for receiver in &mut receivers {
        receiver.wait_for("joined dgid");
        receiver.wait_for("receiving data transfers");
    }
    let sender = Talking::start(member("-s").expect("it was there"));
    let start = Instant::now();
    for ran in receivers.into_iter().chain([sender]).map(Talking::finish) {
        assert_eq!(ran.code, Some(0), "{}", ran.text);
        assert!(ran.text.contains("return status 0"), "{}", ran.text);
    }
    assert!(start.elapsed() < LIMIT);
}

/// What `examples/` shows.
#[test]
fn the_example_in_c() {
    let Some(compiled) = compile("../examples/cm_pingpong.c", &["-lrdmacm", "-libverbs"]) else {
        return;
    };
    let binary = &compiled.binary;
    let ends = cm_ends(
        User::Myself,
        "gcc",
        &format!("{binary} - PORT"),
        &format!("{binary} ADDR PORT"),
    );
    let (server, client) = ends.expect("it was just made");
    assert!(server.contains("RDMA_CM_EVENT_DISCONNECTED"), "{server}");
    assert!(client.contains("1000 messages"), "{client}");
}

/// The listener hands each of three clients to an agent of its own.
#[test]
fn the_example_of_the_three_roles() {
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    let Some(compiled) = compile("../examples/roles.c", &libraries) else {
        return;
    };
    let port = port();
    let run = |arguments: &str| {
        let line = format!("{} {arguments}", compiled.binary);
        command(User::Myself, "gcc", &line, &port).expect("it was just made")
    };
    let mut listener = Talking::start(run("listen PORT 3"));
    listener.wait_for("listening");
    let clients = [0; 3].map(|_| Talking::start(run("client ADDR PORT")));
    for ran in clients.into_iter().map(Talking::finish) {
        assert_eq!(ran.code, Some(0), "{}", ran.text);
        assert!(ran.text.contains("client: 100 messages"), "{}", ran.text);
    }
    let ran = listener.finish();
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert_eq!(
        ran.text
            .matches("agent: 100 messages, RDMA_CM_EVENT_DISCONNECTED")
            .count(),
        3,
        "{}",
        ran.text
    );
}

/// A program that ends without closing: its peer hears of it. What a forked child of it does is not its end.
#[test]
fn the_exit_of_a_process_ends_its_connections() {
    let Some(compiled) = compile("abi/leave.c", &["-lrdmacm", "-libverbs"]) else {
        return;
    };
    let binary = &compiled.binary;
    for fork in ["", "fork"] {
        let (server, _) = cm_ends(
            User::Myself,
            "gcc",
            &format!("{binary} serve ADDR PORT"),
            &format!("{binary} go ADDR PORT {fork}"),
        )
        .expect("it was just made");
        assert!(server.contains("disconnected"), "{fork}: {server}");
    }
}

/// A port without a listener refuses at once: no connection is waited for in vain.
#[test]
fn nobody_listens() {
    let port = port();
    let client = "rping -c -a ADDR -p PORT -C 1";
    let Some(command) = command(User::Myself, UTILS, client, &port) else {
        return;
    };
    let start = Instant::now();
    let ran = run(command);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text.contains("REJECTED"), "{ran:?}");
    assert!(start.elapsed().as_secs() < 10, "{ran:?}");
}

/// qperf brings its sides together by TCP, and the queue pairs by addresses (`-cm 1`). Its server tells the client the port
/// before it listens there: a client that is faster than that is refused, and tries again.
#[test]
fn qperf_by_addresses() {
    let _alone = alone();
    let port = port();
    let Some(server) = command(User::Myself, "qperf", "qperf -lp PORT", &port) else {
        return;
    };
    let server = Talking::start(server);
    wait_for_listener(&port);
    for test in ["rc_rdma_write_bw", "rc_bw"] {
        let line = format!("qperf -lp PORT ADDR -cm 1 -t 1 {test}");
        let start = Instant::now();
        let ran = loop {
            let client = command(User::Myself, "qperf", &line, &port).expect("it was there");
            let ran = run(client);
            let is_refused = ran.text.contains("Event rejected");
            if !is_refused || start.elapsed() > LIMIT {
                break ran;
            }
        };
        assert_eq!(ran.code, Some(0), "{test}: {ran:?}\n{}", server.said());
        assert!(ran.text.contains(test), "{ran:?}");
    }
}
