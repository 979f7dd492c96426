//! `urxe bench`: that each measurement works and says what it promises. Its numbers are not judged here.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Running, binary, children, kill, project_file, run, urxe, wait_until};
use crate::loopback_pair;

fn bench(args: &[&str]) -> Value {
    let _pair = loopback_pair();
    let ran = run(urxe().arg("bench").args(args).arg("--json")).expect_success();
    serde_json::from_str(&ran.stdout).expect("--json prints JSON")
}

#[test]
fn bandwidth_of_each_operation() {
    for op in ["send", "write", "read"] {
        for mtu in ["1024", "4096"] {
            let result = bench(&[op, "--size", "10000", "--iters", "200", "--mtu", mtu]);
            assert_eq!(result["op"], op);
            assert_eq!(result["size"], 10000);
            assert_eq!(result["mtu"].as_u64(), mtu.parse().ok());
            for name in ["gbit_per_s", "msg_per_s", "floor_gbit_per_s", "ratio"] {
                assert!(result[name].as_f64() > Some(0.0), "{name}: {result}");
            }
            assert!(result["lat_us_p50"].is_null(), "{result}");
        }
    }
}

/// Two processes of one user: their packets go through memory, and beside that is what copies through memory do.
#[test]
fn the_floor_in_memory_is_beside_what_goes_through_memory() {
    for (args, floor) in [
        (&["write", "--size", "10000"][..], "memory_floor_gbit_per_s"),
        (&["send", "--lat", "--size", "8"], "memory_floor_lat_us_p50"),
    ] {
        let args = [args, &["--iters", "200"]].concat();
        let result = bench(&args);
        for name in [floor, "memory_ratio"] {
            assert!(result[name].as_f64() > Some(0.0), "{name}: {result}");
        }
        let result = bench(&[&args[..], &["--wire", "sockets"]].concat());
        assert!(result[floor].is_null() && result["memory_ratio"].is_null());
    }
}

#[test]
fn atomics_are_counted() {
    let result = bench(&["atomic", "--iters", "200"]);
    assert_eq!(result["size"], 8);
    assert!(result["msg_per_s"].as_f64() > Some(0.0), "{result}");
}

#[test]
fn latency_of_each_operation() {
    for op in ["send", "write", "read", "atomic"] {
        let result = bench(&[op, "--lat", "--size", "8", "--iters", "200"]);
        for name in ["lat_us_p50", "floor_lat_us_p50", "ratio"] {
            assert!(result[name].as_f64() > Some(0.0), "{op} {name}: {result}");
        }
        assert!(result["gbit_per_s"].is_null(), "{result}");
    }
}

#[test]
fn sleeping_for_events() {
    let result = bench(&["send", "--lat", "--event", "--size", "8", "--iters", "100"]);
    assert!(result["lat_us_p50"].as_f64() > Some(0.0), "{result}");
}

#[test]
fn completing_each_message_first() {
    for op in ["send", "write"] {
        let result = bench(&[op, "--lat", "--signaled", "--size", "8", "--iters", "100"]);
        assert!(result["lat_us_p50"].as_f64() > Some(0.0), "{result}");
    }
    let ran = run(urxe().args(["bench", "read", "--lat", "--signaled"]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--signaled"), "{ran:?}");
}

#[test]
fn both_processes_on_one_address() {
    let _pair = loopback_pair();
    for more in [&["--lat", "--size", "8"][..], &["--size", "4096"]] {
        let args = ["bench", "send", "--one-address", "--iters", "100"];
        let ran = run(urxe().args(args).args(more)).expect_success();
        assert!(ran.stdout.contains("both sides on one address"), "{ran:?}");
    }
}

#[test]
fn fairness_says_the_share_of_each_and_how_long_the_small_ones_wait() {
    let tiny = ["fairness", "--qps", "3", "--size", "8192", "--iters", "20"];
    let result = bench(&tiny);
    assert_eq!(result["qps"], 3);
    assert_eq!(
        result["bytes"].as_array().map(Vec::len),
        Some(3),
        "{result}"
    );
    for name in [
        "min_percent",
        "max_percent",
        "spread_percent",
        "gbit_per_s",
        "alone_us_p50",
        "alone_us_p99",
        "beside_us_p50",
        "beside_us_p99",
        "ratio_p50",
        "ratio_p99",
    ] {
        assert!(result[name].as_f64() >= Some(0.0), "{name}: {result}");
    }
    let _pair = loopback_pair();
    let text = run(urxe().arg("bench").args(tiny)).expect_success().stdout;
    for part in ["alone", "beside", "p99 us", "spread", "Gbit/s"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

#[test]
fn shards_says_how_many_more_messages_there_are() {
    let tiny = ["shards", "--threads", "3", "--shards", "2", "--iters", "20"];
    let result = bench(&tiny);
    assert_eq!(
        (&result["threads"], &result["shards"]),
        (&3.into(), &2.into())
    );
    for name in [
        "one_shard_msg_per_s",
        "shards_msg_per_s",
        "ratio",
        "ratio_min",
        "ratio_max",
    ] {
        assert!(result[name].as_f64() > Some(0.0), "{name}: {result}");
    }
    let _pair = loopback_pair();
    let text = run(urxe().arg("bench").args(tiny)).expect_success().stdout;
    for part in ["3 threads", "shards", "M msg/s", "ratio"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

#[test]
fn the_table_says_what_the_ratio_is() {
    let _pair = loopback_pair();
    let ran = run(urxe().args(["bench", "write", "--size", "4096", "--iters", "100"]));
    let stdout = ran.expect_success().stdout;
    assert!(
        stdout.contains("floor") && stdout.contains("ratio"),
        "{stdout}"
    );
}

#[test]
fn a_road_between_the_two_processes() {
    let road = "rate=100M,rtt=4ms,loss=5%,seed=3";
    let result = bench(&["write", "--iters", "80", "--road", road]);
    assert_eq!(result["faults"], "drop=5%,delay=2ms,rate=100M,seed=3");
    assert_eq!(result["size"], 65536);
    // 100 Mb/s without headers.
    let carries = result["road_gbit_per_s"].as_f64();
    assert!(carries > Some(0.09) && carries < Some(0.1), "{result}");
    for name in ["gbit_per_s", "msg_per_s", "ratio", "lost"] {
        assert!(result[name].as_f64() > Some(0.0), "{name}: {result}");
    }
    // The data is the other side's: 20 READs of 16 packets, of which the road loses some.
    let read = bench(&["read", "--iters", "20", "--road", road]);
    assert!(read["peer_packets"].as_u64() > Some(20 * 16), "{read}");
    assert!(read["peer_lost"].as_u64() > Some(0), "{read}");
    assert!(result["packets"].as_u64() > Some(80 * 16), "{result}");

    let road = "rate=100M,rtt=4ms";
    for op in ["send", "write", "read", "atomic"] {
        let result = bench(&[op, "--lat", "--iters", "20", "--road", road]);
        let shortest = Some(4000.0);
        assert!(
            result["round_trip_us_p50"].as_f64() >= shortest
                && result["round_trip_us_p99"].as_f64() >= shortest,
            "{result}"
        );
        assert_eq!(result["road_rtt_us"].as_f64(), shortest);
        assert_eq!(result["lost"], 0);
    }
    let _pair = loopback_pair();
    let args = ["bench", "send", "--iters", "40", "--road", road];
    let text = run(urxe().args(args)).expect_success().stdout;
    for part in ["Mbit/s", "road", "ratio", "delay=2ms,rate=100M,seed=1"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

#[test]
fn a_road_that_is_none_is_a_clear_error() {
    for (args, what) in [
        (&["--road", "rate=1G"][..], "a road is rate=RATE,rtt=TIME"),
        (&["--road", "rate=1G,rtt=5"], "rtt=5: a time is"),
        (&["--road", "rate=fast,rtt=5ms"], "rate=fast: a rate is"),
        (&["--road", "rate=1G,rtt=5ms,loss=2"], "loss=2: a share is"),
        (&["--road", "rate=1G,rtt=5ms", "--wire", "auto"], "--wire"),
    ] {
        let ran = run(urxe().args(["bench", "write"]).args(args));
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(what), "{args:?}: {ran:?}");
    }
}

/// Server and client on two hosts, which two network namespaces are here.
#[test]
fn between_two_hosts() {
    let script = project_file("tests/cli/two_hosts.sh");
    for args in [
        &["write", "-s", "64k", "-n", "100"][..],
        &["send", "--lat", "-n", "100"],
        &["read", "-D", "200ms", "--wire", "sockets"],
    ] {
        let mut command = std::process::Command::new(&script);
        command.arg(binary()).arg("bench").args(args).arg("--json");
        let ran = run(&mut command);
        if ran.code == Some(77) {
            println!("skipped: no network namespaces with a cable can be made here");
            return;
        }
        let ran = ran.expect_success();
        let result: Value = serde_json::from_str(&ran.stdout).expect("--json prints JSON");
        // What an Ethernet of 1500 bytes can carry.
        assert_eq!(result["mtu"], 1024, "{result}");
        let measured = ["gbit_per_s", "lat_us_p50"].map(|name| result[name].as_f64());
        assert!(measured.iter().any(|value| *value > Some(0.0)), "{result}");
        assert!(result["ratio"].is_null(), "no floor: {result}");
    }
}

/// What only one side decides is not asked of the other, and a server that is not there is told of.
#[test]
fn a_server_and_its_client_have_options_of_their_own() {
    for (args, code, part) in [
        (
            &["--server", "localhost", "--size", "8"][..],
            2,
            "the client says",
        ),
        (&["write", "--server", "localhost"], 2, "the client says"),
        (
            &["write", "--connect", "localhost", "--one-address"],
            2,
            "cannot be used",
        ),
        (&["write", "--connect", "no such host"], 2, "no known host"),
        (
            &["write", "--connect", "localhost", "-p", "9"],
            1,
            "cannot connect to 127.0.0.1:9",
        ),
    ] {
        let ran = run(urxe().arg("bench").args(args));
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_killed_target_is_a_clear_error() {
    let _pair = loopback_pair();
    for args in [
        &["write"][..],
        &["send", "--lat"],
        &["read", "--lat", "--event"],
    ] {
        let bench = Running::start(urxe().arg("bench").args(args).args(["--iters", "50000000"]));
        let mut target = None;
        wait_until("the target runs and its engine works", || {
            target = children(bench.id()).into_iter().map(|(id, _)| id).next();
            let threads = target.map(|id| std::fs::read_dir(format!("/proc/{id}/task")));
            threads.is_some_and(|threads| threads.is_ok_and(|threads| threads.count() > 1))
        });
        kill(target.expect("it runs"), Signal::KILL);
        let ran = bench.finish();
        assert_eq!(ran.code, Some(1), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("urxe: "), "{args:?}: {ran:?}");
    }
}
