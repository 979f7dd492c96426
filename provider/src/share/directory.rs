//! The directory of the files that all processes of one user share.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit, getuid};

/// The directory with all that processes of this user share, which only the user can enter: `/dev/shm/urxe-UID`, or one in
/// `/tmp`. Not one that the environment names: all processes of the user must find the same. It is made if it is not there.
///
/// # Errors
/// If there is no place for it, or if it is another user's in both places.
pub fn user_directory() -> io::Result<PathBuf> {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let uid = getuid().as_raw();
    let name = format!("urxe-{}", outside(&map, uid));
    first_usable(["/dev/shm", "/tmp"].map(Path::new), &name, uid)
}

/// Opens a file in it for reading and writing, or makes it.
pub(crate) fn open_shared(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let file = open_own(path, &mut options)?;
    // The umask may have taken even the owner's rights, and the next one has to open it.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes a file in it that is not there yet.
pub(crate) fn create_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    open_own(path, options.write(true).create_new(true).mode(0o600))
}

/// Opens a file that is this user's, and a file: no link is followed, no pipe is waited for.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.uid() != getuid().as_raw() {
        let text = format!("{} is not a file of this user", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

/// What is in such a file, if it is not longer than `len_max`.
pub(crate) fn read_own(path: &Path, len_max: u64) -> io::Result<String> {
    let file = open_own(path, OpenOptions::new().read(true))?;
    let mut text = String::new();
    let len = file.take(len_max + 1).read_to_string(&mut text)?;
    if len as u64 > len_max {
        let text = format!("{} is longer than {len_max} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

/// Writes to such a file, if the limit of file sizes lets it.
pub(super) fn write_own(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    check_file_limit(at + bytes.len() as u64)?;
    file.write_all_at(bytes, at)
}

/// An error if a file may not be that long: the system would end the program that writes to it.
pub(super) fn check_file_limit(len: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize).current;
    let Some(limit) = limit.filter(|limit| *limit < len) else {
        return Ok(());
    };
    let text =
        format!("the limit of file sizes (ulimit -f) is {limit} bytes, and {len} are needed");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

/// For a terminal: without escape sequences.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// The user's number outside of a user namespace (`man 7 user_namespaces`): inside, any user may be 0,
/// and what is called that in /dev/shm is root's.
fn outside(map: &str, uid: u32) -> u32 {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        Some((next()?, next()?, next()?))
    });
    let mut found = ranges.filter_map(|(inside, outside, count)| {
        let place = uid.checked_sub(inside).filter(|place| *place < count)?;
        outside.checked_add(place)
    });
    found.next().unwrap_or(uid)
}

/// Falls back where the first one is missing, read-only, or has another user's directory of that name.
fn first_usable<const N: usize>(bases: [&Path; N], name: &str, uid: u32) -> io::Result<PathBuf> {
    let mut first_error = None;
    for base in bases {
        match make(&base.join(name), uid) {
            Ok(directory) => return Ok(directory),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn make(directory: &Path, uid: u32) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(directory) {
        // As above.
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(0o700))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let meta = fs::symlink_metadata(directory)?;
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o077 != 0 {
        let text = format!(
            "{} is not a directory that belongs to this user alone",
            directory.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    Ok(directory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_the_number_outside_of_a_user_namespace() {
        for (map, inside, expected) in [
            ("         0          0 4294967295\n", 1000, 1000),
            ("         0      65534          1\n", 0, 65534),
            ("0 1000 1\n1 100000 65536\n", 0, 1000),
            ("0 1000 1\n1 100000 65536\n", 33, 100_032),
            // Not mapped, or unreadable.
            ("0 1000 1\n", 7, 7),
            ("", 7, 7),
            ("x y z\n0 1\n", 7, 7),
            ("0 4294967295 4294967295\n", 1, 1),
        ] {
            assert_eq!(outside(map, inside), expected, "{map:?} {inside}");
        }
    }

    #[test]
    fn only_files_of_the_user_are_opened_and_none_without_an_end() {
        let place = std::env::temp_dir().join(format!("urxe-own-{}", std::process::id()));
        fs::create_dir_all(&place).expect("the tests may write there");
        let path = |name: &str| place.join(name);
        fs::write(path("file"), "text").expect("it is ours");
        std::os::unix::fs::symlink(path("file"), path("link")).expect("it is ours");
        std::os::unix::fs::symlink("/dev/zero", path("zero")).expect("it is ours");
        let pipe = nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU);
        pipe.expect("it is ours");
        assert_eq!(read_own(&path("file"), 4).expect("a file"), "text");
        read_own(&path("file"), 3).expect_err("too long");
        for name in ["link", "zero", "pipe", ".", "missing"] {
            read_own(&path(name), 4).expect_err(name);
        }
        open_shared(&path("pipe")).expect_err("no file");
        open_shared(&path("link")).expect_err("no file");
        create_own(&path("file")).expect_err("it is there");
        create_own(&path("link")).expect_err("it is there");
        assert_eq!(read_own(&path("file"), 4).expect("a file"), "text");
        read_own(Path::new("/dev/zero"), 4).expect_err("no file");
        fs::remove_dir_all(&place).expect("it is ours");
    }

    #[test]
    fn what_cannot_be_used_is_passed_over() {
        let place = std::env::temp_dir().join(format!("urxe-usable-{}", std::process::id()));
        let [open, taken, good] = ["open", "taken", "good"].map(|name| place.join(name));
        for base in [&open, &taken, &good] {
            fs::create_dir_all(base).expect("the tests may write there");
        }
        // One that all can enter, a file of that name, and no folder to make it in.
        fs::create_dir(open.join("x")).expect("a folder");
        fs::set_permissions(open.join("x"), Permissions::from_mode(0o755)).expect("it is ours");
        fs::write(taken.join("x"), "").expect("a file");
        let missing = place.join("missing");

        let uid = getuid().as_raw();
        let found = first_usable([&*missing, &*open, &*taken, &*good], "x", uid);
        assert_eq!(found.expect("the last one is good"), good.join("x"));
        let error = first_usable([&*open, &*missing], "x", uid).expect_err("neither is good");
        assert!(error.to_string().contains("this user alone"), "{error}");
        fs::remove_dir_all(&place).expect("it is ours");
    }
}
