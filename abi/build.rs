//! Makes the library look like `libibverbs.so.1` and `librdmacm.so.1` to the dynamic loader.
//!
//! From `symbols.txt` (version node, name, kind) it writes
//! - an ELF version script. A library without version nodes is refused by the loader;
//! - one assembler trampoline a symbol, which jumps to the Rust function of the same name in one of [`FOLDERS`]. The
//!   Rust functions have no exported names themselves: what rustc exports gets no version;
//! - for names of a private node, the same under each private node after it: a release of rdma-core that changes one
//!   of them gives them all a new node, and its programs ask for that alone;
//! - for symbols without such a function, a stub that fails with `EOPNOTSUPP`;
//! - the folder `urxe-lib` beside the build's output, in which the library has the two names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, os::unix};

/// Where the functions are.
const FOLDERS: [&str; 3] = ["verbs", "cm", "rsocket"];
/// Stubs of these give a null pointer, the others a number.
const POINTERS: &str = include_str!("pointers.txt");

struct Symbol {
    node: String,
    name: String,
    is_data: bool,
}

fn main() {
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for path in ["symbols.txt", "pointers.txt", "build.rs", "src"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let symbols = read_symbols(&source.join("symbols.txt"));
    let implemented = find_functions(&source.join("src"));
    write(&out.join("verbs.map"), &version_script(&symbols));
    write(&out.join("exports.rs"), &exports(&symbols, &implemented));
    link_arguments(&out);
    make_names(&out);
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read_symbols(path: &Path) -> Vec<Symbol> {
    let text = read(path);
    let lines = text.lines().filter(|line| !line.is_empty());
    let symbols = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [node, name, kind] = words[..] else {
            panic!("symbols.txt: not \"NODE NAME KIND\": {line}")
        };
        Symbol {
            node: node.to_owned(),
            name: name.to_owned(),
            is_data: kind == "data",
        }
    });
    symbols.collect()
}

/// Functions with C linkage: name, and the module that it is in.
fn find_functions(source: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in FOLDERS {
        find_functions_in(&source.join(folder), folder, &mut found);
    }
    found
}

fn find_functions_in(folder: &Path, parent: &str, found: &mut BTreeMap<String, String>) {
    let files = fs::read_dir(folder).expect("FOLDERS are folders");
    let paths = files.map(|entry| entry.expect("it can be read").path());
    for path in paths.filter(|path| path.is_file()) {
        let Some(module) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        for line in read(&path).lines() {
            let function = line.trim_start().split_once("extern \"C\" fn ");
            let name = function.and_then(|(_, rest)| rest.split(['(', '<']).next());
            if let Some(name) = name
                && line.starts_with("pub(crate)")
            {
                found.insert(name.to_owned(), format!("{parent}::{module}::{name}"));
            }
        }
    }
}

/// Public nodes inherit from the one before, as in the distributions' libraries.
fn version_script(symbols: &[Symbol]) -> String {
    let mut nodes: Vec<(&str, Vec<&str>)> = Vec::new();
    for symbol in symbols {
        match nodes.last_mut() {
            Some((node, names)) if *node == symbol.node => names.push(&symbol.name),
            _ => nodes.push((&symbol.node, vec![&symbol.name])),
        }
    }
    let mut script = String::new();
    let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
    for (index, (node, names)) in nodes.iter().enumerate() {
        let local = if index == 0 { " local: *;" } else { "" };
        let family = node.split('_').next().expect("split gives one at least");
        let parent = if is_private(node) {
            None
        } else {
            parents.insert(family, node)
        };
        let parent = parent.map(|node| format!(" {node}")).unwrap_or_default();
        let names = names.join("; ");
        writeln!(script, "{node} {{ global: {names};{local} }}{parent};").expect("a string");
    }
    script
}

fn is_private(node: &str) -> bool {
    node.contains("PRIVATE")
}

/// Further versions of the private names: each node has what those before it have.
fn later_versions(symbols: &[Symbol]) -> String {
    let private: Vec<&Symbol> = symbols
        .iter()
        .filter(|s| s.node.starts_with("IBVERBS_PRIVATE"))
        .collect();
    let mut nodes: Vec<&str> = private.iter().map(|symbol| &*symbol.node).collect();
    nodes.dedup();
    let mut directives = String::new();
    for symbol in &private {
        let later = nodes
            .iter()
            .skip_while(|node| **node != symbol.node)
            .skip(1);
        for node in later {
            let name = &symbol.name;
            writeln!(directives, "\".symver {name}, {name}@{node}\",").expect("a string");
        }
    }
    directives
}

fn exports(symbols: &[Symbol], implemented: &BTreeMap<String, String>) -> String {
    let jump = match variable("CARGO_CFG_TARGET_ARCH").as_str() {
        "aarch64" => "b",
        _ => "jmp",
    };
    let pointers: BTreeSet<&str> = POINTERS.split_whitespace().collect();
    let (mut stubs, mut assembler, mut operands) = (String::new(), String::new(), String::new());
    for Symbol {
        node,
        name,
        is_data,
    } in symbols
    {
        if *is_data {
            writeln!(
                assembler,
                "\".data\", \".globl {name}\", \".type {name},@object\", \".size {name}, 1\", \"{name}: .byte 0\", \".text\","
            )
            .expect("a string");
            continue;
        }
        let path = implemented.get(name).cloned().unwrap_or_else(|| {
            // Of librdmacm there is every function.
            assert!(!node.starts_with("RDMACM"), "no function {name} in src");
            let result = if pointers.contains(name.as_str()) {
                "crate::stub::no_pointer"
            } else {
                "crate::stub::no_verb"
            };
            writeln!(
                stubs,
                "    pub(crate) extern \"C\" fn {name}() -> isize {{ {result}(\"{name}\") }}"
            )
            .expect("a string");
            format!("stubs::{name}")
        });
        writeln!(
            assembler,
            "\".globl {name}\", \".type {name},@function\", \".p2align 4\", \"{name}: {jump} {{{name}}}\", \".size {name}, . - {name}\","
        )
        .expect("a string");
        writeln!(operands, "    {name} = sym {path},").expect("a string");
    }
    format!(
        "/// Functions that are there because programs name them, and fail.\nmod stubs {{\n{stubs}}}\n\
         core::arch::global_asm!(\n\".text\",\n{assembler}{}{operands});\n",
        later_versions(symbols)
    )
}

/// GNU ld refuses a second version script beside rustc's own; lld takes both. The toolchain brings an lld, which
/// is asked for whatever the default linker is.
fn link_arguments(out: &Path) {
    let argument = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    let sysroot = Command::new(variable("RUSTC"))
        .args(["--print", "sysroot"])
        .output()
        .expect("rustc runs");
    let sysroot = String::from_utf8(sysroot.stdout).expect("a path");
    let lld = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(variable("HOST"))
        .join("bin/gcc-ld");
    if lld.is_dir() {
        argument(&format!("-B{}", lld.display()));
    }
    argument("-fuse-ld=lld");
    let script = out.join("verbs.map");
    argument(&format!("-Wl,--version-script={}", script.display()));
    argument("-Wl,-soname,libibverbs.so.1");
    // Engine threads run the library's code: it must never be unloaded.
    argument("-Wl,-z,nodelete");
}

/// `target/PROFILE/urxe-lib/`: the names that programs ask for, all of one file. Those without a version are what
/// packages for developers have, and what programs with plug-ins (NCCL, brpc) try first.
fn make_names(out: &Path) {
    let profile = out
        .ancestors()
        .nth(3)
        .expect("build scripts work in PROFILE/build/NAME/out");
    let folder = profile.join("urxe-lib");
    fs::create_dir_all(&folder).expect("cargo's folder can be written to");
    for name in [
        "libibverbs.so.1",
        "librdmacm.so.1",
        "libibverbs.so",
        "librdmacm.so",
    ] {
        let link = folder.join(name);
        // Another build may do the same now: what counts is that it is there.
        let _ = unix::fs::symlink("../liburxe_verbs.so", &link);
        assert!(link.is_symlink(), "{} cannot be made", link.display());
    }
}
