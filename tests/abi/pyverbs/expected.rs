//! What of a suite does not run and pass, and why.

use std::fs;

use crate::expected::{lines, matches};

/// A list of lines WORD NAME: REASON; the words are explained in `expected.txt`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The file, for what is said of it.
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

impl Expected {
    /// What is wrong with an outcome, if it is not the expected one.
    pub(crate) fn objection(self, test: &str, outcome: &str, is_root: bool) -> Option<String> {
        let line = self.line_about(test);
        let must_skip = match line {
            None => false,
            Some(("root", _)) => !is_root,
            Some(("pages", _)) => !has_huge_pages(),
            Some(("skip", _)) => true,
            Some((word, _)) => panic!("{}: what is \"{word}\"?", self.name),
        };
        let wanted = if must_skip { "skipped" } else { "ok" };
        (!outcome.starts_with(wanted))
            .then(|| format!("{test}: {outcome}, expected {wanted}: {line:?}"))
    }

    /// Lines that speak of no test that there is.
    pub(crate) fn stale_lines<'a>(
        self,
        tests: impl Iterator<Item = &'a String> + Clone,
    ) -> impl Iterator<Item = String> {
        let stale = lines(self.text).filter(move |(word, pattern, _)| {
            *word != "leave" && !tests.clone().any(|test| matches(pattern, test))
        });
        stale.map(move |(_, pattern, _)| format!("{}: there is no {pattern}", self.name))
    }

    /// Word and reason.
    pub(crate) fn line_about(self, name: &str) -> Option<(&'static str, &'static str)> {
        lines(self.text)
            .find(|(_, pattern, _)| matches(pattern, name))
            .map(|(word, _, reason)| (word, reason))
    }
}

/// As the suite itself looks for them.
fn has_huge_pages() -> bool {
    let count = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    count.is_ok_and(|count| count.trim() != "0")
}
