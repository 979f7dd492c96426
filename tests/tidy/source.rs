//! Rules about source files: size, unsafe, words that must not stay.

use crate::tree::{File, files, report};

const CODE_LINES_MAX: usize = 600;
const FILE_LINES_MAX: usize = 800;
const TEST_FILE_LINES_MAX: usize = 1200;
const FUNCTION_LINES_MAX: usize = 70;

/// Where unsafe code may be, and why. A path ending in `/` is a folder.
const FENCES: [(&str, &str); 6] = [
    ("provider/udp/", "system calls"),
    ("provider/ring/", "memory that processes share"),
    ("provider/src/mem/", "user memory"),
    ("abi/", "pointers of C programs"),
    ("preload/", "functions of the C library"),
    ("fuzz/abi/", "calls as C programs make them"),
];

#[test]
fn files_are_small() {
    let mut faults = Vec::new();
    for file in files(&[".rs"]) {
        let all = file.text.lines().count();
        let code = file.code_lines().len();
        if file.is_test() {
            if all > TEST_FILE_LINES_MAX {
                faults.push(format!(
                    "{}: {all} lines, at most {TEST_FILE_LINES_MAX}",
                    file.path
                ));
            }
        } else if code > CODE_LINES_MAX || all > FILE_LINES_MAX {
            faults.push(format!(
                "{}: {code} lines of code (at most {CODE_LINES_MAX}), {all} in all (at most {FILE_LINES_MAX})",
                file.path
            ));
        }
    }
    report("a file is one idea that fits into a head", &faults);
}

#[test]
fn functions_are_short() {
    let mut faults = Vec::new();
    for file in files(&[".rs"]).iter().filter(|file| !file.is_test()) {
        for (line, name, len) in functions(&file.code_lines()) {
            if len > FUNCTION_LINES_MAX {
                faults.push(format!("{}:{line}: fn {name} has {len} lines", file.path));
            }
        }
    }
    report(
        &format!("a function has at most {FUNCTION_LINES_MAX} lines"),
        &faults,
    );
}

/// Functions as (first line, name, lines). Leans on rustfmt: the closing brace stands below the `fn`.
fn functions<'a>(lines: &[&'a str]) -> Vec<(usize, &'a str, usize)> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(name) = function_name(code) else {
            continue;
        };
        let closing = format!("{}}}", " ".repeat(indent));
        let body = lines[index..].iter().position(|line| *line == closing);
        // A declaration without a body ends with a semicolon before any closing brace of its indent.
        let declaration = lines[index..]
            .iter()
            .position(|line| line.trim_end().ends_with(';'));
        let opening = lines[index..]
            .iter()
            .position(|line| line.trim_end().ends_with('{'));
        if let (Some(body), Some(opening)) = (body, opening)
            && declaration.is_none_or(|declaration| opening < declaration)
        {
            found.push((index + 1, name, body + 1));
        }
    }
    found
}

fn function_name(code: &str) -> Option<&str> {
    let mut words = code.split_whitespace();
    let is_qualifier = |word: &str| {
        ["const", "async", "unsafe", "extern", "\"C\"", "pub"].contains(&word)
            || word.starts_with("pub(")
    };
    let first = words.find(|word| !is_qualifier(word))?;
    if first != "fn" {
        return None;
    }
    words
        .next()
        .map(|name| name.split(['(', '<']).next().unwrap_or(name))
}

#[test]
fn unsafe_stays_in_its_fences() {
    let mut faults = Vec::new();
    for file in files(&[".rs"]) {
        if FENCES.iter().any(|(fence, _)| file.path.starts_with(fence))
            || is_counting_allocator(&file)
        {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let uses = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
            if uses.iter().any(|word| code.contains(word)) && !code.contains('"') {
                faults.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    report(
        &format!("unsafe only in {FENCES:?} (docs/SAFETY.md)"),
        &faults,
    );
}

/// The one other use: a test that counts allocations has to be the global allocator, and the trait is unsafe.
fn is_counting_allocator(file: &File) -> bool {
    file.is_test() && file.text.contains("unsafe impl GlobalAlloc")
}

#[test]
fn no_words_that_must_not_stay() {
    // Put together here, so that this file does not contain them.
    let words: Vec<String> = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("XX", "X"),
        ("todo", "!("),
        ("unimplemented", "!("),
        ("dbg", "!("),
        ("/work", "/"),
        ("#[ignore", "]"),
        ("#[allow(clippy::all", ")]"),
    ]
    .iter()
    .map(|(a, b)| format!("{a}{b}"))
    .collect();
    let mut faults = Vec::new();
    for file in files(&[".rs", ".md", ".toml", ".sh", "run", "justfile", ".yml"]) {
        for (number, line) in (1..).zip(file.text.lines()) {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                faults.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    report(
        "finished, with reasons, and of no particular machine",
        &faults,
    );
}

#[test]
fn safe_crates_say_so() {
    let roots = [
        ("wire/src/lib.rs", "forbid"),
        ("provider/core/src/lib.rs", "forbid"),
        ("fabric-sim/src/lib.rs", "forbid"),
        ("cli/src/lib.rs", "forbid"),
        ("cli/src/main.rs", "forbid"),
        ("cli/light/main.rs", "forbid"),
        ("cli/measure/src/lib.rs", "forbid"),
        ("provider/src/lib.rs", "deny"),
    ];
    let files = files(&["lib.rs", "main.rs"]);
    let mut faults = Vec::new();
    for (path, level) in roots {
        let file = files.iter().find(|file| file.path == path);
        if !file.is_some_and(|file| file.text.contains(&format!("#![{level}(unsafe_code)]"))) {
            faults.push(format!("{path}: no #![{level}(unsafe_code)]"));
        }
    }
    report("the compiler guards the fences", &faults);
}

#[test]
fn function_lengths_are_measured() {
    let source = [
        "impl A {",
        "    pub(crate) fn one<T>(",
        "        a: u8,",
        "    ) {",
        "        a;",
        "    }",
        "",
        "    fn two();",
        "}",
        "fn three() {",
        "}",
    ];
    assert_eq!(functions(&source), [(2, "one", 5), (10, "three", 2)]);
}
