//! What a registry shows of each crate that is published, and what it takes.

use std::fs;

use toml::Table;

use crate::tree::{report, root};

/// Folders of the crates that are published, in an order in which they can be.
fn published() -> Vec<(String, Table)> {
    let read = |path: String| {
        let text = fs::read_to_string(root().join(path)).expect("a manifest");
        text.parse::<Table>().expect("a manifest is TOML")
    };
    let workspace = read("Cargo.toml".to_owned());
    let members = workspace["workspace"]["members"].as_array();
    let members = members.expect("a list").iter();
    let all = members.map(|member| {
        let folder = member.as_str().expect("a folder").to_owned();
        let manifest = read(format!("{folder}/Cargo.toml"));
        (folder, manifest)
    });
    all.filter(|(_, manifest)| manifest["package"].get("publish").is_none())
        .collect()
}

#[test]
fn published_crates_say_what_they_are() {
    let mut faults = Vec::new();
    let published = published();
    assert!(published.len() >= 8, "{}", published.len());
    for (folder, manifest) in &published {
        let mut fault = |what: &str| faults.push(format!("{folder}: {what}"));
        let package = &manifest["package"];
        let name = package["name"].as_str().expect("a name");
        for key in [
            "description",
            "license",
            "repository",
            "homepage",
            "rust-version",
            "readme",
            "keywords",
            "categories",
        ] {
            if package.get(key).is_none() {
                fault(&format!("no {key}"));
            }
        }
        // What crates.io takes.
        let words = |key| {
            let list = package.get(key).and_then(|list| list.as_array());
            list.cloned().unwrap_or_default()
        };
        if words("categories").len() > 5 || words("keywords").len() > 5 {
            fault("more than five keywords or categories");
        }
        let is_short = |word: &toml::Value| word.as_str().is_some_and(|word| word.len() <= 20);
        if !words("keywords").iter().all(is_short) {
            fault("a keyword of more than 20 characters");
        }
        let is_library = root().join(folder).join("src/lib.rs").is_file();
        let is_macro = manifest.get("lib").and_then(|lib| lib.get("proc-macro"));
        let metadata = package.get("metadata");
        let has = |key| metadata.is_some_and(|metadata| metadata.get(key).is_some());
        if is_library && is_macro.is_none() && !has("docs") {
            fault("no [package.metadata.docs.rs]");
        }
        if !is_library && !has("binstall") {
            fault("no [package.metadata.binstall]");
        }
        let text = |path: String| fs::read_to_string(root().join(path)).unwrap_or_default();
        if !text(format!("{folder}/README.md")).starts_with(&format!("# {name}\n")) {
            fault("no README.md, or another crate's");
        }
        for license in ["LICENSE-APACHE", "LICENSE-MIT"] {
            if text(format!("{folder}/{license}")) != text(license.to_owned()) {
                fault(&format!("{license} is not there, or not the project's"));
            }
        }
    }
    report("what a registry shows of a crate", &faults);
}

#[test]
fn a_crate_is_published_after_those_that_it_needs() {
    let mut faults = Vec::new();
    let mut before = Vec::new();
    for (folder, manifest) in &published() {
        let needs = manifest["dependencies"].as_table().expect("a table").keys();
        for need in needs.filter(|need| need.starts_with("urxe")) {
            if !before.contains(need) {
                faults.push(format!(
                    "{folder} needs {need}, which is published later or never"
                ));
            }
        }
        before.push(
            manifest["package"]["name"]
                .as_str()
                .expect("a name")
                .to_owned(),
        );
    }
    report("the order of Cargo.toml", &faults);
}
