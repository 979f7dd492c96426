//! What the library exports, against the list that it is built from.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::library;

/// "NAME@@NODE" of every line of symbols.txt.
fn wanted() -> BTreeSet<String> {
    include_str!("../../abi/symbols.txt")
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let (node, name) = (words.next(), words.next());
            format!("{}@@{}", name.expect("a name"), node.expect("a node"))
        })
        .collect()
}

#[test]
fn exactly_the_listed_symbols_are_exported_with_their_versions() {
    let file = library().join("libibverbs.so.1");
    let Ok(nm) = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&file)
        .output()
    else {
        println!("skipped: nm is missing (apt-get install binutils)");
        return;
    };
    assert!(
        nm.status.success(),
        "{}",
        String::from_utf8_lossy(&nm.stderr)
    );
    let text = String::from_utf8(nm.stdout).expect("names");
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        // The version nodes themselves are listed too.
        .filter(|name| name.contains("@@"))
        .map(str::to_owned)
        .collect();
    let wanted = wanted();
    assert!(wanted.len() > 200, "{} symbols", wanted.len());
    let difference: Vec<_> = exported.symmetric_difference(&wanted).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

#[test]
fn both_names_are_one_file() {
    let target = |name: &str| std::fs::canonicalize(library().join(name)).expect("it is there");
    assert_eq!(target("libibverbs.so.1"), target("librdmacm.so.1"));
}
