//! The project's files, and what of a source file is not a test.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the project.
pub(crate) struct File {
    /// From the project's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// Whether the whole file is test code: `tests.rs`, `*_tests.rs`, or anything below `tests/`, `benches/`,
    /// `examples/` and `fuzz/`.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || ["tests/", "benches/", "examples/", "fuzz/"]
                .iter()
                .any(|folder| {
                    self.path.starts_with(folder) || self.path.contains(&format!("/{folder}"))
                })
    }

    /// The lines before the inline test module, which by house rule is the last item.
    pub(crate) fn code_lines(&self) -> Vec<&str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_test_module = |index: usize| {
            lines[index].starts_with("#[cfg(")
                && lines[index].contains("test")
                && lines[index + 1..]
                    .iter()
                    .take(4)
                    .any(|line| line.starts_with("mod "))
        };
        let end = (0..lines.len())
            .find(|&index| is_test_module(index))
            .unwrap_or(lines.len());
        lines[..end].to_vec()
    }
}

pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("tests/ lies in the project")
        .to_owned()
}

/// All text files with names that end with one of the suffixes, in order of their paths.
pub(crate) fn files(suffixes: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), &root(), suffixes, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        !found.is_empty(),
        "the project has no {suffixes:?} files: wrong root?"
    );
    found
}

fn walk(root: &Path, folder: &Path, suffixes: &[&str], found: &mut Vec<File>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("the folder can be listed").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            // Build output, version control and fuzz inputs are not the project's text.
            let skipped = [
                "target",
                ".git",
                "corpus",
                "artifacts",
                "coverage",
                "node_modules",
            ];
            if !skipped.contains(&name.as_str()) {
                walk(root, &path, suffixes, found);
            }
        } else if suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            let text = fs::read_to_string(&path);
            let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let path = path.strip_prefix(root).expect("walked from the root");
            found.push(File {
                path: path.to_string_lossy().replace('\\', "/"),
                text,
            });
        }
    }
}

/// Fails with the list when there is anything in it.
pub(crate) fn report(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}:\n  {}", faults.join("\n  "));
}
