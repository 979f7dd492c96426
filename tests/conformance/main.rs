//! docs/VERBS.md, checked: every rule has a test that exists, or a reason to have none. So has every line of
//! SECURITY.md's tables.
//! docs/BY-NAME.md names only what the crate has.
//! Prints how many rules and tests there are, by family.

mod by_name;
#[path = "../tidy/tree.rs"]
#[allow(dead_code, reason = "tidy uses more of it")]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tree::{files, report, root};

/// What a test's name in the table begins with, and the folder it stands for.
const FOLDERS: [(&str, &str); 11] = [
    ("verbs/", "tests/verbs/"),
    ("core/", "provider/core/tests/"),
    ("src/", "provider/core/src/"),
    ("api/", "provider/tests/"),
    ("urxe/", "provider/src/"),
    ("udp/", "provider/udp/tests/"),
    ("seal/", "provider/seal/tests/"),
    ("wire/", "wire/tests/"),
    ("abi/", "tests/abi/"),
    ("rsocket/", "abi/src/rsocket/"),
    ("sharing/", "tests/sharing/"),
];

struct Row {
    line: usize,
    id: String,
    tests: Vec<String>,
    status: String,
    note: String,
}

/// The rows of all tables, in order.
fn rows() -> Vec<Row> {
    let path = root().join("docs/VERBS.md");
    let text = fs::read_to_string(path).expect("docs/VERBS.md is there");
    (1..)
        .zip(text.lines())
        .filter_map(|(line, text)| row(line, text))
        .collect()
}

fn row(line: usize, text: &str) -> Option<Row> {
    let cells: Vec<&str> = text
        .strip_prefix('|')?
        .trim_end()
        .strip_suffix('|')?
        .split('|')
        .map(str::trim)
        .collect();
    let (family, number) = cells[0].split_once('-')?;
    let is_id = !family.is_empty()
        && family.chars().all(|c| c.is_ascii_uppercase())
        && number.parse::<u32>().is_ok();
    if !is_id {
        return None;
    }
    assert_eq!(cells.len(), 6, "docs/VERBS.md:{line}: six cells, please");
    let tests = cells[3].split(',').map(str::trim);
    Some(Row {
        line,
        id: cells[0].to_owned(),
        tests: tests.filter(|t| !t.is_empty()).map(str::to_owned).collect(),
        status: cells[4].to_owned(),
        note: cells[5].to_owned(),
    })
}

/// Names of the test functions in a source text.
fn tests_in(text: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_test = |line: &&str| *line == "#[test]" || line.starts_with("#[test] ");
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_test(line))
        .filter_map(|(at, _)| {
            // Other attributes may stand between.
            let name = lines[at..].iter().take(6).find_map(|line| {
                let start = line.find("fn ")? + 3;
                Some(&line[start..line[start..].find(['(', '<'])? + start])
            })?;
            Some(name.to_owned())
        })
        .collect()
}

/// Whether a test of the table exists.
fn check_test(name: &str) -> Result<(), String> {
    let (file, function) = name.split_once("::").ok_or("no `file::test`")?;
    let (prefix, folder) = FOLDERS
        .iter()
        .find(|(prefix, _)| file.starts_with(prefix))
        .ok_or("no such folder")?;
    let path = format!("{folder}{}.rs", &file[prefix.len()..]);
    let text = fs::read_to_string(root().join(&path)).map_err(|e| format!("{path}: {e}"))?;
    if tests_in(&text).contains(function) {
        Ok(())
    } else {
        Err(format!("{path} has no #[test] fn {function}"))
    }
}

#[test]
fn every_rule_has_a_test_or_a_reason_to_have_none() {
    let (mut faults, mut ids) = (Vec::new(), BTreeSet::new());
    let rows = rows();
    for row in &rows {
        let mut fault = |text: String| {
            faults.push(format!("docs/VERBS.md:{}: {}: {text}", row.line, row.id));
        };
        if !ids.insert(&row.id) {
            fault("the id is taken".to_owned());
        }
        for test in &row.tests {
            if let Err(reason) = check_test(test) {
                fault(format!("{test}: {reason}"));
            }
        }
        let has_tests = !row.tests.is_empty();
        match row.status.as_str() {
            "ok" if has_tests => {}
            "deviates" if has_tests && !row.note.is_empty() => {}
            "n/a" if !has_tests && !row.note.is_empty() => {}
            status => fault(format!("\"{status}\" with {} tests", row.tests.len())),
        }
    }
    report("docs/VERBS.md and the tests disagree", &faults);
    print_rules(&rows);
}

/// The last cell of every line of a table names tests, or says `none`.
#[test]
fn what_strangers_can_do_is_tested() {
    let path = root().join("SECURITY.md");
    let text = fs::read_to_string(path).expect("SECURITY.md is there");
    let (mut faults, mut tests) = (Vec::new(), 0);
    for (line, text) in (1..).zip(text.lines()) {
        let Some(cells) = text.strip_prefix('|').and_then(|t| t.strip_suffix('|')) else {
            continue;
        };
        let last = cells.rsplit('|').next().unwrap_or_default().trim();
        if ["tests", "none"].contains(&last) || last.chars().all(|c| c == '-') && !last.is_empty() {
            continue;
        }
        for test in last.split(',').map(str::trim) {
            tests += 1;
            if let Err(reason) = check_test(test) {
                faults.push(format!("SECURITY.md:{line}: {test}: {reason}"));
            }
        }
    }
    report("SECURITY.md and the tests disagree", &faults);
    assert!(tests > 20, "{tests} tests were found");
}

fn print_rules(rows: &[Row]) {
    let mut families: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    for row in rows {
        let family = row.id.split('-').next().unwrap_or_default();
        *families
            .entry(family)
            .or_default()
            .entry(&row.status)
            .or_default() += 1;
    }
    println!("rules by family:");
    for (family, counts) in &families {
        let counts: Vec<String> = counts.iter().map(|(s, n)| format!("{n} {s}")).collect();
        println!("  {family:<6} {}", counts.join(", "));
    }
    println!("{} rules", rows.len());
}

/// Tests by family: by file below `tests/verbs`, by crate elsewhere.
#[test]
fn every_family_has_tests() {
    let mut families: BTreeMap<String, usize> = BTreeMap::new();
    let mut empty = Vec::new();
    for file in files(&[".rs"]) {
        let count = tests_in(&file.text).len();
        let family = match file.path.strip_prefix("tests/verbs/") {
            Some(name) if !name.contains('/') => format!("verbs/{}", name.trim_end_matches(".rs")),
            _ => file
                .path
                .split(['/'])
                .take_while(|part| !["src", "tests"].contains(part) || file.path.starts_with(part))
                .filter(|part| !part.ends_with(".rs"))
                .collect::<Vec<_>>()
                .join("/"),
        };
        if count == 0 && family.starts_with("verbs/") && !["main", "verbs"].contains(&&family[6..])
        {
            empty.push(file.path.clone());
        }
        *families.entry(family).or_default() += count;
    }
    families.retain(|_, count| *count > 0);
    println!("tests by family (each of verbs/ runs on several arms):");
    for (family, count) in &families {
        println!("  {count:>4}  {family}");
    }
    println!("{} tests", families.values().sum::<usize>());
    report("a verbs family without tests", &empty);
}

#[test]
fn tests_are_found_behind_other_attributes() {
    let text = "#[test]\nfn one() {}\n    #[test]\n    #[should_panic]\n    fn two(\n#[test] fn three() {}\nfn four() {}";
    let found: Vec<String> = tests_in(text).into_iter().collect();
    assert_eq!(found, ["one", "three", "two"]);
}

#[test]
fn rows_are_read() {
    let row = row(7, "| RC-1 | a | b | core/x::y, src/z::w | ok | n |").expect("a row");
    assert_eq!((row.id.as_str(), row.tests.len()), ("RC-1", 2));
    assert!(self::row(1, "| id | rule |").is_none());
    assert!(self::row(1, "|---|---|").is_none());
}
