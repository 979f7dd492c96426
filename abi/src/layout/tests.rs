//! The layouts against the C compiler's.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use super::{attrs, cm, objects, work};

/// Name, size, and name, offset and size of each field.
pub(super) type Struct = (&'static str, usize, &'static [(&'static str, usize, usize)]);

/// Fields that older headers do not have yet: they are the last of their structures.
const NEWER: [(&str, &str); 2] = [
    ("ibv_qp_ex", "wr_flush"),
    ("ibv_port_attr", "active_speed_ex"),
];
/// Structures that older headers do not have.
const NEW: [&str; 1] = ["ibv_mr_init_attr"];
/// Structures without a name of their own in C.
const NAMELESS: [&str; 6] = [
    "wr_rdma",
    "wr_atomic",
    "wr_ud",
    "wr_bind_mw",
    "ops_wr_add",
    "ops_wr_tm",
];

fn structs() -> Vec<Struct> {
    let tables = [objects::STRUCTS, attrs::STRUCTS, work::STRUCTS, cm::STRUCTS];
    let all = tables.into_iter().flatten().copied();
    all.filter(|(name, ..)| !NAMELESS.contains(name) && !NEW.contains(name))
        .collect()
}

/// A program that prints what the header's structures are like, in the form of [`ours`].
fn c_program() -> String {
    let mut c = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
         #define S(s) printf(#s \" %zu\\n\", sizeof(TYPE))\n#define F(s, f) printf(#s \".\" #f \" %zu %zu\\n\", \
         offsetof(TYPE, f), sizeof(((TYPE *)0)->f))\nint main(void) {\n",
    );
    for (name, _, fields) in structs() {
        let kind = if name == "ibv_gid" { "union" } else { "struct" };
        writeln!(c, "#undef TYPE\n#define TYPE {kind} {name}\nS({name});").expect("a string");
        for (field, ..) in fields.iter().filter(|field| !is_newer(name, field.0)) {
            let field = field.trim_start_matches("r#");
            writeln!(c, "F({name}, {field});").expect("a string");
        }
    }
    c + "return 0; }\n"
}

fn is_newer(name: &str, field: &str) -> bool {
    NEWER.contains(&(name, field))
}

fn ours() -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for (name, size, fields) in structs() {
        lines.push((name.to_owned(), size.to_string()));
        for (field, offset, size) in fields.iter().filter(|field| !is_newer(name, field.0)) {
            let field = field.trim_start_matches("r#");
            lines.push((format!("{name}.{field}"), format!("{offset} {size}")));
        }
    }
    lines
}

#[test]
fn every_offset_is_the_one_of_the_installed_header() {
    for (header, package) in [
        ("infiniband/verbs.h", "libibverbs-dev"),
        ("rdma/rdma_cma.h", "librdmacm-dev"),
    ] {
        if !Path::new("/usr/include").join(header).exists() {
            println!("skipped: {header} is missing (apt-get install {package})");
            return;
        }
    }
    let folder = env::temp_dir().join(format!("urxe-layout-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the program");
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    fs::write(&source, c_program()).expect("it can be written");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output();
    let Ok(compiled) = compiled else {
        println!("skipped: there is no C compiler");
        return;
    };
    let errors = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "{errors}");
    let printed = Command::new(&program).output().expect("it runs").stdout;
    fs::remove_dir_all(&folder).expect("it is ours");
    let printed = String::from_utf8(printed).expect("names and numbers");

    let theirs: Vec<(&str, &str)> = printed.lines().filter_map(|l| l.split_once(' ')).collect();
    let ours = ours();
    assert_eq!(theirs.len(), ours.len());
    for ((theirs, their_place), (ours, our_place)) in theirs.into_iter().zip(&ours) {
        assert_eq!(theirs, ours);
        let (name, field) = ours.split_once('.').unwrap_or((ours, ""));
        if field.is_empty() && NEWER.iter().any(|(grown, _)| *grown == name) {
            let number = |text: &str| text.parse::<usize>().expect("a size");
            assert!(number(their_place) <= number(our_place), "{name} shrank");
        } else {
            assert_eq!(their_place, our_place, "offset and size of {ours}");
        }
    }
}
