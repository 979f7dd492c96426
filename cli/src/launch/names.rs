//! The names of the drop-in library, where an installation could not bring them all.
//!
//! One file has to have them: two copies in a process would not know of each other. Packages of Python hold no links, so of
//! those only the file itself is installed, and the links to it are made when they are first needed, in the user's directory.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// What programs ask for.
pub(crate) const NAME: &str = "libibverbs.so.1";
/// The library that leads paths of device files to the tree, beside the drop-in library.
pub(crate) const PATHS: &str = "liburxe_preload.so";
/// The library that leads time and sockets into a simulation.
pub(crate) const SIMULATED: &str = "liburxe_simulated.so";
/// Further names of the library. Those without a version are what some programs try first.
pub(crate) const LINKS: [&str; 3] = ["librdmacm.so.1", "libibverbs.so", "librdmacm.so"];
/// Folders of links are called this; a number that follows from the installation's folder comes behind it.
const PREFIX: &str = "names-";

/// The folder itself if the library has all its names there, or one with links to it.
pub(super) fn complete(folder: PathBuf) -> io::Result<PathBuf> {
    if LINKS.iter().all(|name| folder.join(name).is_file()) {
        return Ok(folder);
    }
    let base = urxe::user_directory()?;
    remove_stale(&base);
    make(&base, &folder)
}

fn make(base: &Path, folder: &Path) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    let names = base.join(format!("{PREFIX}{:016x}", hasher.finish()));
    match DirBuilder::new().mode(0o700).create(&names) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let file = folder.join(NAME);
    for name in [NAME].iter().chain(&LINKS) {
        link(&file, &names.join(name))?;
    }
    for name in [PATHS, SIMULATED] {
        let file = folder.join(name);
        if file.is_file() {
            link(&file, &names.join(name))?;
        }
    }
    Ok(names)
}

/// Beside the name first: other processes may be about to load it, or to make it.
fn link(to: &Path, name: &Path) -> io::Result<()> {
    if fs::read_link(name).is_ok_and(|before| before == to) {
        return Ok(());
    }
    let new = name.with_extension(format!("new-{}", std::process::id()));
    symlink(to, &new)?;
    fs::rename(&new, name)
}

/// Takes away the links of installations that are gone.
fn remove_stale(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let link = entry.path().join(NAME);
        if is_ours && fs::read_link(&link).is_ok() && !link.exists() {
            // Another process may have been faster.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_the_one_file_and_go_with_it() {
        let base = std::env::temp_dir().join(format!("urxe-names-{}", std::process::id()));
        let (first, second) = (base.join("first"), base.join("second"));
        for folder in [&first, &second] {
            fs::create_dir_all(folder).expect("a folder");
            fs::write(folder.join(NAME), "the library").expect("a file");
            fs::write(folder.join(PATHS), "paths").expect("a file");
        }
        let names = make(&base, &first).expect("they can be made");
        // A link that leads elsewhere is made anew.
        fs::remove_file(names.join(LINKS[0])).expect("it is there");
        symlink("/dev/null", names.join(LINKS[0])).expect("a link");
        assert_eq!(make(&base, &first).expect("once more"), names);
        for name in [NAME].iter().chain(&LINKS) {
            let link = fs::read_link(names.join(name)).expect(name);
            assert_eq!(link, first.join(NAME), "{name}");
        }
        assert_eq!(fs::read_dir(&names).expect("a folder").count(), 5);
        let others = make(&base, &second).expect("they can be made");
        assert_ne!(others, names);

        fs::remove_dir_all(&first).expect("it is ours");
        remove_stale(&base);
        assert!(!names.exists() && others.exists() && second.exists());
        fs::remove_dir_all(&base).expect("it is ours");
    }
}
