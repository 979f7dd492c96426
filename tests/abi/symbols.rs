//! What the library exports, against the list that it is built from.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::library;

/// "NAME@@NODE" of every line of symbols.txt, and "NAME@NODE" of private names in later private nodes.
fn wanted() -> BTreeSet<String> {
    let lines = include_str!("../../abi/symbols.txt").lines();
    let symbols: Vec<(&str, &str)> = lines
        .filter_map(|line| line.rsplit_once(' ')?.0.split_once(' '))
        .collect();
    let private = |node: &str| node.starts_with("IBVERBS_PRIVATE_");
    let mut wanted = BTreeSet::new();
    for &(node, name) in &symbols {
        wanted.insert(format!("{name}@@{node}"));
        let later = symbols.iter().map(|(node, _)| *node);
        let later = later.filter(|later| private(node) && private(later) && *later > node);
        wanted.extend(later.map(|later| format!("{name}@{later}")));
    }
    wanted
}

/// Adapters' libraries and tools ask for private names by the node of the release that they were built with.
#[test]
fn releases_up_to_65_find_their_private_names() {
    const PROGRAM: &str = "import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
find = ctypes.CDLL(None).dlvsym
find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
for release in sys.argv[2:]:
    names = 'ibv_query_gid_type', 'verbs_register_driver_' + release, 'verbs_allow_disassociate_destroy'
    node = 'IBVERBS_PRIVATE_' + release
    print(release, all(find(library._handle, name.encode(), node.encode()) for name in names))";
    let ran = Command::new("python3")
        .args(["-c", PROGRAM])
        .arg(library().join("libibverbs.so.1"))
        .args(["34", "57", "59", "64", "65"])
        .output();
    let Ok(ran) = ran else {
        println!("skipped: python3 is missing");
        return;
    };
    let found = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(
        found, "34 True\n57 True\n59 True\n64 True\n65 True\n",
        "{ran:?}"
    );
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
        .filter(|name| name.contains('@'))
        .map(str::to_owned)
        .collect();
    let wanted = wanted();
    assert!(wanted.len() > 500, "{} symbols", wanted.len());
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
