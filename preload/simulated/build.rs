//! Puts a link to the library into `target/PROFILE/urxe-lib`, where `urxe sim exec` looks for it.

use std::os::unix;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let profile = out
        .ancestors()
        .nth(3)
        .expect("build scripts work in PROFILE/build/NAME/out");
    let folder = profile.join("urxe-lib");
    fs::create_dir_all(&folder).expect("cargo's folder can be written to");
    let link = folder.join("liburxe_simulated.so");
    // Another build may do the same now: what counts is that it is there.
    let _ = unix::fs::symlink("../liburxe_simulated.so", &link);
    assert!(link.is_symlink(), "{} cannot be made", link.display());
}
