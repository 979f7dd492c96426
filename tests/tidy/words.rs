//! Rules about the words of comments and documents: processes, peers and threads are not persons.

use crate::tree::{File, files, report};

/// Words for persons, in lower case. A process, a peer or a caller is named by its noun.
const PERSONS: [&str; 14] = [
    "he",
    "him",
    "his",
    "himself",
    "whose",
    "whom",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "someone",
    "anyone",
    "everyone",
    "whoever",
];

/// What a line says to its readers: all of a document's line, the comment of a source line. Names in backticks
/// are code.
fn prose(file: &File, line: &str) -> String {
    let text = if file.path.ends_with(".md") {
        line
    } else {
        let marks = match file.path.rsplit('.').next() {
            Some("rs") => ["//", "//"],
            Some("c" | "h") => ["//", "/*"],
            _ => ["# ", "# "],
        };
        let start = marks.iter().filter_map(|mark| comment(line, mark)).min();
        start.map_or("", |start| &line[start..])
    };
    text.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// Where a comment begins: at the line's start, or after a space.
fn comment(line: &str, mark: &str) -> Option<usize> {
    let mut places = line.match_indices(mark).map(|(at, _)| at);
    places.find(|&at| at == 0 || line[..at].ends_with(char::is_whitespace))
}

fn persons(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .map(str::to_lowercase)
        .filter(|word| PERSONS.contains(&word.as_str()))
        .collect()
}

#[test]
fn processes_and_peers_are_not_persons() {
    let mut faults = Vec::new();
    for file in files(&[".rs", ".md", ".toml", ".c", ".h", ".py", "run", ".sh"]) {
        if file.path == "tests/tidy/words.rs" {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let mut words = persons(&prose(&file, line));
            if line.contains("/ The same, ") {
                words.push("The same, ".to_owned());
            }
            let found = words.iter();
            faults.extend(found.map(|word| format!("{}:{number}: {word}", file.path)));
        }
    }
    report(
        "a word for a person (name the process, peer, thread or caller)",
        &faults,
    );
}

#[test]
fn persons_are_found_in_prose_alone() {
    let file = |path: &str| File {
        path: path.to_owned(),
        text: String::new(),
    };
    let words = |path: &str, line: &str| persons(&prose(&file(path), line));
    assert_eq!(words("a.rs", "let he = 1; // Whoever polls"), ["whoever"]);
    assert_eq!(words("a.rs", "let nobody = \"http://he\";"), [""; 0]);
    assert_eq!(
        words("a.md", "The user `nobody`, and nobody's."),
        ["nobody"]
    );
    assert_eq!(words("a.c", "f(he); /* his */"), ["his"]);
}
