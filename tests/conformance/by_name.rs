//! docs/BY-NAME.md, checked: every Rust name in its tables is a public one of the crate `urxe`.

use std::collections::BTreeSet;

use crate::tree::{File, files, report, root};

/// What a file makes public: functions and types as `name`, methods, fields and constants as `Type::name`.
fn public_names(text: &str, names: &mut BTreeSet<String>) {
    let mut owner: Option<String> = None;
    for line in text.lines() {
        if line == "}" {
            owner = None;
        } else if line.starts_with("impl") {
            owner = implemented(line);
        }
        let is_method = line.starts_with("    pub ");
        let Some(item) = line.trim_start().strip_prefix("pub ") else {
            continue;
        };
        let words = item.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut words = words.filter(|word| !["unsafe", "const", "async"].contains(word));
        let (Some(kind), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        match (kind, &owner) {
            ("struct" | "enum", _) => {
                names.insert(name.to_owned());
            }
            ("fn", Some(owner)) if is_method => {
                names.insert(format!("{owner}::{name}"));
            }
            ("fn", None) => {
                names.insert(name.to_owned());
            }
            _ => {}
        }
    }
}

/// The type of an `impl` line: `impl<'a> Trait for Type<'a> {`.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(rest) => rest.split_once('>')?.1,
        None => rest,
    };
    let last = rest.rsplit(" for ").next()?.trim();
    let end = last.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(last[..end.unwrap_or(last.len())].to_owned())
}

/// The names of the public modules: those of `cm` begin with `cm::`.
fn crate_names() -> BTreeSet<String> {
    let sources = files(&[".rs"]);
    let in_folder = |file: &&File, folder: &str| file.path.starts_with(folder);
    let mut names = BTreeSet::new();
    let mut of_cm = BTreeSet::new();
    for file in sources.iter().filter(|f| in_folder(f, "provider/src/")) {
        if in_folder(&file, "provider/src/cm/") {
            public_names(&file.text, &mut of_cm);
        } else {
            public_names(&file.text, &mut names);
        }
    }
    // What the crate takes over from below, where it has no type of that name itself.
    let mut below = BTreeSet::new();
    for file in sources
        .iter()
        .filter(|f| in_folder(f, "provider/core/src/") || in_folder(f, "wire/src/"))
    {
        public_names(&file.text, &mut below);
    }
    below.retain(|name| !names.contains(name.split("::").next().unwrap_or_default()));
    names.extend(below);
    names.extend(of_cm.iter().map(|name| format!("cm::{name}")));
    names
}

/// The names in the second cells of the page's tables, with their lines.
fn named(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(cell) = line.strip_prefix("| ").and_then(|l| l.split(" | ").nth(1)) else {
            continue;
        };
        let parts = cell.split('`').skip(1).step_by(2);
        found.extend(parts.map(|name| (number, name.to_owned())));
    }
    found
}

#[test]
fn every_rust_name_beside_a_c_name_exists() {
    let path = root().join("docs/BY-NAME.md");
    let text = std::fs::read_to_string(path).expect("docs/BY-NAME.md is there");
    let (names, rows) = (crate_names(), named(&text));
    assert!(rows.len() > 100, "{} names were found", rows.len());
    let faults: Vec<String> = rows
        .iter()
        .filter(|(_, name)| !names.contains(name))
        .map(|(line, name)| format!("docs/BY-NAME.md:{line}: {name}"))
        .collect();
    report("the crate has no such name", &faults);
}

#[test]
fn names_are_found() {
    let mut names = BTreeSet::new();
    let text = "pub struct A;\nimpl<'a> A<'a> {\n    pub const fn one() {}\n    fn two() {}\n}\n\
                pub fn free() {}\n";
    public_names(text, &mut names);
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["A", "A::one", "free"]
    );
    assert_eq!(implemented("impl Drop for X {"), Some("X".to_owned()));
    assert_eq!(
        named("| C | Rust |\n| `c` | `A::b`, `d` | x |\n"),
        [(2, "A::b".to_owned()), (2, "d".to_owned())]
    );
}
