//! Which file imports which inside a crate. Files that import each other in a circle can only be read, and changed,
//! together; so the circles that there are may only become smaller.
//!
//! An arrow is a path of `use`, or in code, that begins with `crate`, `super`, `self` or a module's own child. A name
//! that a module exports again counts as an arrow to the file that has it. Tests and the crates' roots do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{File, files, report};

/// Crates, and how many files their largest circle of imports has. A number here may only be made smaller.
const LARGEST_CIRCLE: [(&str, usize); 11] = [
    ("wire", 0),
    ("provider/core", 15),
    ("provider/udp", 2),
    ("provider/ring", 0),
    ("provider/seal", 0),
    ("provider", 13),
    ("fabric-sim", 6),
    ("abi", 12),
    ("cli", 3),
    ("preload", 0),
    ("preload/simulated", 0),
];

/// Files that import each other. Leave out what is no longer so; a new pair is a fault.
const PAIRS: &[(&str, &str, &str)] = &[
    ("provider/core", "cm/agent", "cm/bounds"),
    ("provider/core", "cm/agent", "cm/terms"),
    ("provider/core", "cm/management", "shard"),
    ("provider/core", "context", "srq"),
    ("provider/core", "multicast", "shard"),
    ("provider/core", "qp", "qp/requester"),
    ("provider/core", "qp", "qp/responder"),
    ("provider/core", "qp/attr", "qp/state"),
    ("provider/core", "qp/requester", "qp/xrc"),
    ("provider/core", "qp/responder", "qp/shared_recv"),
    ("provider/core", "shard", "srq"),
    ("provider/core", "srq", "xrc"),
    ("provider/udp", "linux/probe", "linux/send"),
    ("provider/udp", "linux/recv", "recv"),
    ("provider", "cm/id", "cm/manager"),
    ("provider", "cm/id", "cm/qp"),
    ("provider", "comp_channel", "context"),
    ("provider", "comp_channel", "cq"),
    ("provider", "context", "cq"),
    ("provider", "context", "cq_builder"),
    ("provider", "context", "pd"),
    ("provider", "context", "xrcd"),
    ("provider", "engine", "engine/calls/watcher"),
    ("provider", "engine", "engine/carrier"),
    ("provider", "engine/drive/shard_state", "engine/objects/cm"),
    ("provider", "queues/cq", "queues/moderation"),
    ("provider", "mr", "pd"),
    ("provider", "pd", "qp"),
    ("provider", "pd", "srq"),
    ("provider", "qp", "srq"),
    ("provider", "qp", "xrcd"),
    ("provider", "srq", "xrcd"),
    ("fabric-sim", "check", "host/sim"),
    ("fabric-sim", "check/marks", "host/sim"),
    ("fabric-sim", "fabric", "fabric/adapter"),
    ("fabric-sim", "fabric", "fabric/tap"),
    ("fabric-sim", "fabric", "fault"),
    ("fabric-sim", "fault/forge", "fault/wire"),
    ("fabric-sim", "host/drive", "host/sim"),
    ("fabric-sim", "program/here", "program/world"),
    ("abi", "cm/event", "cm/id"),
    ("abi", "cm/exit", "cm/id"),
    ("abi", "cm/id", "cm/multicast"),
    ("abi", "file", "object"),
    ("abi", "layout/attrs", "layout/objects"),
    ("abi", "layout/objects", "layout/work"),
    ("abi", "live", "object"),
    ("abi", "object", "ops/cq_ex"),
    ("abi", "object", "ops/qp_ex"),
    ("abi", "object", "verbose"),
    ("abi", "rsocket/stream/accept", "rsocket/stream/open"),
    ("abi", "rsocket/stream/connection", "rsocket/stream/iomap"),
    ("cli", "args", "bench"),
    ("cli", "bench/fairness", "bench/fairness/session"),
];

/// Files of the engine that import from a room above it: one with a file that leads back to the engine. Leave out what
/// is no longer so; a new one is a fault. (In `mem` that is the registration of memory that need not live, there
/// because it is unsafe.)
const BACK: &[(&str, &str)] = &[
    ("engine", "mem/fork"),
    ("engine/ahead", "mem/many"),
    ("engine/carrier/multicast", "device"),
    ("engine/carrier/sealed", "mem"),
    ("engine/objects/cm", "cm/queue"),
    ("engine/objects/keys", "mem"),
    ("engine/upkeep/give_back", "mem"),
    ("engine/upkeep/housekeeping", "mem/guarded"),
];

/// Path of a module, from the crate's root.
type Module = Vec<String>;

/// The files of a crate, and what they import.
struct Graph {
    arrows: BTreeMap<Module, BTreeSet<Module>>,
}

impl Graph {
    fn of(folder: &str, files: &[File]) -> Graph {
        let source = format!("{folder}/src/");
        let code: BTreeMap<Module, String> = files
            .iter()
            .filter_map(|file| Some((file.path.strip_prefix(&source)?, file)))
            .filter(|(path, file)| !file.is_test() && !path.ends_with("testing.rs"))
            .map(|(path, file)| (module_of(path), without_comments(file)))
            .collect();
        let mut exports = BTreeMap::new();
        for (module, text) in &code {
            for (is_export, tree) in uses(text) {
                for path in paths_of(tree).into_iter().filter(|_| is_export) {
                    if let (Some(name), Some(path)) =
                        (path.last().cloned(), absolute(module, &path, &code))
                    {
                        exports.insert((module.clone(), name), path);
                    }
                }
            }
        }
        let mut arrows = BTreeMap::new();
        for (module, text) in code.iter().filter(|(module, _)| !module.is_empty()) {
            let imported = uses(text).into_iter().filter(|(is_export, _)| !is_export);
            let mut paths: Vec<Module> = imported.flat_map(|(_, tree)| paths_of(tree)).collect();
            paths.extend(paths_in_code(text));
            let absolute = paths
                .iter()
                .filter_map(|path| absolute(module, path, &code));
            let targets = absolute.filter_map(|path| file_of(path, &code, &exports, 8));
            let others = targets.filter(|target| target != module && !target.is_empty());
            arrows.insert(module.clone(), others.collect());
        }
        Graph { arrows }
    }

    /// All that can be come to from a file.
    fn reach(&self, from: &Module) -> BTreeSet<&Module> {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for to in self.arrows.get(module).into_iter().flatten() {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen
    }

    /// The files of the largest circle.
    fn largest_circle(&self) -> Vec<String> {
        let reach: BTreeMap<&Module, _> = self.arrows.keys().map(|m| (m, self.reach(m))).collect();
        let circle_of = |module: &&Module| -> Vec<String> {
            let others = reach[*module].iter();
            let both =
                others.filter(|other| reach.get(**other).is_some_and(|r| r.contains(*module)));
            both.map(|other| other.join("/")).collect()
        };
        let circles = self.arrows.keys().map(|module| circle_of(&module));
        circles.max_by_key(Vec::len).unwrap_or_default()
    }

    /// What files of a room import from rooms that lead back to it.
    fn back_to(&self, room: &str) -> BTreeSet<(String, String)> {
        let is_of = |module: &Module, room: &str| module.first().is_some_and(|own| own == room);
        let leads_back = |module: &&Module| self.reach(module).iter().any(|m| is_of(m, room));
        let above = self.arrows.keys().filter(|module| !is_of(module, room));
        let above: BTreeSet<_> = above.filter(leads_back).map(|module| &module[0]).collect();
        let own = self.arrows.iter().filter(|(module, _)| is_of(module, room));
        let all = own.flat_map(|(a, to)| to.iter().map(move |b| (a, b)));
        all.filter(|(_, b)| !is_of(b, room) && above.contains(&b[0]))
            .map(|(a, b)| (a.join("/"), b.join("/")))
            .collect()
    }

    fn pairs(&self) -> BTreeSet<(String, String)> {
        let all = self
            .arrows
            .iter()
            .flat_map(|(a, to)| to.iter().map(move |b| (a, b)));
        let is_mutual = |(a, b): &(&Module, &Module)| {
            a < b && self.arrows.get(*b).is_some_and(|back| back.contains(*a))
        };
        all.filter(is_mutual)
            .map(|(a, b)| (a.join("/"), b.join("/")))
            .collect()
    }
}

#[test]
fn circles_of_imports_only_become_smaller() {
    let files = files(&[".rs"]);
    let mut faults = Vec::new();
    for (folder, recorded) in LARGEST_CIRCLE {
        let graph = Graph::of(folder, &files);
        let circle = graph.largest_circle();
        println!(
            "{folder}: {} files in the largest circle: {}",
            circle.len(),
            circle.join(", ")
        );
        match circle.len() {
            len if len > recorded => faults.push(format!(
                "{folder}: {len} files import each other in a circle, at most {recorded}: {}",
                circle.join(", ")
            )),
            len if len < recorded => faults.push(format!(
                "{folder}: the largest circle has {len} files by now: write that down in tests/tidy/modules.rs"
            )),
            _ => {}
        }
    }
    report("circles of imports", &faults);
}

#[test]
fn no_further_files_import_each_other() {
    let files = files(&[".rs"]);
    let mut faults = Vec::new();
    for (folder, _) in LARGEST_CIRCLE {
        let found = Graph::of(folder, &files).pairs();
        let listed = PAIRS.iter().filter(|(of, ..)| *of == folder);
        let listed: BTreeSet<_> = listed
            .map(|(_, a, b)| (a.to_string(), b.to_string()))
            .collect();
        let new = found.difference(&listed);
        faults.extend(new.map(|(a, b)| format!("(\"{folder}\", \"{a}\", \"{b}\"),")));
        let gone = listed.difference(&found);
        faults.extend(gone.map(|(a, b)| {
            format!("{folder}: {a} and {b} do not any more: take them out of PAIRS")
        }));
    }
    report("files that import each other", &faults);
}

#[test]
fn the_engine_imports_nothing_further_from_above() {
    let found = Graph::of("provider", &files(&[".rs"])).back_to("engine");
    let listed = BACK.iter().map(|(a, b)| (a.to_string(), b.to_string()));
    let listed: BTreeSet<_> = listed.collect();
    let new = found.difference(&listed);
    let new = new.map(|(a, b)| format!("{a} imports {b}, which is above the engine"));
    let gone = listed.difference(&found);
    let gone = gone.map(|(a, b)| format!("{a} imports {b} no more: take it out of BACK"));
    report(
        "what the engine imports from above",
        &new.chain(gone).collect::<Vec<_>>(),
    );
}

fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let steps = path.split('/').map(str::to_owned);
    let is_root = |step: &String| ["lib", "main"].contains(&&**step) && !path.contains('/');
    steps
        .filter(|step| step != "mod" && !is_root(step))
        .collect()
}

fn without_comments(file: &File) -> String {
    let code = file.code_lines();
    let lines = code
        .iter()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Each `use`, and whether it exports what it names.
fn uses(text: &str) -> Vec<(bool, &str)> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices("use ") {
        let before = text[..start].rsplit('\n').next().unwrap_or_default().trim();
        let is_export = before.starts_with("pub");
        if (before.is_empty() || is_export)
            && let Some(end) = text[start..].find(';')
        {
            found.push((is_export, &text[start + 4..start + end]));
        }
    }
    found
}

/// All paths of a tree like `a::{b, c::{d, e}}`.
fn paths_of(tree: &str) -> Vec<Module> {
    let mut found = Vec::new();
    let mut prefixes: Vec<Module> = vec![Vec::new()];
    let mut path: Module = Vec::new();
    let mut word = String::new();
    // What follows ` as ` is a name of the importing file.
    let mut is_alias = false;
    for c in tree.chars().chain([',']) {
        match c {
            c if c.is_alphanumeric() || c == '_' || c == '*' => {
                if !is_alias {
                    word.push(c);
                }
            }
            ':' | '{' | ',' | '}' => {
                if !word.is_empty() {
                    path.push(std::mem::take(&mut word));
                }
                if c == '{' {
                    prefixes.push(path.clone());
                } else if c != ':' {
                    let prefix = prefixes.last().cloned().unwrap_or_default();
                    if path.len() > prefix.len() {
                        found.push(path);
                    }
                    if c == '}' {
                        prefixes.pop();
                    }
                    path = prefixes.last().cloned().unwrap_or_default();
                    is_alias = false;
                }
            }
            _ => is_alias = !word.is_empty(),
        }
    }
    found
}

/// Paths that begin with `crate`, `super` or `self`, outside of `use`.
fn paths_in_code(text: &str) -> Vec<Module> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (start, _) in text.match_indices(root) {
            let before = text[..start].chars().next_back().unwrap_or(' ');
            let line = text[..start].rsplit('\n').next().unwrap_or_default();
            // `pub(in crate::a)` says where a name may be seen, and imports nothing.
            let is_visibility = line.ends_with("pub(in ");
            if is_word(before) || before == ':' || is_visibility || line.contains("use ") {
                continue;
            }
            let rest = &text[start..];
            let end = rest.find(|c: char| !is_word(c) && c != ':');
            let path = rest[..end.unwrap_or(rest.len())].trim_end_matches(':');
            found.push(path.split("::").map(str::to_owned).collect());
        }
    }
    found
}

/// A path from the crate's root; `None` for those of other crates.
fn absolute(module: &Module, path: &[String], code: &BTreeMap<Module, String>) -> Option<Module> {
    let supers = path.iter().take_while(|step| *step == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.clone(), &path[1..]),
        "super" => (
            module[..module.len().checked_sub(supers)?].to_vec(),
            &path[supers..],
        ),
        _ => (module.clone(), path),
    };
    let full: Module = base.iter().chain(rest).cloned().collect();
    let is_ours = rest.len() < path.len() || code.contains_key(&full[..=module.len()]);
    is_ours.then_some(full)
}

/// The file that has what a path names.
fn file_of(
    path: Module,
    code: &BTreeMap<Module, String>,
    exports: &BTreeMap<(Module, String), Module>,
    steps: u32,
) -> Option<Module> {
    let len = (0..=path.len())
        .rev()
        .find(|&len| code.contains_key(&path[..len]))?;
    let (module, rest) = path.split_at(len);
    let exported = rest
        .first()
        .and_then(|name| exports.get(&(module.to_vec(), name.clone())));
    match exported {
        Some(other) if steps > 0 => {
            let path = other.iter().chain(&rest[1..]).cloned().collect();
            file_of(path, code, exports, steps - 1)
        }
        _ => Some(module.to_vec()),
    }
}

#[test]
fn trees_of_imports_are_read() {
    let paths: Vec<String> = paths_of("a::{b, c::{d as x, self}, e::*}")
        .iter()
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(paths, ["a::b", "a::c::d", "a::c::self", "a::e::*"]);
    let text = "use crate::a::B;\npub(in crate::h) let x = super::c::D::new(self::e(), other::super_x);\npub use f::G;";
    assert_eq!(uses(text), [(false, "crate::a::B"), (true, "f::G")]);
    assert_eq!(
        paths_in_code(text),
        [vec!["super", "c", "D", "new"], vec!["self", "e"]]
    );
}

#[test]
fn circles_and_pairs_are_found_through_exports() {
    let file = |path: &str, text: &str| File {
        path: format!("x/src/{path}"),
        text: text.to_owned(),
    };
    let files = [
        file("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        file("a.rs", "use crate::b::Three;\n"),
        file("b/mod.rs", "mod three;\npub use three::Three;\n"),
        file(
            "b/three.rs",
            "// use crate::c;\nfn f() { crate::c::go() }\n",
        ),
        file(
            "c.rs",
            "use crate::a;\n#[cfg(test)]\nmod tests {\nuse crate::b::Three;\n}\n",
        ),
        file("tests.rs", "use crate::c;\n"),
    ];
    let graph = Graph::of("x", &files);
    assert_eq!(graph.largest_circle(), ["a", "b/three", "c"]);
    assert!(graph.pairs().is_empty(), "{:?}", graph.pairs());
    let back = BTreeSet::from([("a".to_owned(), "b/three".to_owned())]);
    assert_eq!(graph.back_to("a"), back);
    let files = [
        file("a.rs", "use crate::b::B;\n"),
        file("b.rs", "use super::a::A;\n"),
    ];
    let pairs = Graph::of("x", &files).pairs();
    assert_eq!(pairs, BTreeSet::from([("a".to_owned(), "b".to_owned())]));
}
