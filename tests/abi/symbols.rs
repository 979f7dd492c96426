//! What the library exports, against the list that it is built from.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::library;

/// "NAME@@NODE" of every line of symbols.txt.
fn wanted() -> BTreeSet<String> {
    include_str!("../../abi/symbols.txt")
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let (node, name) = (words.next(), words.next());
            format!("{}@@{}", name.expect("a name"), node.expect("a node"))
        })
        .collect()
}

#[test]
fn exactly_the_listed_symbols_are_exported_with_their_versions() {
    let file = library().join("libibverbs.so.1");
    let Ok(nm) = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&file)
        .output()
    else {
        println!("skipped: nm is missing (apt-get install binutils)");
        return;
    };
    assert!(
        nm.status.success(),
        "{}",
        String::from_utf8_lossy(&nm.stderr)
    );
    let text = String::from_utf8(nm.stdout).expect("names");
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        // The version nodes themselves are listed too.
        .filter(|name| name.contains("@@"))
        .map(str::to_owned)
        .collect();
    let wanted = wanted();
    assert!(wanted.len() > 200, "{} symbols", wanted.len());
    let difference: Vec<_> = exported.symmetric_difference(&wanted).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

#[test]
fn both_names_are_one_file() {
    let target = |name: &str| std::fs::canonicalize(library().join(name)).expect("it is there");
    assert_eq!(target("libibverbs.so.1"), target("librdmacm.so.1"));
}

/// Two copies would not know each other's objects.
#[test]
fn a_second_copy_in_one_process_refuses() {
    const PROGRAM: &str = "import ctypes, sys
for name in sys.argv[1:]:
    library = ctypes.CDLL(name)
    library.ibv_get_device_list.restype = ctypes.c_void_p
    print(bool(library.ibv_get_device_list(None)))";
    let folder = std::env::temp_dir().join(format!("urxe-copies-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let names = ["libibverbs.so.1", "librdmacm.so.1"].map(|name| folder.join(name));
    for name in &names {
        std::fs::copy(library().join("libibverbs.so.1"), name).expect("a copy");
    }
    let ran = Command::new("python3")
        .args(["-c", PROGRAM])
        .args(&names)
        .env("URXE_DEVICES", "127.0.0.1")
        .output();
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let Ok(ran) = ran else {
        println!("skipped: python3 is missing");
        return;
    };
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "True\nFalse\n",
        "{ran:?}"
    );
    assert!(
        String::from_utf8_lossy(&ran.stderr).contains("two copies"),
        "{ran:?}"
    );
}
