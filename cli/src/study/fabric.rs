//! What a lossless fabric does when more comes than goes, by the simulator.

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::scenario::{drops, gbps, run};
use crate::error::CliError;

pub(super) const STUDY: Study = Study {
    name: "fabric",
    question: "How is a link shared that is asked for twice what it has, and who else suffers?",
    claims: &[
        Claim {
            document: Document::Essay,
            says: "a switch with four gigabit ports, A and B send to C: overload by 2, and a fair share of 0.5 Gb/s each. It may be reached by dropping, \
                   by reservation at connect, by credits for each link, by pause and resume.",
        },
        Claim {
            document: Document::Essay,
            says: "schemes that need the cooperation of all are broken by one peer that misbehaves; bursts of lossy traffic hurt the lossless \
                   traffic beside it.",
        },
    ],
    measure,
};

/// Four hosts on a switch, a gigabit each.
const SWITCH: &str =
    "[topology]\nkind = \"single-switch\"\nhosts = 4\nrate = \"1Gbps\"\ncable = \"2m\"\n";
const BUFFER: &str = "[switch]\nbuffer = \"1MB\"\n";
const NAMES: [&str; 3] = ["pfc", "credits", "none"];

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let until = effort.pick("5ms", "100ms");
    let mut shares = Grid::new(
        "A and B send to C as fast as they can: payload in Gb/s (the link carries 0.926 of payload in frames of 1024 bytes)",
        &["flow control", "essay, each", "A", "B", "lost frames"],
    );
    let mut bars = [Vec::new(), Vec::new()];
    for name in NAMES {
        let report = run(&overload(name, until))?;
        let rates = [0, 1].map(|n| report.flows.get(n).map_or(0.0, gbps));
        shares.row(vec![
            Cell::text(name),
            Cell::Number(0.5, 1),
            Cell::Number(rates[0], 3),
            Cell::Number(rates[1], 3),
            Cell::Number(drops(&report) as f64, 0),
        ]);
        bars.iter_mut()
            .zip(rates)
            .for_each(|(all, rate)| all.push(rate));
    }
    let [a, b] = &bars;
    let picture = Picture {
        name: "fabric-shares".to_owned(),
        title: "A and B send to C over one gigabit".to_owned(),
        x: String::new(),
        y: "Gb/s of payload".to_owned(),
        kind: Kind::Bars(NAMES.map(str::to_owned).to_vec()),
        series: vec![Series::bars("A", a), Series::bars("B", b)],
    };
    let reserved = findings(
        "share",
        "reservation",
        "Reservation when a flow begins: 0.5 Gb/s for each, and a request for more is refused (`urxe sim experiments share`)",
    );
    let storm = findings(
        "storm",
        "",
        "A host pauses its port without end; a flow between two others (`urxe sim experiments storm`)",
    );
    let mut follows = vec![
        "Pause and credits share the link by halves and lose nothing. Without either the link is full too, but which flow loses is a matter of phases, and RDMA's \
         recovery pays for each lost frame (study loss)."
            .to_owned(),
    ];
    let beside = beside(until)?;
    follows.push(format!(
        "A class that loses nothing shares the link with classes that may: beside a lossy flow at full rate the lossless one had {:.2} of its rate alone. Weights of \
         classes decide that, not losslessness.",
        beside.1
    ));
    follows.push(
        "One host that pauses its port without end stops flows between others: its frames fill what switches have, and they pause all that send. A watchdog that \
         drops what waits for such a port gives the others their rate back."
            .to_owned(),
    );
    follows.push("`urxe sim experiments share unfairness victim storm headroom` has each with the expected numbers of papers; `urxe sim report` shows a scenario in a browser.".to_owned());
    Ok(Findings {
        tables: vec![shares, reserved, beside.0, storm],
        pictures: vec![picture],
        follows,
        lacks: Vec::new(),
    })
}

fn overload(flow_control: &str, until: &str) -> String {
    format!(
        "{SWITCH}{BUFFER}[sim]\nuntil = \"{until}\"\n[qos]\nflow_control = \"{flow_control}\"\n\
         [[flow]]\nop = \"frames\"\nfrom = [\"h0\", \"h1\"]\nto = \"h2\"\ndscp = 26\nstop = \"{until}\"\narrivals = \"greedy\"\n"
    )
}

/// What an experiment of the simulator found, of what begins so.
fn findings(experiment: &str, of: &str, title: &str) -> Grid {
    let mut grid = Grid::new(title, &["what", "unit", "expected", "measured"]);
    let all = fabric_sim::experiments::EXPERIMENTS.iter();
    let chosen = all.filter(|one| one.name == experiment);
    for finding in chosen.flat_map(|one| one.run()) {
        if finding.what.starts_with(of) {
            grid.row(vec![
                Cell::text(finding.what),
                Cell::text(finding.unit),
                Cell::number(finding.expected),
                Cell::number(finding.measured),
            ]);
        }
    }
    grid
}

/// A lossless flow alone, and beside a lossy one; what is left of it.
fn beside(until: &str) -> Result<(Grid, f64), CliError> {
    let mut grid = Grid::new(
        "RDMA WRITEs from A to C in a lossless class, alone and beside datagrams from B to C in a lossy one: Gb/s",
        &["beside it", "WRITEs", "datagrams", "lost frames"],
    );
    let mut rates = Vec::new();
    for (name, rate) in [
        ("nothing", None),
        ("0.5 Gb/s", Some("500Mbps")),
        ("1 Gb/s", Some("1Gbps")),
    ] {
        let lossy = rate.map_or_else(String::new, |rate| {
            format!(
                "[[flow]]\nop = \"frames\"\nfrom = \"h1\"\nto = \"h2\"\ndscp = 0\nstop = \"{until}\"\narrivals = \"poisson\"\nrate = \"{rate}\"\n"
            )
        });
        let text = format!(
            "{SWITCH}[sim]\nuntil = \"{until}\"\n{}{lossy}",
            writes("h0", "h2")
        );
        let report = run(&text)?;
        let of = |n: usize| report.flows.get(n).map_or(0.0, gbps);
        rates.push(of(0));
        grid.row(vec![
            Cell::text(name),
            Cell::Number(of(0), 3),
            Cell::Number(of(1), 3),
            Cell::Number(drops(&report) as f64, 0),
        ]);
    }
    Ok((grid, rates[2] / rates[0]))
}

/// WRITEs without end.
fn writes(from: &str, to: &str) -> String {
    format!(
        "[[flow]]\nop = \"write\"\nfrom = \"{from}\"\nto = \"{to}\"\nsize = \"64KB\"\ncount = 100000\ndepth = 4\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_half_the_rate_is_seen() {
        let rates = |text: &str| -> Vec<f64> {
            let report = run(text).expect("a scenario");
            report.flows.iter().map(gbps).collect()
        };
        let text = overload("pfc", "5ms");
        let planted = format!(
            "{text}[[fault]]\nkind = \"rate\"\nlink = \"h2-s0\"\nrate = \"500Mbps\"\n[checks]\nskip = [\"lossless\"]\n"
        );
        let (before, after) = (rates(&text), rates(&planted));
        for (before, after) in before.iter().zip(&after) {
            assert!((0.4..0.6).contains(&(after / before)), "{before} {after}");
        }
    }
}
