//! Rules about the documents: links lead somewhere, the changelog has its place for the next change.

use std::collections::BTreeSet;
use std::path::Path;

use crate::tree::{File, files, report, root};

#[test]
fn links_lead_somewhere() {
    let mut faults = Vec::new();
    for file in files(&[".md"]) {
        for (number, target) in links(&file.text) {
            if let Err(fault) = check_link(&file, target) {
                faults.push(format!("{}:{number}: {target}: {fault}", file.path));
            }
        }
    }
    report("a link is dead", &faults);
}

fn check_link(file: &File, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
    let full = if path.is_empty() {
        root().join(&file.path)
    } else {
        root().join(folder).join(path)
    };
    if !full.exists() {
        return Err("no such file".to_owned());
    }
    if !anchor.is_empty() {
        let text = std::fs::read_to_string(&full).map_err(|e| e.to_string())?;
        if !anchors(&text).contains(anchor) {
            return Err("no such heading".to_owned());
        }
    }
    Ok(())
}

/// A source file that a document names by its whole path exists: a document is mended when a file moves.
#[test]
fn files_that_documents_name_exist() {
    let folders = [
        "abi/",
        "cli/",
        "fabric-sim/",
        "fuzz/",
        "preload/",
        "provider/",
        "tests/",
        "wire/",
    ];
    let mut faults = Vec::new();
    for file in files(&[".md"]).iter().filter(|f| f.path != "CHANGELOG.md") {
        for (number, line) in (1..).zip(file.text.lines()) {
            let names = line.split('`').skip(1).step_by(2);
            let paths = names.filter(|name| {
                name.ends_with(".rs") && folders.iter().any(|folder| name.starts_with(folder))
            });
            let dead = paths.filter(|path| !root().join(path).is_file());
            faults.extend(dead.map(|path| format!("{}:{number}: {path}", file.path)));
        }
    }
    report("a document names a file that is not there", &faults);
}

/// Inline links, as (line, target). Code blocks are left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            found.push((number, rest[..end].trim()));
            rest = &rest[end..];
        }
    }
    found
}

/// Headings as the names that a link uses for them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(name).collect()
}

#[test]
fn the_changelog_has_a_place_for_the_next_change() {
    let changelog = files(&["CHANGELOG.md"]).remove(0);
    assert!(
        changelog.text.contains("\n## [Unreleased]\n"),
        "CHANGELOG.md: no [Unreleased] section"
    );
}

#[test]
fn the_promised_documents_exist() {
    let mut faults = Vec::new();
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "deny.toml",
    ]
    .into_iter()
    .chain([
        "ARCHITECTURE",
        "WIRE",
        "CONCURRENCY",
        "SAFETY",
        "TESTING",
        "PERFORMANCE",
        "SIMULATION",
    ]) {
        let path = if name.chars().all(|c| c.is_ascii_uppercase()) {
            format!("docs/{name}.md")
        } else {
            name.to_owned()
        };
        if !root().join(&path).is_file() {
            faults.push(path);
        }
    }
    report("missing", &faults);
}

/// What a README's reader is told is what was measured: each number beside a command of `urxe bench` is in
/// docs/PERFORMANCE.md, in the row of the same command.
#[test]
fn the_readmes_numbers_are_those_that_were_measured() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let (readme, performance) = (read("README.md"), read("docs/PERFORMANCE.md"));
    let mut faults = Vec::new();
    let mut rows = 0;
    for row in readme
        .lines()
        .filter(|line| line.starts_with("| `urxe bench"))
    {
        rows += 1;
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let command = cells.next().unwrap_or_default();
        let measured = performance
            .lines()
            .find(|line| line.starts_with(&format!("| {command} |")))
            .unwrap_or_default();
        let measured: BTreeSet<&str> = measured.split('|').map(str::trim).collect();
        let numbers = cells.filter_map(|cell| cell.split_whitespace().next());
        for number in numbers.filter(|number| !measured.contains(number)) {
            faults.push(format!("{command}: {number}"));
        }
    }
    assert!(rows >= 3, "the README has {rows} numbers");
    report(
        "README.md has numbers that docs/PERFORMANCE.md has not",
        &faults,
    );
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# A b-c\n[x](y.md#z) and [u](v)\n```\n[no](link)\n```\n";
    assert_eq!(links(text), [(2, "y.md#z"), (2, "v")]);
    assert!(anchors(text).contains("a-b-c"));
}
