//! Programs that the dynamic linker keeps from urxe (static, setuid): says why they will not see it, as all that they
//! say themselves is that there is no adapter.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access, getgid, getuid};

/// Why the drop-in library does not reach the program, if that can be seen from its file.
pub(super) fn obstacle(program: &OsStr) -> Option<&'static str> {
    let path = find(program)?;
    let meta = fs::metadata(&path).ok()?;
    let (mode, user, group) = (meta.permissions().mode(), getuid(), getgid());
    if mode & 0o4000 != 0 && meta.uid() != user.as_raw() {
        return Some("setuid, and for such programs the system ignores LD_LIBRARY_PATH");
    }
    if mode & 0o2000 != 0 && meta.gid() != group.as_raw() {
        return Some("setgid, and for such programs the system ignores LD_LIBRARY_PATH");
    }
    is_static(&File::open(&path).ok()?)?
        .then_some("statically linked, and looks for no library when it starts")
}

/// As `exec` finds it.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates.find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

/// Whether a 64-bit ELF file names no dynamic linker (`PT_INTERP`); `None` if it is no such file.
fn is_static(mut file: &File) -> Option<bool> {
    const PT_INTERP: [u8; 4] = 3u32.to_ne_bytes();
    let mut head = [0; 64];
    file.read_exact(&mut head).ok()?;
    // ELFCLASS64, in this machine's order.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if head[..6] != [0x7f, b'E', b'L', b'F', 2, order] {
        return None;
    }
    let number = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let table = u64::from_ne_bytes(head[32..40].try_into().ok()?);
    let (entry_len, entries) = (number(54), number(56));
    for index in 0..u64::from(entries) {
        let at = table.checked_add(index * u64::from(entry_len))?;
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, at).ok()?;
        if kind == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("urxe-reach-{name}-{}", std::process::id()));
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        path
    }

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
        bytes[32..40].copy_from_slice(&64u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&(kinds.len() as u16).to_ne_bytes());
        for kind in kinds {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_static_program_is_told_from_others() {
        let cut = &elf(&[1, 3])[..100];
        for (name, bytes, expected) in [
            ("static", &*elf(&[1, 2, 4]), Some(true)),
            ("dynamic", &*elf(&[6, 3, 1]), Some(false)),
            ("script", b"#!/bin/sh\nexit 0\n", None),
            ("empty", b"", None),
            ("cut", cut, None),
        ] {
            let path = file(name, bytes, 0o755);
            let opened = File::open(&path).expect("it is there");
            assert_eq!(is_static(&opened), expected, "{name}");
            fs::remove_file(&path).expect("it is ours");
        }
    }

    #[test]
    fn a_program_of_ones_own_is_not_setuid_to_anybody_else() {
        let path = file("setuid", &elf(&[3]), 0o6755);
        assert_eq!(obstacle(path.as_os_str()), None);
        fs::remove_file(&path).expect("it is ours");
        assert_eq!(obstacle(OsStr::new("sh")), None);
        assert_eq!(obstacle(OsStr::new("no-such-program-anywhere")), None);
    }
}
