//! Which crate may import which (docs/ARCHITECTURE.md).

use std::fs;

use crate::tree::{files, report, root};

/// Crate folder, and what of ours it may depend on. Bottom to top.
const MAY_IMPORT: [(&str, &[&str]); 15] = [
    ("wire", &[]),
    ("provider/core", &["urxe-wire"]),
    ("provider/udp", &[]),
    ("provider/ring", &[]),
    ("provider/seal", &[]),
    (
        "provider",
        &[
            "urxe-wire",
            "urxe-core",
            "urxe-udp",
            "urxe-ring",
            "urxe-seal",
        ],
    ),
    ("fabric-sim/macros", &[]),
    (
        "fabric-sim",
        &["urxe-wire", "urxe-core", "urxe", "urxe-fabric-sim-macros"],
    ),
    // `urxe-udp` and `urxe-ring` for the floors that `urxe bench` prints: bare UDP by the same socket calls, and
    // bare copies through the same rings.
    ("cli/measure", &["urxe", "urxe-udp", "urxe-ring"]),
    // `urxe-seal` for captures that are to be opened.
    (
        "cli",
        &[
            "urxe",
            "urxe-measure",
            "urxe-wire",
            "urxe-seal",
            "urxe-fabric-sim",
        ],
    ),
    (
        "cli/light",
        &["urxe", "urxe-measure", "urxe-wire", "urxe-seal"],
    ),
    ("abi", &["urxe"]),
    ("preload", &[]),
    ("preload/simulated", &[]),
    ("tests", &["urxe", "urxe-wire", "urxe-core", "urxe-udp"]),
];

/// The same of the fuzz targets, a workspace of their own that nothing of ours sees.
const FUZZ_MAY_IMPORT: [(&str, &[&str]); 2] = [
    ("fuzz/abi", &["urxe"]),
    (
        "fuzz",
        &[
            "urxe-wire",
            "urxe-core",
            "urxe-ring",
            "urxe-seal",
            "urxe",
            "urxe-fabric-sim",
            "urxe-abi",
        ],
    ),
];

#[test]
fn crates_import_downwards_only() {
    let mut faults = Vec::new();
    for (folder, allowed) in MAY_IMPORT.into_iter().chain(FUZZ_MAY_IMPORT) {
        let manifest = root().join(folder).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("each crate has a manifest");
        for name in dependencies(&text) {
            if name.starts_with("urxe") && !allowed.contains(&name.as_str()) {
                faults.push(format!("{folder}/Cargo.toml imports {name}"));
            }
        }
    }
    report("an arrow points the wrong way", &faults);
}

/// Names below `[dependencies]` and its like, without those for tests only.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_inside = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_inside = section.ends_with("dependencies") && !section.ends_with("dev-dependencies");
        } else if is_inside && let Some((name, _)) = line.split_once(['=', '.']) {
            names.push(name.trim().to_owned());
        }
    }
    names
}

#[test]
fn the_core_does_no_io() {
    // What a sans-IO core gets as an argument or does without.
    let banned = [
        "std::net::UdpSocket",
        "std::thread",
        "std::sync::",
        "std::time::Instant",
        "Instant::now",
        "SystemTime",
        "std::env",
        "std::fs",
        "HashMap",
        "HashSet",
        "println!",
    ];
    let mut faults = Vec::new();
    for file in files(&[".rs"]) {
        if !file.path.starts_with("provider/core/src/") || file.is_test() {
            continue;
        }
        for (number, line) in (1..).zip(file.code_lines()) {
            let code = line.split("//").next().unwrap_or_default();
            for word in banned.iter().filter(|word| code.contains(**word)) {
                faults.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    report("time, memory and queues are arguments of the core", &faults);
}

/// The crate's `clippy.toml` bans the same for the compiler; this also reads what is not compiled.
#[test]
fn nothing_leaks_into_the_simulator() {
    // Whatever could differ between two runs of one seed.
    let banned = [
        "HashMap",
        "HashSet",
        "RandomState",
        "std::thread",
        "std::time::",
        "Instant::now",
        "SystemTime",
        "std::env",
        "std::net::UdpSocket",
        "thread_rng",
        "getrandom",
    ];
    let mut faults = Vec::new();
    for file in files(&[".rs"]) {
        // Threads of parts, which meet at the end of each window of virtual time; coroutines, which run one at a time; and which seeds a
        // test runs.
        let is_excused = [
            "fabric-sim/src/engine/windows.rs",
            "fabric-sim/src/program/threads.rs",
            "fabric-sim/src/program/seeds.rs",
        ];
        if !file.path.starts_with("fabric-sim/src/") || is_excused.contains(&&*file.path) {
            continue;
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            for word in banned.iter().filter(|word| code.contains(**word)) {
                faults.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    report(
        "one seed is one run: no clock, thread or hash order",
        &faults,
    );
}

#[test]
fn every_dependency_of_the_workspace_has_a_crate_that_uses_it() {
    let root_manifest = fs::read_to_string(root().join("Cargo.toml")).expect("there is one");
    let (_, shared) = root_manifest
        .split_once("[workspace.dependencies]\n")
        .expect("the workspace has dependencies");
    let shared = shared.lines().take_while(|line| !line.starts_with('['));
    let used: Vec<String> = MAY_IMPORT
        .iter()
        .map(|(folder, _)| root().join(folder).join("Cargo.toml"))
        .map(|manifest| fs::read_to_string(manifest).expect("each crate has a manifest"))
        .collect();
    let is_used = |name: &str| {
        let line = [
            format!("\n{name}.workspace"),
            format!("\n{name} = {{ workspace"),
        ];
        used.iter()
            .any(|text| line.iter().any(|line| text.contains(line)))
    };
    let names = shared
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name);
    let unused: Vec<String> = names
        .filter(|name| !is_used(name))
        .map(str::to_owned)
        .collect();
    report("no crate uses this dependency of the workspace", &unused);
}

#[test]
fn every_member_takes_the_workspace_lints() {
    let mut faults = Vec::new();
    for (folder, _) in MAY_IMPORT {
        let text = fs::read_to_string(root().join(folder).join("Cargo.toml"));
        if !text
            .expect("each crate has a manifest")
            .contains("[lints]\nworkspace = true")
        {
            faults.push(format!("{folder}/Cargo.toml"));
        }
    }
    report("no `[lints] workspace = true`", &faults);
}

#[test]
fn dependencies_are_found_in_all_spellings() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n\
        [target.'cfg(unix)'.dependencies]\nc = { path = \"c\" }\n[dev-dependencies]\nd = \"1\"\n";
    assert_eq!(dependencies(manifest), ["a", "b", "c"]);
}
