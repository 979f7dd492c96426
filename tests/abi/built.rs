//! Programs that were built from source, as their own instructions say. `tests/programs/run FOLDER` runs those that have a tree in FOLDER.

use std::env;
use std::path::PathBuf;

mod brpc;
mod fabtests;
mod geek;
mod gloo;
mod perftest;
mod rdma_core;
mod rdma_example;
mod spdk;
mod ucx;
mod valkey;

const VARIABLE: &str = "URXE_BUILT";

/// The tree of a program; `None`, with the reason printed, where there is none.
fn tree(name: &str) -> Option<PathBuf> {
    let folder = env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    let Some(folder) = folder.map(PathBuf::from) else {
        println!("skipped: {VARIABLE} names no folder (tests/programs/run)");
        return None;
    };
    let tree = folder.join(name);
    if !tree.is_dir() {
        println!("skipped: {VARIABLE} has no {name}");
        return None;
    }
    Some(tree)
}
