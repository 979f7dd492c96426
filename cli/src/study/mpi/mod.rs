//! What MPI gains from verbs: the measurements of the OSU suite through Open MPI and MPICH, over urxe and over their own TCP.

mod hosts;
mod library;
mod missing;

use super::book::{Cell, Claim, Document, Effort, Findings, Grid, Study, bytes};
use super::chart::{Kind, Picture, Series};
use crate::error::CliError;

use hosts::Hosts;
use library::{LIBRARIES, Over, Program};
use missing::Missing;

pub(super) const STUDY: Study = Study {
    name: "mpi",
    question: "What does an MPI gain from verbs, beside its own TCP?",
    claims: &[
        Claim {
            document: Document::Critique,
            says: "a message of MVAPICH by SEND and RECV takes 4.19 us on InfiniBand.",
        },
        Claim {
            document: Document::Critique,
            says: "what a network is worth to MPI shows in the matching, the copies and the progress that its library adds, not in the latency of raw verbs.",
        },
    ],
    measure,
};

/// A measurement of the suite: its name, the size, what the value is, its decimals, and whether more is better.
struct Measure {
    name: &'static str,
    size: usize,
    unit: &'static str,
    digits: usize,
    more_is_better: bool,
}

const fn of(
    name: &'static str,
    size: usize,
    unit: &'static str,
    digits: usize,
    more_is_better: bool,
) -> Measure {
    Measure {
        name,
        size,
        unit,
        digits,
        more_is_better,
    }
}

const MEASURES: [Measure; 6] = [
    of("osu_latency", 8, "us", 2, false),
    of("osu_latency", 16 << 10, "us", 2, false),
    of("osu_latency", 1 << 20, "us", 0, false),
    of("osu_bw", 1 << 20, "MB/s", 0, true),
    of("osu_mbw_mr", 8, "messages/s", 0, true),
    of("osu_iallreduce", 256 << 10, "% hidden", 0, true),
];

fn measure(effort: &Effort) -> Result<Findings, CliError> {
    let mut findings = Findings::default();
    for library in LIBRARIES {
        match library.compile()? {
            Ok(program) => {
                add(&mut findings, &program, effort, None)?;
                match Hosts::make(program.folder()) {
                    Ok(hosts) => add(&mut findings, &program, effort, Some(&hosts))?,
                    Err(Missing(what)) => findings.lacks.push(format!("{}: {what}", library.name)),
                }
            }
            Err(Missing(what)) => findings.lacks.push(what),
        }
    }
    if !findings.tables.is_empty() {
        findings.follows = follows();
    }
    Ok(findings)
}

fn add(
    findings: &mut Findings,
    program: &Program,
    effort: &Effort,
    hosts: Option<&Hosts>,
) -> Result<(), CliError> {
    let library = program.library;
    let (place, mark) = match hosts {
        Some(_) => (
            "one process on each of two hosts (network namespaces)",
            "-hosts",
        ),
        None => ("two processes of this host", ""),
    };
    let rounds = effort.pick(1, 5);
    let mut samples: [Vec<Vec<f64>>; 2] = Default::default();
    for _ in 0..rounds {
        for (over, samples) in [Over::Urxe, Over::Tcp].into_iter().zip(&mut samples) {
            let printed = program.run(over, effort.pick(1, 20), hosts)?;
            samples.push(values(&printed)?);
        }
    }
    let [urxe, tcp] = samples.map(|samples| medians(&samples));
    let title = format!(
        "{}, {place}: median of {rounds} runs by turns",
        library.name
    );
    let mut grid = Grid::new(
        title,
        &["", "bytes", "unit", "over urxe", "its TCP", "gain"],
    );
    for (n, measure) in MEASURES.iter().enumerate() {
        let gain = match measure.more_is_better {
            true => urxe[n] / tcp[n],
            false => tcp[n] / urxe[n],
        };
        grid.row(vec![
            Cell::text(measure.name),
            Cell::text(bytes(measure.size)),
            Cell::text(measure.unit),
            Cell::Number(urxe[n], measure.digits),
            Cell::Number(tcp[n], measure.digits),
            // Of shares there may be none.
            match gain.is_finite() {
                true => Cell::Number(gain, 2),
                false => Cell::text("-"),
            },
        ]);
    }
    findings.tables.push(grid);
    let latencies = |values: &[f64]| -> Vec<(f64, f64)> {
        let all = MEASURES.iter().zip(values);
        all.filter(|(measure, _)| measure.name == "osu_latency")
            .map(|(measure, &us)| (measure.size as f64, us))
            .collect()
    };
    findings.pictures.push(Picture {
        name: format!("mpi-{}{mark}", library.short),
        title: format!("Half a round trip of {}, {place}", library.name),
        x: "bytes".to_owned(),
        y: "microseconds".to_owned(),
        kind: Kind::Curves,
        series: vec![
            Series::new("over urxe", latencies(&urxe)),
            Series::new("over its TCP", latencies(&tcp)),
        ],
    });
    Ok(())
}

/// The values that the program printed, in the order of [`MEASURES`].
fn values(printed: &str) -> Result<Vec<f64>, CliError> {
    let value = |measure: &Measure| {
        let start = format!("{} {} ", measure.name, measure.size);
        let rest = printed.lines().find_map(|line| line.strip_prefix(&start));
        let value = rest.and_then(|rest| rest.trim().parse().ok());
        value.ok_or_else(|| {
            CliError::Failed(format!("the MPI program told no {start}in: {printed}"))
        })
    };
    MEASURES.iter().map(value).collect()
}

/// Of each measurement the median over the runs.
fn medians(samples: &[Vec<f64>]) -> Vec<f64> {
    let median = |n| {
        let mut of: Vec<f64> = samples.iter().map(|sample| sample[n]).collect();
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    (0..MEASURES.len()).map(median).collect()
}

fn follows() -> Vec<String> {
    vec![
        "Small messages gain most: between processes of one host urxe's packets go through memory, and a polling MPI makes no system call for them. The document's 4.19 us \
         is an adapter's and a wire's."
            .to_owned(),
        "Between two hosts urxe's packets are UDP datagrams. Its transport runs in the process and the kernel's TCP beside it, so a message costs what a datagram costs, and the \
         processors that both hosts share here."
            .to_owned(),
        "Large messages are two copies either way, by two processors at a time: they gain little, or lose."
            .to_owned(),
        "A collective that is not waited for makes progress when the library is called, over either: what is hidden behind work says how its library was built, \
         and not what the network can do (`urxe study overlap` has that)."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "osu_latency 8 1.500\nosu_latency 16384 9.000\nosu_latency 1048576 300.000\nosu_bw 1048576 5000.000\nosu_mbw_mr 8 1000000.000\n\
                           osu_iallreduce 262144 40.000\n";

    #[test]
    fn values_are_read_whatever_a_library_prints_beside_them() {
        let noisy = format!("a warning of a library\n{PRINTED}");
        assert_eq!(
            values(&noisy).expect("all are there"),
            [1.5, 9.0, 300.0, 5000.0, 1e6, 40.0]
        );
        let error = values(&PRINTED.replace("osu_bw", "bw")).expect_err("one is missing");
        assert!(error.to_string().contains("osu_bw 1048576"), "{error}");
    }

    #[test]
    fn a_slow_run_among_others_moves_no_median() {
        let usual = values(PRINTED).expect("all are there");
        let slow: Vec<f64> = usual.iter().map(|value| value * 100.0).collect();
        assert_eq!(medians(&[usual.clone(), slow, usual.clone()]), usual);
    }
}
