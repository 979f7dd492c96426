//! docs/LEARN.md: each of its commands is run, and prints what the document says. Numbers may differ.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{binary, project_file, run};
use crate::loopback_pair;
use crate::sim::Folder;

/// A command of the document, and the lines that it prints there.
#[derive(Debug)]
struct Block {
    line: usize,
    command: String,
    printed: Vec<String>,
}

/// The commands of blocks that are marked as a console's.
fn blocks(document: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (line, text) in (1..).zip(document.lines()) {
        match (text, is_inside) {
            ("```console", false) => is_inside = true,
            ("```", true) => is_inside = false,
            (_, false) => {}
            (text, true) => match (text.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push(Block {
                    line,
                    command: command.to_owned(),
                    printed: Vec::new(),
                }),
                (None, Some(block)) => block.printed.push(text.to_owned()),
                (None, None) => panic!("line {line}: a console begins with a command"),
            },
        }
    }
    found
}

/// A line without what differs between runs: words with a digit are `#`.
fn shape(line: &str) -> String {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let words = line.split_whitespace();
    let words = words.map(|word| if has_digit(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The document's machine has nothing else to do.
const BUSY: &str = "urxe: note: other programs use ";

/// Whether the lines are printed in this order; `...` stands for any lines.
fn check(expected: &[String], printed: &str) -> Result<(), String> {
    let is_of_it = |line: &&str| !line.starts_with(BUSY);
    let printed: Vec<String> = printed.lines().filter(is_of_it).map(shape).collect();
    let mut rest = &printed[..];
    let mut may_skip = false;
    for line in expected {
        if line == "..." {
            may_skip = true;
            continue;
        }
        let wanted = shape(line);
        let place = rest.iter().position(|line| *line == wanted);
        match place {
            Some(place) if may_skip || place == 0 => rest = &rest[place + 1..],
            _ => return Err(format!("expected {wanted:?}, found {:?}", rest.first())),
        }
        may_skip = false;
    }
    match rest.first() {
        Some(more) if !may_skip => Err(format!("more is printed: {more:?}")),
        _ => Ok(()),
    }
}

/// A shell in that folder that finds the two commands of the document.
fn shell(folder: &Path, programs: &[&Path]) -> Command {
    let folders = programs
        .iter()
        .map(|program| program.parent().expect("a path"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = folders
        .map(Path::to_owned)
        .chain(std::env::split_paths(&path))
        .collect();
    let mut shell = Command::new("sh");
    shell.current_dir(folder);
    shell.env("PATH", std::env::join_paths(all).expect("no colons"));
    shell
}

#[test]
fn every_command_prints_what_the_lesson_shows() {
    let document = std::fs::read_to_string(project_file("docs/LEARN.md")).expect("it is there");
    let learn = Path::new(env!("CARGO_BIN_EXE_learn"));
    let folder = Folder::new("learn");
    let _pair = loopback_pair();
    let blocks = blocks(&document);
    assert!(blocks.len() >= 10, "too few commands: {blocks:?}");
    for block in blocks {
        let Block {
            line,
            command,
            printed,
        } = block;
        if command.starts_with("tshark ") && !has_tshark() {
            println!("skipped: {command}: tshark is missing (apt-get install tshark)");
            continue;
        }
        // Where the buffer is changed too early a busy machine may show the other message: the lesson says that it works by luck.
        let runs = if command == "learn too-early" { 5 } else { 1 };
        let try_once = || {
            let mut shell = shell(&folder.0, &[binary(), learn]);
            // As a terminal has them: one after the other.
            let ran = run(shell.arg("-c").arg(format!("exec 2>&1; {command}")));
            check(&printed, &ran.stdout).map_err(|why| format!("{why}\n{}", ran.stdout))
        };
        let shown = (1..runs).fold(try_once(), |shown, _| shown.or_else(|_| try_once()));
        if let Err(why) = shown {
            panic!("docs/LEARN.md:{line}: {command}: {why}");
        }
    }
}

fn has_tshark() -> bool {
    Command::new("tshark").arg("--version").output().is_ok()
}

#[test]
fn lines_are_compared_without_their_numbers() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let printed = "a 12 us\nQP 0x1a2b3c: 5/128, psn 7\nend\n";
    for good in [
        "a 3.5 us\nQP 0xffffff: 55/128, psn 0\nend",
        "...\nend",
        "a 1 us\n...",
        "a 1 us\n...\nend",
    ] {
        assert_eq!(check(&lines(good), printed), Ok(()), "{good}");
    }
    for bad in ["a 12 us\nend", "a 12 ms\n...", "...\nfin", "a 1 us", ""] {
        assert!(check(&lines(bad), printed).is_err(), "{bad}");
    }
}
