//! What of a suite does not run and pass, and why.

use std::fs;

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
        let stale = self.lines().filter(move |(word, pattern, _)| {
            *word != "leave" && !tests.clone().any(|test| matches(pattern, test))
        });
        stale.map(move |(_, pattern, _)| format!("{}: there is no {pattern}", self.name))
    }

    /// Word, pattern and reason.
    fn lines(self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        let lines = self.text.lines().filter(|line| !line.starts_with('#'));
        lines.map(move |line| {
            let parts = line.split_once(": ").and_then(|(left, reason)| {
                let (word, pattern) = left.split_once(' ')?;
                Some((word, pattern, reason))
            });
            parts.unwrap_or_else(|| panic!("{}: not \"WORD NAME: REASON\": {line}", self.name))
        })
    }

    /// Word and reason.
    pub(crate) fn line_about(self, name: &str) -> Option<(&'static str, &'static str)> {
        self.lines()
            .find(|(_, pattern, _)| matches(pattern, name))
            .map(|(word, _, reason)| (word, reason))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// As the suite itself looks for them.
fn has_huge_pages() -> bool {
    let count = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    count.is_ok_and(|count| count.trim() != "0")
}
