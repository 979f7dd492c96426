//! Puts a link to the library into `target/PROFILE/urxe-lib`, where `urxe run` looks for it, and `urxe sim exec` for that of `preload/simulated`.

use std::os::unix;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    // Nothing that is looked at changes.
    println!("cargo:rerun-if-changed=Cargo.toml");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let profile = out
        .ancestors()
        .nth(3)
        .expect("build scripts work in PROFILE/build/NAME/out");
    let folder = profile.join("urxe-lib");
    fs::create_dir_all(&folder).expect("cargo's folder can be written to");
    let library = format!("lib{}.so", env!("CARGO_PKG_NAME").replace('-', "_"));
    let link = folder.join(&library);
    // Another build may do the same now: what counts is that it is there.
    let _ = unix::fs::symlink(Path::new("..").join(&library), &link);
    assert!(link.is_symlink(), "{} cannot be made", link.display());
}
