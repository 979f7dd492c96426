//! Finding the drop-in library.

use std::path::{Path, PathBuf};

use super::names::{self, NAME};
use crate::error::{CliError, Context};

/// Says where it is, when it is nowhere near.
const VARIABLE: &str = "URXE_LIB_DIR";
/// Where it is, seen from the folder of this executable: as cargo leaves it, beside a copied executable, or
/// installed under one prefix.
const PLACES: [&str; 3] = ["urxe-lib", "../urxe-lib", "../lib/urxe"];

/// The folder that has the library under the names that programs ask for.
pub(crate) fn find() -> Result<PathBuf, CliError> {
    let folder = installed()?;
    let name = folder.display().to_string();
    names::complete(folder).context(format_args!("cannot give {NAME} in {name} its other names"))
}

/// Where the library itself is.
fn installed() -> Result<PathBuf, CliError> {
    if let Some(folder) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        let folder = PathBuf::from(folder);
        return has_library(&folder).ok_or_else(|| {
            CliError::Failed(format!(
                "{VARIABLE} is {}, but there is no {NAME} in it",
                folder.display()
            ))
        });
    }
    let executable = std::env::current_exe().context("cannot find this executable")?;
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let mut places = PLACES.iter().map(|place| beside.join(place));
    places.find_map(|folder| has_library(&folder)).ok_or_else(|| {
        CliError::Failed(format!(
            "there is no {NAME} near {}: this is the command alone. The packages of urxe have both (wheel, .deb, tarball, image); in a source tree \
             `cargo build --release --workspace` makes it (target/release/urxe-lib). {VARIABLE} says where it is, if it is elsewhere",
            executable.display()
        ))
    })
}

/// The folder, absolute, if the library is in it. A link that leads nowhere is no library.
fn has_library(folder: &Path) -> Option<PathBuf> {
    let is_there = folder.join(NAME).is_file();
    folder.canonicalize().ok().filter(|_| is_there)
}
