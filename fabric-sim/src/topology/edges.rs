//! Topologies as text: a cable a line.

use core::str::FromStr;

use crate::engine::{Rate, Span};
use crate::link::Link;
use crate::topology::{Node, Topology, TopologyError};

/// What is wrong with a list of cables, and in which line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct EdgeError {
    /// Counted from 1; 0 if it is the whole that is wrong.
    pub line: usize,
    /// In words.
    pub fault: String,
}

impl FromStr for Topology {
    type Err = EdgeError;

    /// Reads one cable a line: `h0 leaf0 100Gbps 30m`. Names that begin with `h` are hosts, all others
    /// switches. Empty lines and what follows a `#` do not count.
    ///
    /// ```
    /// use fabric_sim::Topology;
    /// let t: Topology = "h0 tor 25Gbps 3m  # a rack\nh1 tor 25Gbps 3m".parse()?;
    /// assert_eq!((t.host_count(), t.switch_count()), (2, 1));
    /// # Ok::<(), fabric_sim::topology::EdgeError>(())
    /// ```
    fn from_str(text: &str) -> Result<Topology, EdgeError> {
        let mut topology = Topology::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default();
            let fail = |fault: String| EdgeError { line, fault };
            let words: Vec<&str> = content.split_whitespace().collect();
            match words[..] {
                [] => {}
                [a, b, rate, length] => {
                    let rate: Rate = rate.parse().map_err(|e| fail(format!("{e}")))?;
                    let delay = cable_delay(length).map_err(fail)?;
                    let (a, b) = (topology.named(a), topology.named(b));
                    topology.connect(
                        a,
                        b,
                        Link {
                            delay,
                            ..Link::new(rate)
                        },
                    );
                }
                _ => {
                    return Err(fail(format!(
                        "{:?} is not NODE NODE RATE LENGTH",
                        content.trim()
                    )));
                }
            }
        }
        topology.check().map_err(|error: TopologyError| EdgeError {
            line: 0,
            fault: error.to_string(),
        })?;
        Ok(topology)
    }
}

/// A length in metres (`30m`) or a delay (`150ns`).
///
/// # Errors
/// The text is neither.
pub(crate) fn cable_delay(text: &str) -> Result<Span, String> {
    if let Some(metres) = text
        .strip_suffix('m')
        .and_then(|number| number.parse::<u64>().ok())
        && metres < 1_000_000_000
    {
        return Ok(Span::of_cable(metres));
    }
    text.parse()
        .map_err(|_| format!("{text:?} is not a length like 30m or a delay like 150ns"))
}

impl Topology {
    fn named(&mut self, name: &str) -> Node {
        match self.find(name) {
            Some(node) => node,
            None if name.starts_with('h') => self.add_host(name).into(),
            None => self.add_switch(name).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_name_their_line() {
        let fault = |text: &str| text.parse::<Topology>().expect_err(text).to_string();
        assert_eq!(
            fault("h0 s0 1Gbps\n"),
            "line 1: \"h0 s0 1Gbps\" is not NODE NODE RATE LENGTH"
        );
        assert!(fault("\nh0 s0 1Gb 3m").starts_with("line 2: \"1Gb\" is not a rate"));
        assert!(fault("h0 s0 1Gbps 3km").starts_with("line 1: \"3km\" is not a length"));
        assert!(fault(&"h0 s0 1Gbps 3m\n".repeat(9)).contains("host h0 has 9 cables"));
        assert!(fault("# nothing").contains("no host"));
        let ok: Topology = "h0 h1 1Gbps 150ns".parse().expect("reads");
        assert_eq!(ok.cables()[0].link.delay, Span::from_ns(150));
    }
}
