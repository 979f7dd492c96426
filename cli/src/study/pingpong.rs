//! The deck's four ping-pongs, with its table.

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study};
use super::chart::{Kind, Picture, Series};
use super::child::{json, number};
use crate::error::CliError;

pub(super) const STUDY: Study = Study {
    name: "pingpong",
    question: "What does a round trip cost, in time and in processors, by each of the four ways to do one?",
    claims: &[
        Claim {
            document: Document::Deck,
            says: "on QDR InfiniBand through a switch: SEND/RECV polling 15.7 us with 100 % of a processor at each end; sleeping 21.1 us \
                   with 18 % and 21 %; WRITE and READ 14.3 us with 29.4 % and none at the server; with unsignaled WRITEs 8.3 us with \
                   30.8 % and none.",
        },
        Claim {
            document: Document::Deck,
            says: "so by time: unsignaled, WRITE/READ, polling, sleeping; by processors: sleeping, WRITE/READ, unsignaled, polling.",
        },
    ],
    measure,
};

/// A way: what the command calls it, its name, and what the deck measured: microseconds, client's and server's CPU.
const WAYS: [(&str, &str, [f64; 3]); 4] = [
    ("send-recv-poll", "SEND/RECV, polling", [15.7, 100.0, 100.0]),
    (
        "send-recv-notify",
        "SEND/RECV, sleeping",
        [21.1, 18.1, 21.0],
    ),
    (
        "write-read-notify",
        "WRITE/READ, sleeping",
        [14.3, 29.4, 0.0],
    ),
    (
        "write-read-unsignaled",
        "WRITE unsignaled/READ, sleeping",
        [8.3, 30.8, 0.0],
    ),
];

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let wires = ["sockets", "auto"];
    let results = wires.map(|wire| ways(wire, effort));
    let [sockets, memory] = results;
    let (sockets, memory) = (sockets?, memory?);
    let mut grid = Grid::new(
        "Round trips of 64 bytes: the median in microseconds, and the share of a processor (user and system) in percent",
        &[
            "way",
            "deck us",
            "sockets us",
            "memory us",
            "deck client",
            "sockets client",
            "memory client",
            "deck server",
            "sockets server",
            "memory server",
        ],
    );
    for (n, (_, name, deck)) in WAYS.iter().enumerate() {
        let mut row = vec![Cell::text(*name)];
        for (value, &of_deck) in deck.iter().enumerate() {
            let digits = usize::from(value == 0);
            row.push(Cell::number(of_deck));
            row.push(Cell::Number(sockets[n][value], digits));
            row.push(Cell::Number(memory[n][value], digits));
        }
        grid.row(row);
    }
    let deck = WAYS.map(|(_, _, deck)| deck);
    let mut ranks = Grid::new("From least to most", &["of", "deck", "sockets", "memory"]);
    for (value, name) in ["time", "client's processors"].into_iter().enumerate() {
        let order = |of: &[[f64; 3]; 4]| Cell::text(order(of, value));
        ranks.row(vec![
            Cell::text(name),
            order(&deck),
            order(&sockets),
            order(&memory),
        ]);
    }
    let times = |of: &[[f64; 3]; 4]| of.map(|values| values[0]);
    let picture = Picture {
        name: "pingpong".to_owned(),
        title: "A round trip of 64 bytes".to_owned(),
        x: String::new(),
        y: "microseconds".to_owned(),
        kind: Kind::Bars(WAYS.map(|(_, name, _)| name.to_owned()).to_vec()),
        series: vec![
            Series::bars("the deck, QDR InfiniBand", &times(&deck)),
            Series::bars("urxe through sockets", &times(&sockets)),
            Series::bars("urxe through memory", &times(&memory)),
        ],
    };
    Ok(Findings {
        tables: vec![grid, ranks],
        pictures: vec![picture],
        follows: follows(&sockets, &memory),
        lacks: Vec::new(),
    })
}

/// Time, client's and server's CPU of each way, over a wire.
fn ways(wire: &str, effort: &Effort) -> Result<[[f64; 3]; 4], CliError> {
    let mut args = vec!["pingpong", "--wire", wire];
    if effort.is_quick {
        args.extend(["--iters", "20"]);
    }
    let report = json(&args)?;
    let mut found = [[0.0; 3]; 4];
    for (place, (name, ..)) in found.iter_mut().zip(WAYS) {
        let rows = report["rows"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["variant"] == name);
        let row = row.ok_or_else(|| CliError::Failed(format!("no result of {name}")))?;
        let both = |side: &str| {
            let of = |kind: &str| number(row, &format!("{side}_cpu_{kind}"));
            Ok::<_, CliError>(of("user")? + of("sys")?)
        };
        *place = [number(row, "rtt_us_p50")?, both("client")?, both("server")?];
    }
    Ok(found)
}

/// The ways from the least of a value to the most.
fn order(of: &[[f64; 3]; 4], value: usize) -> String {
    let names = ["polling", "sleeping", "WRITE/READ", "unsignaled"];
    let mut places = [0, 1, 2, 3];
    places.sort_by(|&a, &b| of[a][value].total_cmp(&of[b][value]));
    places.map(|place| names[place]).join(", ")
}

fn follows(sockets: &[[f64; 3]; 4], memory: &[[f64; 3]; 4]) -> Vec<String> {
    let saved = |of: &[[f64; 3]; 4]| 100.0 * (1.0 - of[3][0] / of[2][0]);
    let ratio = |of: &[[f64; 3]; 4]| of[1][0] / of[0][0];
    let mut follows = vec![
        format!(
            "Unsignaled WRITEs save a wait for an ACK in each round: {:.0} % of the time through sockets and {:.0} % through memory, 42 % in the deck. A program that \
             reads after it writes should not ask for the completion of the WRITE.",
            saved(sockets),
            saved(memory)
        ),
        format!(
            "Sleeping takes {:.1} times the time of polling through sockets and {:.1} times through memory; 1.3 times in the deck. There the adapters' own time is most of \
             a round either way; here a wake-up by the kernel is.",
            ratio(sockets),
            ratio(memory)
        ),
    ];
    if [sockets, memory].iter().any(|of| of[2][0] > of[0][0]) {
        follows.push(
            "The surprise: WRITE/READ comes behind SEND/RECV by polling, while the deck has it in front. An adapter serves WRITE and READ while the server sleeps; here \
             the engine's thread at the server does, and the kernel has to wake it for each: the server's share of a processor is not 0, and a round has several \
             wake-ups one after the other. Where latency counts, both ends of a program on urxe poll."
                .to_owned(),
        );
    }
    follows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decks_own_numbers_have_the_decks_order() {
        let deck = WAYS.map(|(_, _, deck)| deck);
        assert_eq!(order(&deck, 0), "unsignaled, WRITE/READ, polling, sleeping");
        assert_eq!(order(&deck, 1), "sleeping, WRITE/READ, unsignaled, polling");
    }
}
