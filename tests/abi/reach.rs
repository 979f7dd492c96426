//! Programs that come to libibverbs in other ways than by its name `libibverbs.so.1`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::c_program::{Compiled, compile};
use crate::harness::{Ran, addresses, run, urxe};
use crate::launch::shell;

const SOURCE: &str = "abi/reach.c";
/// The distribution's own.
const SYSTEM: &str = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";
/// A name like those that wheels give to their copies, as long as the name that it takes the place of.
const OWN_NAME: &str = "libibverbs-1.so";

/// By `urxe run`, with a device of a name of its own.
fn reach(options: &[&str], program: &Compiled, args: &[&str]) -> Ran {
    let (address, _) = addresses();
    let mut command = urxe();
    command.args(["run", "--device", &format!("reached={address}")]);
    command.args(options).arg("--").arg(&program.binary);
    command.args(args);
    run(command)
}

const REACHED: &str = "reached\n1 devices\n";

/// NCCL, RCCL, brpc and others try the name without a version first. Where a package for developers is installed, that is
/// the system's.
#[test]
fn programs_that_load_the_name_without_a_version_are_reached() {
    let Some(program) = compile(SOURCE, &["-ldl"]) else {
        return;
    };
    for name in ["libibverbs.so", "libibverbs.so.1"] {
        for options in [&[][..], &["--no-preload"]] {
            let ran = reach(options, &program, &[name]);
            assert_eq!(ran.text, REACHED, "{name} {options:?}");
        }
    }
}

#[test]
fn programs_that_take_the_library_from_a_variable_are_reached() {
    let Some(program) = compile(SOURCE, &["-ldl"]) else {
        return;
    };
    let script = format!(
        "'{0}' \"$NCCL_IBVERBS_LIB\" && '{0}' \"$MSCCLPP_IBV_SO\"",
        program.binary
    );
    let (address, _) = addresses();
    let mut command = urxe();
    command.args(["run", "--device", &format!("reached={address}"), "--"]);
    command.args(["sh", "-c", &script]);
    assert_eq!(run(command).text, REACHED.repeat(2));
}

/// A copy of the system's libibverbs under a name of its own, and a program linked to that, as `auditwheel` makes of
/// Python packages.
fn bundled() -> Option<(Compiled, PathBuf)> {
    let Ok(mut bytes) = fs::read(SYSTEM) else {
        println!("skipped: {SYSTEM} is missing (apt-get install libibverbs1)");
        return None;
    };
    let old = b"libibverbs.so.1\0";
    let places: Vec<usize> = (0..bytes.len() - old.len())
        .filter(|&at| bytes[at..].starts_with(old))
        .collect();
    assert!(!places.is_empty(), "it has its own name in it");
    for at in places {
        bytes[at..at + OWN_NAME.len()].copy_from_slice(OWN_NAME.as_bytes());
    }
    let folder = std::env::temp_dir().join(format!("urxe-bundled-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let library = folder.join(OWN_NAME);
    fs::write(&library, bytes).expect("room for it");
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let linked = compile(
        SOURCE,
        &["-DLINKED", &library.display().to_string(), &rpath],
    );
    if linked.is_none() {
        fs::remove_dir_all(&folder).expect("it is ours");
    }
    Some((linked?, folder))
}

#[test]
fn programs_with_a_renamed_copy_are_reached() {
    let Some((program, folder)) = bundled() else {
        return;
    };
    let ran = reach(&[], &program, &[]);
    assert_eq!(ran.text, REACHED);
    // The copy is really its own: by names alone it is not reached. (Without the preload nothing can be said of it.)
    let ran = reach(&["--no-preload"], &program, &[]);
    assert!(!ran.text.contains("reached"), "{ran:?}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// What `urxe run` says of a copy that it does not reach.
const UNREACHED: &str = "brings a libibverbs that urxe does not reach";

/// As some Python packages have it (torchmonarch).
#[test]
fn a_program_with_rdma_core_linked_into_it_is_told_of() {
    let libraries = [
        "-Wl,-Bstatic",
        "-libverbs",
        "-lnl-route-3",
        "-lnl-3",
        "-Wl,-Bdynamic",
        "-lpthread",
        "-DLINKED",
    ];
    for name in ["libibverbs.a", "libnl-3.a", "libnl-route-3.a"] {
        if !Path::new(SYSTEM).with_file_name(name).exists() {
            println!(
                "skipped: {name} is missing (apt-get install libibverbs-dev libnl-3-dev libnl-route-3-dev)"
            );
            return;
        }
    }
    let Some(program) = compile(SOURCE, &libraries) else {
        return;
    };
    let ran = reach(&[], &program, &[]);
    assert!(ran.text.contains(UNREACHED), "{ran:?}");
    assert!(ran.text.contains(&program.binary), "{ran:?}");
    assert_eq!(ran.text.matches("urxe:").count(), 1, "{ran:?}");
}

/// A library that binds to itself, loaded when the program runs: what the loader puts in front does not count for it.
#[test]
fn a_copy_that_binds_to_itself_is_told_of() {
    let Some((program, folder)) = bundled() else {
        return;
    };
    drop(program);
    let Some(program) = compile(SOURCE, &["-ldl"]) else {
        return;
    };
    let copy = folder.join(OWN_NAME).display().to_string();
    let ran = reach(&[], &program, &[&copy]);
    assert!(ran.text.contains(UNREACHED), "{ran:?}");
    assert!(ran.text.contains(&copy), "{ran:?}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// Programs that look at the device files themselves are no libibverbs.
#[test]
fn ordinary_programs_are_not_told_of() {
    for line in [
        "cat /sys/class/infiniband_verbs/abi_version",
        "ls /sys/class/infiniband_verbs /sys/class/infiniband",
        "test -e /sys/class/infiniband_verbs/uverbs0/ibdev",
    ] {
        let ran = run(shell(line));
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        assert!(!ran.text.contains("urxe:"), "{line}: {ran:?}");
    }
}
