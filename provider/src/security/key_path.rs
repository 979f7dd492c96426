//! Key files on disk: which users may read them, and when they change.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use urxe_seal::KeyFile;
use zeroize::Zeroizing;

/// More than any key file has.
const LEN_MAX: usize = 8 << 10;

/// Reads a key file that no other user can.
pub(super) fn read(path: &Path) -> Result<KeyFile, String> {
    let mut file = open(path).map_err(|error| error.to_string())?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    check(&meta)?;
    // Made at once, so that no part of it is left where it grew.
    let mut bytes = Zeroizing::new(vec![0; LEN_MAX]);
    let mut len = 0;
    while len < bytes.len() {
        match file
            .read(&mut bytes[len..])
            .map_err(|error| error.to_string())?
        {
            0 => break,
            count => len += count,
        }
    }
    let text = std::str::from_utf8(&bytes[..len]).map_err(|_| "it is not text")?;
    text.parse()
        .map_err(|error: urxe_seal::KeyFileError| error.to_string())
}

/// Opens it without waiting: the other end of a pipe may never be opened, and the engine's lock may be held.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Writes a file that was not there.
pub(super) fn create(path: &Path, file: &KeyFile) -> Result<(), String> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut new = options.open(path).map_err(|error| error.to_string())?;
    let written = new.write_all(file.text().as_bytes());
    let written = written.and_then(|()| new.sync_all());
    written.map_err(|error| {
        // Half a key is none.
        let _ = fs::remove_file(path);
        error.to_string()
    })
}

/// Writes another file and puts it into the place of this one: a reader has one or the other. It keeps its mode and owner.
pub(super) fn replace(path: &Path, file: &KeyFile) -> Result<(), String> {
    // A link leads to the file that is meant.
    let path = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    create(&new, file)?;
    let before = fs::metadata(&path);
    let kept = before.and_then(|before| {
        fs::set_permissions(&new, before.permissions())?;
        std::os::unix::fs::chown(&new, Some(before.uid()), Some(before.gid()))
    });
    let moved = kept.and_then(|()| fs::rename(&new, &path));
    moved.map_err(|error| {
        let _ = fs::remove_file(&new);
        error.to_string()
    })
}

/// With a file that other users can read, they can read and write what the packets of all processes name.
fn check(meta: &Metadata) -> Result<(), String> {
    if !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "its mode is {mode:03o}, so other users can use it: chmod 600 it, and make another key if one may have"
        ));
    }
    let (owner, own) = (meta.uid(), geteuid().as_raw());
    if owner != own && owner != 0 {
        return Err(format!(
            "it belongs to user {owner}, and this process to {own}"
        ));
    }
    Ok(())
}

/// What a file was when it was looked at, to see whether it changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Seen {
    /// `None` if it is not there.
    pub(crate) fn at(path: &Path) -> Option<Seen> {
        let meta = fs::metadata(path).ok()?;
        Some(Seen {
            inode: meta.ino(),
            len: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_made_for_their_owner_alone_and_replaced_as_a_whole() {
        let path = std::env::temp_dir().join(format!("urxe-new-key-{}", std::process::id()));
        let mut file = KeyFile::new(1, [7; 32], 0);
        create(&path, &file).expect("a new file");
        assert!(
            create(&path, &file)
                .expect_err("it is there")
                .contains("exists")
        );
        let mode = || fs::metadata(&path).expect("it is there").mode() & 0o777;
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("it is ours");
        file.rotate([8; 32], 0, 60);
        replace(&path, &file).expect("it is ours");
        assert_eq!(mode(), 0o400);
        assert_eq!(*read(&path).expect("a key file").text(), *file.text());
        fs::remove_file(&path).expect("it is ours");
        assert!(replace(&path, &file).is_err());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("urxe-key-{}", std::process::id()));
        fs::write(&path, &**KeyFile::new(0x3fa2, [7; 32], 0).text()).expect("a file");
        for (mode, is_right) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o601, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            let read = read(&path);
            assert_eq!(read.is_ok(), is_right, "{mode:o}: {read:?}");
            if let Err(reason) = read {
                assert!(reason.contains(&format!("{mode:o}")), "{reason}");
            }
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        let before = Seen::at(&path);
        for (bytes, word) in [
            (&b"\xff\xfe"[..], "text"),
            (b"secret 07070707", "urxe key new"),
            (b"urxe-key 1 3fa2\nepoch 1 since 0 07070707", "line 2"),
            (&[b' '; 2 * LEN_MAX], "urxe key new"),
        ] {
            fs::write(&path, bytes).expect("a file");
            let reason = read(&path).expect_err("no key file");
            assert!(
                reason.contains(word) && !reason.contains("0707"),
                "{reason}"
            );
        }
        assert_ne!(Seen::at(&path), before);
        fs::remove_file(&path).expect("it is ours");
        assert_eq!(Seen::at(&path), None);
        assert!(read(&path).expect_err("gone").contains("No such file"));
        let mkfifo = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(mkfifo.expect("it runs").success());
        for path in [Path::new("/tmp"), &path] {
            let reason = read(path).expect_err("a folder, and a pipe without a writer");
            assert!(reason.contains("not a file"), "{reason}");
        }
        fs::remove_file(&path).expect("it is ours");
    }
}
