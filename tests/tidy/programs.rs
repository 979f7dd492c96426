//! Test files that are in no test program: cargo finds none by itself where `autotests` is off.

use crate::tree::{File, files, report};

/// What a file is declared by: its own name, or that of its folder.
fn name(path: &str) -> &str {
    let mut parts = path.rsplit('/');
    let stem = parts.next().unwrap_or_default().trim_end_matches(".rs");
    match stem {
        "mod" | "main" => parts.next().unwrap_or_default(),
        _ => stem,
    }
}

fn is_declared(path: &str, manifest: &str, sources: &[&File]) -> bool {
    let name = name(path);
    let module = format!("mod {name};");
    let quoted = format!("\"{name}\"");
    let file = format!("{name}.rs\"]");
    manifest.contains(&format!("name = {quoted}"))
        || sources.iter().any(|source| {
            let mut lines = source.text.lines().map(str::trim);
            lines.any(|line| {
                line.ends_with(&module) || line.starts_with("#[path") && line.ends_with(&file)
            })
        })
}

fn undeclared(manifest: &File, sources: &[File]) -> Vec<String> {
    let folder = manifest.path.trim_end_matches("Cargo.toml");
    let tests = format!("{folder}tests/");
    let of_it: Vec<&File> = (sources.iter())
        .filter(|source| source.path.starts_with(&tests))
        .collect();
    of_it
        .iter()
        .filter(|source| !is_declared(&source.path, &manifest.text, &of_it))
        .map(|source| source.path.clone())
        .collect()
}

#[test]
fn each_test_file_is_in_a_program() {
    let sources = files(&[".rs"]);
    let faults: Vec<String> = files(&["Cargo.toml"])
        .iter()
        .filter(|manifest| manifest.text.contains("autotests = false"))
        .flat_map(|manifest| undeclared(manifest, &sources))
        .collect();
    report("a test file that no program has as a module", &faults);
}

#[test]
fn a_forgotten_file_is_found() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let manifest = file("a/Cargo.toml", "[[test]]\nname = \"api\"\n");
    let sources = [
        file(
            "a/tests/api.rs",
            "mod one;\n#[path = \"deep/two.rs\"]\nmod other;\n",
        ),
        file(
            "a/tests/one/mod.rs",
            "//! mod forgotten; is not declared by this line, nor by\nmod part;",
        ),
        file("a/tests/one/part.rs", ""),
        file("a/tests/deep/two.rs", ""),
        file("a/tests/forgotten.rs", ""),
        file("b/tests/of_another.rs", "mod forgotten;"),
    ];
    assert_eq!(undeclared(&manifest, &sources), ["a/tests/forgotten.rs"]);
}
