//! `urxe package`: what has to be on another machine for `urxe run` to work there.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::{CliError, Context};
use crate::launch::{LIBRARY, LINKS, PRELOAD, SIMULATED, find_library};

/// Makes a folder that can be copied or packed anywhere: the command, and beside it the libraries.
pub(crate) fn run(folder: &Path) -> Result<(), CliError> {
    let library = find_library()?;
    let executable = std::env::current_exe().context("cannot find this executable")?;
    let (name, command) = (folder.display(), folder.join("urxe"));
    let made = make(folder, &executable, &library);
    made.context(format_args!("cannot make {name}"))?;
    println!(
        "{name}: copy it as it is, links too (cp -a, tar); {} is the command",
        command.display()
    );
    Ok(())
}

/// What is there of an earlier time is replaced.
fn make(folder: &Path, executable: &Path, library: &Path) -> io::Result<()> {
    let libraries = folder.join("urxe-lib");
    fs::create_dir_all(&libraries)?;
    copy(executable, &folder.join("urxe"))?;
    copy(&library.join(LIBRARY), &libraries.join(LIBRARY))?;
    // One file under all names: two copies in a process would not know of each other.
    for name in LINKS {
        let link = libraries.join(name);
        remove(&link)?;
        symlink(LIBRARY, link)?;
    }
    for name in [PRELOAD, SIMULATED] {
        let preloaded = library.join(name);
        if preloaded.is_file() {
            copy(&preloaded, &libraries.join(name))?;
        }
    }
    Ok(())
}

/// Beside the target first: a program may be running from that.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut new = PathBuf::from(to).into_os_string();
    new.push(".new");
    fs::copy(from, &new)?;
    fs::rename(&new, to)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_one_library_under_all_names() {
        let folder = std::env::temp_dir().join(format!("urxe-package-{}", std::process::id()));
        let library = folder.join("from");
        fs::create_dir_all(&library).expect("a folder");
        for name in [LIBRARY, PRELOAD, SIMULATED, "urxe"] {
            fs::write(library.join(name), name).expect("a file");
        }
        let to = folder.join("to");
        // The second time takes the place of the first.
        for _ in 0..2 {
            make(&to, &library.join("urxe"), &library).expect("it can be made");
        }
        let read = |name: &str| fs::read_to_string(to.join(name)).expect(name);
        assert_eq!(read("urxe"), "urxe");
        assert_eq!(read("urxe-lib/liburxe_preload.so"), PRELOAD);
        for name in LINKS {
            assert_eq!(read(&format!("urxe-lib/{name}")), LIBRARY);
            let link = fs::read_link(to.join("urxe-lib").join(name)).expect("a link");
            assert_eq!(link, Path::new(LIBRARY));
        }
        assert_eq!(
            fs::read_dir(to.join("urxe-lib")).expect("a folder").count(),
            3 + LINKS.len()
        );
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
