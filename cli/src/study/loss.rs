//! Lost packets, cables that fail, and long roads: what ends a connection, and what is only slow.

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::child::{json, number};
use super::scenario::{drops, outcome, run};
use crate::error::CliError;

pub(super) const STUDY: Study = Study {
    name: "loss",
    question: "What does a lost packet end, and what does it cost, near and far?",
    claims: &[
        Claim {
            document: Document::Essay,
            says: "a lost packet is fatal: the receiver has an expected number, and anything out of order ends the connection. So a cable that fails now \
                   and then makes a loop of ends and new connections.",
        },
        Claim {
            document: Document::Answers,
            says: "RoCE in software over a wide area: \"I think it will work\", with a performance that is not known.",
        },
    ],
    measure,
};

/// A WRITE of 64 KB at a time, over one cable.
const CABLE: &str = "[topology]\nkind = \"back-to-back\"\nrate = \"25Gbps\"\ncable = \"10m\"\n\
                     [[flow]]\nop = \"write\"\nfrom = \"h0\"\nto = \"h1\"\nsize = \"64KB\"\ncount = 500\ndepth = 4\n";

/// Losses of the road, in percent.
const LOSSES: [f64; 4] = [0.0, 0.1, 1.0, 5.0];

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let (one, pair) = one_loss()?;
    let cable = cable()?;
    let (road, curve) = road(effort)?;
    let carried: Vec<String> = curve
        .iter()
        .zip(LOSSES)
        .map(|(ratio, loss)| format!("{:.0} % at {loss} %", 100.0 * ratio))
        .collect();
    let names = LOSSES.map(|loss| format!("{loss} % lost")).to_vec();
    let picture = Picture {
        name: "loss-road".to_owned(),
        title: "WRITEs of 64 KiB over 200 Mb/s and 20 ms".to_owned(),
        x: String::new(),
        y: "parts of what the road carries".to_owned(),
        kind: Kind::Bars(names),
        series: vec![Series::bars("urxe", &curve)],
    };
    Ok(Findings {
        tables: vec![one, cable, road],
        pictures: vec![picture],
        follows: vec![
            format!(
                "A loss is fatal only if no retry is left (retry_cnt 0), which is the essay's scheme; with retries the same loss costs {:.0} us. \
                 The surprise for the essay is that RC, as the standard has it, numbers packets to send them again, not to hang up.",
                pair[1] - pair[0]
            ),
            "A cable that is down for less than all retries together is only a delay: the number of retries and the timeout, 4.096 us times 2 to its power, are \
             for the program to set. It should choose them longer than what its network needs to find another way."
                .to_owned(),
            format!(
                "The road answers the question of the wide area: of what is left by the losses, 20 ms away, RDMA WRITEs have {}. docs/LOSS.md says what does it.",
                carried.join(", ")
            ),
        ],
        lacks: Vec::new(),
    })
}

/// One lost packet, with retries and without; the times of the transfer without and with it, in microseconds.
fn one_loss() -> Result<(Grid, [f64; 2]), CliError> {
    let mut grid = Grid::new(
        "32 MB over 25 Gb/s, and packet 5000 is lost (simulated)",
        &["lost", "retry_cnt", "essay", "outcome", "us"],
    );
    let mut times = [0.0; 2];
    let loss = "[[fault]]\nkind = \"loss\"\nnth = [5000]\nport = \"h0>h1\"\n";
    let cases = [("none", 7, ""), ("one", 7, loss), ("one", 0, loss)];
    for (n, (lost, retries, fault)) in cases.into_iter().enumerate() {
        let host = format!("[host]\nretry_cnt = {retries}\n");
        let report = run(&format!("{CABLE}{host}{fault}"))?;
        let flow = &report.flows[0];
        let us = flow.completion.map(|span| span.as_secs_f64() * 1e6);
        if let (Some(place), Some(us)) = (times.get_mut(n), us) {
            *place = us;
        }
        grid.row(vec![
            Cell::text(lost),
            Cell::Number(f64::from(retries), 0),
            Cell::text(if fault.is_empty() {
                "complete"
            } else {
                "ended"
            }),
            outcome(flow),
            us.map_or(Cell::text("-"), |us| Cell::Number(us, 0)),
        ]);
    }
    Ok((grid, times))
}

/// A cable that is down once, and again and again.
fn cable() -> Result<Grid, CliError> {
    let mut grid = Grid::new(
        "The same while the cable is down, with a timeout of 16.8 ms (code 12) and 7 retries (simulated)",
        &["cable", "essay", "outcome", "ms", "lost frames"],
    );
    let once = |to: &str| format!("from = \"2ms\"\nto = \"{to}\"\n");
    let cases = [
        ("up", None),
        ("down for 1 ms", Some(once("3ms"))),
        ("down for 50 ms", Some(once("52ms"))),
        ("down for 2 s", Some(once("2002ms"))),
        (
            "1 ms down, 5 ms up, again and again",
            Some("down = \"1ms\"\nup = \"5ms\"\n".to_owned()),
        ),
    ];
    for (name, window) in cases {
        let fault = window.map_or_else(String::new, |window| {
            format!("[[fault]]\nkind = \"link-down\"\nlink = \"h0-h1\"\n{window}")
        });
        let is_up = fault.is_empty();
        let checks = "[sim]\nuntil = \"60s\"\n";
        let report = run(&format!("{CABLE}{checks}{fault}"))?;
        let flow = &report.flows[0];
        let ms = flow.completion.map(|span| span.as_secs_f64() * 1e3);
        grid.row(vec![
            Cell::text(name),
            Cell::text(if is_up { "complete" } else { "ended" }),
            outcome(flow),
            ms.map_or(Cell::text("-"), |ms| Cell::Number(ms, 1)),
            Cell::Number(drops(&report) as f64, 0),
        ]);
    }
    Ok(grid)
}

/// A long road that loses packets, with this machine's sockets; parts of what it carries.
fn road(effort: &Effort) -> Result<(Grid, Vec<f64>), CliError> {
    let mut grid = Grid::new(
        "WRITEs of 64 KiB over a road of 200 Mb/s and 20 ms, both ways lossy (`urxe bench write --road`)",
        &["loss %", "Mbit/s", "road Mbit/s", "of the road"],
    );
    let mut curve = Vec::new();
    for loss in LOSSES {
        let road = match loss {
            0.0 => "rate=200M,rtt=20ms".to_owned(),
            _ => format!("rate=200M,rtt=20ms,loss={loss}%"),
        };
        let mut args = vec!["bench", "write", "--road", &road];
        match effort.is_quick {
            true => args.extend(["--iters", "20"]),
            false => args.extend(["--duration", "10"]),
        }
        let report = json(&args)?;
        let [ours, carries, ratio] =
            ["gbit_per_s", "road_gbit_per_s", "ratio"].map(|field| number(&report, field));
        let (ours, carries, ratio) = (ours?, carries?, ratio?);
        grid.row(vec![
            Cell::number(loss),
            Cell::Number(1e3 * ours, 1),
            Cell::Number(1e3 * carries, 1),
            Cell::Number(ratio, 2),
        ]);
        curve.push(ratio);
    }
    Ok((grid, curve))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_planted_ends_or_delays() {
        let (grid, [without, with]) = one_loss().expect("simulated");
        assert!(0.0 < without && without < with, "{without} {with}");
        let outcomes: Vec<String> = grid.rows.iter().map(|row| row[3].shown()).collect();
        assert_eq!(outcomes[..2], ["complete", "complete"]);
        assert_ne!(outcomes[2], "complete");
    }

    #[test]
    fn a_cable_that_is_down_longer_than_all_retries_ends_a_connection() {
        let grid = cable().expect("simulated");
        let is_complete: Vec<bool> = grid
            .rows
            .iter()
            .map(|row| row[2].shown() == "complete")
            .collect();
        assert_eq!(is_complete, [true, true, true, false, true], "{grid:?}");
    }
}
