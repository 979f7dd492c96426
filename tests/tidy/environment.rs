//! `docs/ENVIRONMENT.md` against the code: each variable that is read is in its tables, and the other way round.

use std::collections::BTreeSet;

use crate::tree::{files, report};

#[test]
fn the_tables_of_variables_are_those_of_the_code() {
    let mut used = BTreeSet::new();
    for file in files(&[".rs"]) {
        used.extend(names(&file.text).filter_map(|(before, name)| {
            let is_string = before.ends_with('"');
            is_string.then_some(name)
        }));
    }
    let scripts = files(&["run", "soak", "sanitize", "measure", "measure-library"]);
    for script in scripts.iter().filter(|file| file.text.starts_with("#!")) {
        used.extend(names(&script.text).map(|(_, name)| name));
    }
    // Between a test and its processes; and this file's own words.
    used.retain(|name| name != "URXE_" && !name.starts_with("URXE_TEST_"));
    let page = files(&["ENVIRONMENT.md"]).remove(0);
    let rows = page
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| Some(row.split_once('`')?.0.to_owned()))
        .collect();
    let missing = used
        .difference(&listed)
        .map(|name| format!("{name}: in the code, not in the tables"));
    let unused = listed
        .difference(&used)
        .map(|name| format!("{name}: in the tables, not in the code"));
    report(
        "docs/ENVIRONMENT.md",
        &missing.chain(unused).collect::<Vec<_>>(),
    );
}

/// Names of variables in a text, each with what stands before it.
fn names(text: &str) -> impl Iterator<Item = (&str, String)> {
    let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
    text.match_indices("URXE_").map(move |(start, _)| {
        let rest = &text[start..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        (&text[..start], rest[..end].to_owned())
    })
}
