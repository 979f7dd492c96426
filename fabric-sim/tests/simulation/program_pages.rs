//! Pages for browsers of runs of programs: what is on them, flows among it, and that a run that fails has one.

use fabric_sim::fault::Fault;
use fabric_sim::program::{Simulation, ask, tell};
use urxe::{SendWr, WcStatus};

use crate::end::{End, options};
use crate::programs::{A, B, ping, pingpong, pong};

/// The flows on the page of a run, and how many packets left again as its contexts count it.
fn flows_of(sim: &mut Simulation, name: &str) -> (Vec<serde_json::Value>, u64) {
    let path = std::env::temp_dir().join(format!("urxe-{name}-{}.html", std::process::id()));
    sim.page(&path);
    let report = sim.run().expect("they end");
    let page = std::fs::read_to_string(&path).expect("a page");
    std::fs::remove_file(&path).expect("it is there");
    let data = page.split_once("<script type=\"application/json\" id=\"run\">");
    let data = data.and_then(|(_, rest)| rest.split_once("</script>"));
    let data: serde_json::Value = serde_json::from_str(data.expect("data").0).expect("JSON");
    let samples = data["samples"].as_u64().expect("a number");
    let flows = data["flows"].as_array().expect("a list").clone();
    for flow in &flows {
        // What arrived in each sample, with -n for n zeros, is all that arrived.
        let packed: Vec<i64> = flow["arrived"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|n| n.as_i64())
            .collect();
        let sum: i64 = packed.iter().filter(|n| **n > 0).sum();
        assert_eq!(Some(sum as u64), flow["bytes"].as_u64(), "{flow}");
        let len: i64 = packed.iter().map(|n| if *n < 0 { -n } else { 1 }).sum();
        assert_eq!(len as u64, samples);
    }
    (flows, report.counter("retransmitted_pkts"))
}

fn sent_again(flows: &[serde_json::Value]) -> u64 {
    let each = flows.iter().map(|flow| flow["sent_again"].as_u64());
    each.map(|count| count.expect("a number")).sum()
}

/// A message that finds no receive leaves again.
#[test]
fn the_page_of_a_run_has_the_flows_of_its_programs() {
    let mut sim = Simulation::new(3);
    pingpong(&mut sim, 20, 20_000);
    let (flows, again) = flows_of(&mut sim, "flows");
    let [there, back] = &flows[..] else {
        panic!("one each way: {flows:?}");
    };
    assert_eq!((&there["from"], &there["to"]), (&"h0".into(), &"h1".into()));
    assert_eq!((&back["from"], &back["to"]), (&"h1".into(), &"h0".into()));
    assert_eq!(sent_again(&flows), again);
    let qps = |flow: &serde_json::Value, at: usize| flow["qps"][at].as_u64().expect("a number");
    assert_eq!((qps(there, 0), qps(there, 1)), (qps(back, 1), qps(back, 0)));
    for flow in [there, back] {
        assert_eq!(flow["op"], "send");
        assert_eq!(flow["messages"], 20);
        assert_eq!(
            (&flow["bytes"], &flow["size"]),
            (&400_000.into(), &400_000.into())
        );
        // 20 messages of 20 KB at 100 Gb/s take 35 us and more, and as long between them.
        let took = flow["completion_us"].as_f64().expect("complete");
        let rate = flow["goodput_gbps"].as_f64().expect("complete");
        assert!((60.0..1000.0).contains(&took), "{took}");
        assert!(
            (rate * took / 8e-3 / 400_000.0 - 1.0).abs() < 0.01,
            "{rate}"
        );
    }
}

/// WRITEs, READs and atomics of a QP are flows of their own, and what losses have sent again is counted.
#[test]
fn flows_of_programs_are_told_by_operation_and_count_what_was_sent_again() {
    let mut sim = Simulation::new(4);
    sim.fault(Fault::loss(0.0).nth([20]).on(A));
    sim.host(A, || {
        let (end, _) = End::open(false);
        let (addr, rkey) = end.meet("a", "b", &options());
        let (data, word) = ([end.memory.sge(..50_000)], [end.memory.sge(..8)]);
        for wr in [
            SendWr::rdma_write(1, &data, addr, rkey),
            SendWr::rdma_write(2, &[], addr, rkey),
            SendWr::rdma_read(3, &data, addr, rkey),
            SendWr::atomic_fetch_add(4, &word, addr, rkey, 1).signaled(),
        ] {
            end.qp.post_send(&wr).expect("posts");
        }
        assert_eq!(end.wait().status, WcStatus::Success);
        tell("a has all", "");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        ask("a has all");
    });
    let (flows, again) = flows_of(&mut sim, "operations");
    let of = |op: &str| {
        let found = flows.iter().find(|flow| flow["op"] == op);
        let found = found.unwrap_or_else(|| panic!("{op}: {flows:?}"));
        let number = |key: &str| found[key].as_u64().expect("a number");
        assert!(found["completion_us"].is_number(), "{found}");
        (number("messages"), number("bytes"), number("size"))
    };
    assert_eq!(of("write"), (2, 50_000, 50_000));
    assert_eq!(of("read"), (1, 50_000, 50_000));
    assert_eq!(of("atomic"), (1, 8, 8));
    assert!(
        again > 0 && sent_again(&flows) >= again,
        "{again}: {flows:?}"
    );
}

/// The page of a run has its network and its queues, and what failed with what came before.
#[test]
fn a_run_has_a_page_also_if_it_fails() {
    let path = std::env::temp_dir().join(format!("urxe-page-{}.html", std::process::id()));
    for fails in [false, true] {
        let mut sim = Simulation::new(5);
        sim.fault(Fault::loss(0.0).nth([3])).page(&path);
        sim.host(A, || ping(20, 20_000));
        sim.host(B, move || {
            pong(20, 20_000);
            assert!(!fails, "one <thing> is wrong");
        });
        let result = sim.run();
        assert_eq!(result.is_err(), fails);
        let trace = result.map_or_else(|failure| failure.trace(), |report| report.trace());
        let mut again = Simulation::new(5);
        again.fault(Fault::loss(0.0).nth([3]));
        again.host(A, || ping(20, 20_000));
        again.host(B, move || {
            pong(20, 20_000);
            assert!(!fails, "one <thing> is wrong");
        });
        let result = again.run();
        let other = result.map_or_else(|failure| failure.trace(), |report| report.trace());
        assert_eq!(trace, other, "samples change nothing");
        let page = std::fs::read_to_string(&path).expect("a page");
        assert!(page.contains("\"name\":\"h1\"") && page.contains("Simulation::new(5)"));
        assert_eq!(
            page.contains("h1 panicked: one \\u003cthing> is wrong"),
            fails
        );
        assert_eq!(page.contains("h0 called last"), fails);
        let samples = page.split_once("\"samples\":").expect("a number").1;
        let samples: usize = samples[..samples.find(',').expect("more")]
            .parse()
            .expect("a number");
        assert!((50..=512).contains(&samples), "{samples}");
    }
    std::fs::remove_file(&path).expect("it is there");
    let mut nowhere = Simulation::new(5);
    nowhere.page("/proc/none/page.html").host(A, || ());
    let failure = nowhere.run().expect_err("there is no such place");
    assert!(
        failure
            .to_string()
            .contains("the page /proc/none/page.html"),
        "{failure}"
    );
}
