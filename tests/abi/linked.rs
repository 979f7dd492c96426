//! Whatever is installed and linked to libibverbs or librdmacm finds all that it needs in the drop-in library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::library;

/// Packages of these are what a file uses that asks for the two libraries.
const PACKAGES: [&str; 2] = ["libibverbs1", "librdmacm1"];
const NAMES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];

#[test]
fn every_installed_program_and_library_finds_its_symbols() {
    let Some(files) = users_of_the_libraries() else {
        println!("skipped: dpkg-query, readelf or ldd is missing");
        return;
    };
    if files.is_empty() {
        println!(
            "skipped: nothing that uses libibverbs is installed (apt-get install ibverbs-utils)"
        );
        return;
    }
    let mut wrong = Vec::new();
    for file in &files {
        let (theirs, ours) = (complaints(file, None), complaints(file, Some(library())));
        // A plug-in leaves symbols open that the program brings which loads it: these are no fault of the library.
        wrong.extend(
            ours.difference(&theirs)
                .map(|line| format!("{}: {line}", file.display())),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{} files", files.len());
}

/// ELF files of the packages that depend on the two, if they ask for one of the libraries.
fn users_of_the_libraries() -> Option<Vec<PathBuf>> {
    let text = output("dpkg-query", &["-W", "-f", "${Package} ${Depends}\\n"])?;
    let uses = |line: &&str| PACKAGES.iter().any(|package| line.contains(package));
    let mut files = BTreeSet::new();
    for line in text.lines().filter(uses) {
        let package = line.split(' ').next().unwrap_or_default();
        let list = output("dpkg-query", &["-L", package])?;
        files.extend(list.lines().filter_map(|path| fs::canonicalize(path).ok()));
    }
    let mut users = Vec::new();
    for file in files.into_iter().filter(|file| is_elf(file)) {
        if needs_one(&file)? {
            users.push(file);
        }
    }
    output("ldd", &["--version"])?;
    Some(users)
}

fn is_elf(file: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 4];
    let read = fs::File::open(file).and_then(|mut file| file.read_exact(&mut start));
    file.is_file() && read.is_ok() && start == *b"\x7fELF"
}

fn needs_one(file: &Path) -> Option<bool> {
    let text = output("readelf", &["-d", file.to_str()?])?;
    let needed =
        |line: &str| line.contains("(NEEDED)") && NAMES.iter().any(|name| line.contains(name));
    Some(text.lines().any(needed))
}

/// What the loader does not like about a file, with the libraries of a folder before the system's.
fn complaints(file: &Path, folder: Option<&Path>) -> BTreeSet<String> {
    let mut command = Command::new("ldd");
    command.arg("-r").arg(file).env_remove("LD_LIBRARY_PATH");
    if let Some(folder) = folder {
        command.env("LD_LIBRARY_PATH", folder);
    }
    let ran = command.output().expect("it was there a moment ago");
    let mut text = String::from_utf8_lossy(&ran.stdout).into_owned();
    if let Some(folder) = folder {
        // Else the test would be about the system's.
        let found = text.contains(&format!("=> {}", folder.display()));
        assert!(
            found,
            "{} does not load the library: {text}",
            file.display()
        );
    }
    text += &String::from_utf8_lossy(&ran.stderr);
    let bad = ["undefined symbol", "version", "not found", "Inconsistency"];
    let lines = text
        .lines()
        .filter(|line| bad.iter().any(|word| line.contains(word)));
    lines.map(|line| line.trim().to_owned()).collect()
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let ran = Command::new(program).args(args).output().ok()?;
    Some(String::from_utf8_lossy(&ran.stdout).into_owned())
}
