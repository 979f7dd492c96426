//! What a study is, and what it finds: the same frame for all.

use serde::{Serialize, Serializer};

use super::chart::Picture;
use crate::error::CliError;

/// A question of the founding documents that can be measured.
pub(super) struct Study {
    pub(super) name: &'static str,
    pub(super) question: &'static str,
    /// What the documents say to it, with their own numbers.
    pub(super) claims: &'static [Claim],
    pub(super) measure: fn(&Effort) -> Result<Findings, CliError>,
}

/// A statement of a document.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Claim {
    pub(super) document: Document,
    pub(super) says: &'static str,
}

/// The documents behind the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Document {
    /// A critique of RDMA as what MPI is built on.
    Critique,
    /// A slide deck that introduces RDMA programming.
    Deck,
    /// An introduction with questions and answers.
    Answers,
    /// An essay on fabrics and their security.
    Essay,
}

impl Document {
    fn name(self) -> &'static str {
        match self {
            Document::Critique => "the critique",
            Document::Deck => "the deck",
            Document::Answers => "the answers",
            Document::Essay => "the essay",
        }
    }

    /// `the deck says`, before what it says.
    pub(super) fn says(self) -> String {
        let verb = match self {
            Document::Answers => "say",
            _ => "says",
        };
        format!("{} {verb}", self.name())
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Few and short samples: whether it runs at all.
    pub(super) is_quick: bool,
}

impl Effort {
    /// One of two values: the first for a smoke test.
    pub(super) fn pick<T>(self, quick: T, whole: T) -> T {
        if self.is_quick { quick } else { whole }
    }
}

/// What a study has found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Findings {
    pub(super) tables: Vec<Grid>,
    pub(super) pictures: Vec<Picture>,
    /// What follows for the author of a program, and what explains a surprise.
    pub(super) follows: Vec<String>,
    /// What was missing for the rest, and how to get it.
    pub(super) lacks: Vec<String>,
}

/// A table with a title. The first column names the rows.
#[derive(Debug, Serialize)]
pub(super) struct Grid {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Grid {
    pub(super) fn new(title: impl Into<String>, columns: &[&str]) -> Grid {
        Grid {
            title: title.into(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has one cell a column.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "one cell a column");
        self.rows.push(cells);
    }
}

/// What is in a table: a number keeps its value for programs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    /// A number, and how many decimals people see.
    Number(f64, usize),
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// With three digits or so that count.
    pub(super) fn number(value: f64) -> Cell {
        let digits = match value.abs() {
            _ if value.fract() == 0.0 => 0,
            100.0.. => 0,
            10.0.. => 1,
            1.0.. => 2,
            _ => 3,
        };
        Cell::Number(value, digits)
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(value, digits) => format!("{value:.digits$}"),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => serializer.serialize_str(text),
            Cell::Number(value, _) => serializer.serialize_f64(*value),
        }
    }
}

/// A study that has run.
#[derive(Debug, Serialize)]
pub(super) struct Chapter {
    pub(super) name: &'static str,
    pub(super) question: &'static str,
    pub(super) documents: &'static [Claim],
    #[serde(flatten)]
    pub(super) findings: Findings,
    pub(super) seconds: f64,
}

/// Bytes, as tables have them: `64`, `4k`, `1M`.
pub(super) fn bytes(size: usize) -> String {
    match size {
        _ if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        _ if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{}k", size >> 10),
        _ => size.to_string(),
    }
}

/// A size between those of a table.
pub(super) fn about(size: f64) -> String {
    format!("about {:.0} KiB", size / 1024.0)
}

/// Where a curve that begins below another comes to lie above it: the place on the x axis, between the two points where it
/// does. `None` if it does not.
pub(super) fn crossing(first: &[(f64, f64)], second: &[(f64, f64)]) -> Option<f64> {
    let ratios: Vec<(f64, f64)> = first
        .iter()
        .zip(second)
        .map(|(&(x, one), &(_, two))| (x, (one / two).ln()))
        .collect();
    ratios.windows(2).find_map(|pair| {
        let [(x0, r0), (x1, r1)] = [pair[0], pair[1]];
        let is_crossed = r0 != 0.0 && (r0 < 0.0) != (r1 < 0.0);
        // Between them on a logarithmic axis.
        is_crossed.then(|| (x0.ln() + (x1.ln() - x0.ln()) * r0 / (r0 - r1)).exp())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_is_between_its_points() {
        let flat = [(1.0, 10.0), (10.0, 10.0), (100.0, 10.0)];
        let rising = [(1.0, 1.0), (10.0, 5.0), (100.0, 50.0)];
        let at = crossing(&rising, &flat).expect("they cross");
        assert!(10.0 < at && at < 100.0, "{at}");
        assert_eq!(crossing(&flat, &rising), Some(at), "in either order");
        let above = rising.map(|(x, y)| (x, y + 10.0));
        assert_eq!(crossing(&above, &flat), None);
        // A cost that is planted moves it.
        let dearer = flat.map(|(x, y)| (x, y * 2.0));
        assert!(crossing(&rising, &dearer).expect("they cross") > at);
    }

    #[test]
    fn cells_keep_their_values() {
        let cells = vec![
            Cell::number(0.12345),
            Cell::number(1234.5),
            Cell::text("none"),
        ];
        let shown: Vec<String> = cells.iter().map(Cell::shown).collect();
        assert_eq!(shown, ["0.123", "1234", "none"]);
        let json = serde_json::to_string(&cells).expect("plain data");
        assert_eq!(json, "[0.12345,1234.5,\"none\"]");
        assert_eq!(
            [64, 4096, 1 << 20, 1500].map(bytes),
            ["64", "4k", "1M", "1500"]
        );
    }
}
