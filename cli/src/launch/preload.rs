//! What the loader puts in front of a program's own libraries (`LD_PRELOAD`).
//!
//! The search path alone finds a library by the name that a program asks for. Python wheels bring copies of libibverbs
//! under names of their own: in front of those stands only what is loaded before them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::names::{NAME, PATHS};

/// The drop-in library, and before the tree's files the one that leads there. Empty, with the reason told, if the loader
/// cannot read their names.
pub(super) fn libraries(folder: &Path, has_tree: bool) -> Vec<PathBuf> {
    let text = folder.as_os_str().as_encoded_bytes();
    if text.iter().any(|byte| b": ".contains(byte)) {
        let folder = folder.display();
        eprintln!("urxe: LD_PRELOAD cannot name {folder}, as spaces and colons end a name there");
        return Vec::new();
    }
    let paths = has_tree.then_some(PATHS);
    let names = [NAME].into_iter().chain(paths);
    names.map(|name| folder.join(name)).collect()
}

/// What the environment needs for them.
pub(super) fn variables(libraries: &[PathBuf]) -> Vec<(&'static str, OsString)> {
    if libraries.is_empty() {
        return Vec::new();
    }
    let names: Vec<OsString> = libraries.iter().map(OsString::from).collect();
    vec![
        (
            "LD_PRELOAD",
            with_more("LD_PRELOAD", names.join(":".as_ref())),
        ),
        // Its runtime wants to be the first library, and is so for all that it is about.
        (
            "ASAN_OPTIONS",
            with_more("ASAN_OPTIONS", "verify_asan_link_order=0".into()),
        ),
    ]
}

/// Ours, and what was there before.
fn with_more(variable: &str, ours: OsString) -> OsString {
    let mut value = ours.clone();
    if let Some(before) = std::env::var_os(variable).filter(|b| !b.is_empty() && *b != ours) {
        value.push(":");
        value.push(before);
    }
    value
}
