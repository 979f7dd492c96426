//! The terminal that the README shows: its commands run, and print what it says, up to numbers.

use std::fmt::Write as _;
use std::process::Command;

use crate::ends::{alone, loopback};
use crate::harness::{finish, library, program, run, urxe, wait_for_listener};

/// The TCP port at which ibverbs-utils' programs meet by default.
const MEETING: &str = "18515";

/// A command of the terminal, and the lines below it.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The commands of the README's `console` block.
fn steps() -> Vec<Step> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(path).expect("there is a README");
    let block = readme.split("```console\n").nth(1).expect("a terminal");
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines().take_while(|line| *line != "```") {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step {
                command: command.to_owned(),
                shown: Vec::new(),
            }),
            None => {
                let step = steps.last_mut().expect("a command comes first");
                step.shown.push(line.to_owned());
            }
        }
    }
    steps
}

/// A line without what differs between runs: words that hold a digit become `#`.
fn form(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        if word.contains(|c: char| c.is_ascii_digit()) {
            "#"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether the README's lines are those that were printed; `...` stands for any others.
fn is_shown(shown: &[String], printed: &str) -> bool {
    let end = shown.iter().position(|line| line == "...");
    let printed: Vec<String> = printed.lines().map(form).collect();
    let expected: Vec<String> = shown[..end.unwrap_or(shown.len())]
        .iter()
        .map(|line| form(line))
        .collect();
    match end {
        Some(_) => printed.starts_with(&expected),
        None => printed == expected,
    }
}

/// The command as a shell runs it, with the `urxe` of this build, in an empty folder.
fn shell(command: &str, folder: &std::path::Path) -> Command {
    let urxe = urxe();
    let bin = std::path::Path::new(urxe.get_program()).parent();
    let mut path = bin.expect("it is in a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell
        .args(["-o", "pipefail", "-c", command])
        .current_dir(folder)
        .env("PATH", path)
        .env("URXE_LIB_DIR", library())
        .stdin(std::process::Stdio::null());
    shell
}

#[test]
fn the_readme_shows_what_its_commands_print() {
    let (_loopback, _alone) = (loopback(), alone());
    let folder = std::env::temp_dir().join(format!("urxe-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let has_pingpong = program("ibv_rc_pingpong", "ibverbs-utils", [127, 0, 0, 1]).is_some();
    let (mut faults, mut checked, mut server) = (String::new(), 0, None);
    for Step { command, shown } in steps() {
        if command.contains("ibv_rc_pingpong") && !has_pingpong {
            continue;
        }
        checked += 1;
        if let Some(command) = command.strip_suffix('&') {
            let child = shell(&format!("exec {command}"), &folder).spawn();
            server = Some(child.expect("bash starts"));
            wait_for_listener(MEETING);
            continue;
        }
        let ran = run(shell(&command, &folder));
        if ran.code != Some(0) || !is_shown(&shown, &ran.text) {
            let _ = writeln!(faults, "$ {command}: {:?}\n{}", ran.code, ran.text);
        }
        if let Some(server) = server.take() {
            let ended = finish(server, crate::harness::LIMIT);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
        }
    }
    std::fs::remove_dir_all(&folder).expect("it is there");
    assert!(checked >= 2, "the README's terminal has no commands");
    assert!(
        faults.is_empty(),
        "README.md shows something else:\n{faults}"
    );
}

#[test]
fn numbers_may_differ_and_words_may_not() {
    let shown: Vec<String> = ["a  5 us", "b 0x12,", "..."].map(str::to_owned).to_vec();
    assert!(is_shown(&shown, "a 17.5 us\nb 0x3f,\nmore\n"));
    assert!(!is_shown(&shown, "a 17.5 ms\nb 0x3f,\n"));
    assert!(!is_shown(&shown[..2], "a 17.5 us\nb 0x3f,\nmore\n"));
}
