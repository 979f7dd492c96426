//! Programs that the dynamic linker keeps from urxe (static, setuid, of another C library): says why they will not see it, as all that they
//! say themselves is that there is no adapter.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};
use rustix::process::{geteuid, getgid, getuid};

/// Why the drop-in library does not reach the program, if that can be seen from its file.
pub(crate) fn obstacle(program: &OsStr) -> Option<&'static str> {
    let path = find(program)?;
    let meta = fs::metadata(&path).ok()?;
    let (mode, user, group) = (meta.permissions().mode(), getuid(), getgid());
    if mode & 0o4000 != 0 && meta.uid() != user.as_raw() {
        return Some("setuid, and for such programs the system ignores LD_LIBRARY_PATH");
    }
    if mode & 0o2000 != 0 && meta.gid() != group.as_raw() {
        return Some("setgid, and for such programs the system ignores LD_LIBRARY_PATH");
    }
    if !geteuid().is_root() && has_capabilities(&path) {
        return Some(
            "one with capabilities (setcap), and for such programs the system ignores LD_LIBRARY_PATH",
        );
    }
    match loader(&File::open(&path).ok()?)? {
        None => Some("statically linked, and looks for no library when it starts"),
        Some(name) if is_musl(&name) => Some("built for musl, and urxe's library is for glibc"),
        Some(_) => None,
    }
}

/// Of a file's own, which the program gets with any user but root.
fn has_capabilities(path: &Path) -> bool {
    // Longer than any there is.
    let mut value = [0_u8; 64];
    getxattr(path, "security.capability", &mut value).is_ok_and(|len| len > 0)
}

fn is_musl(loader: &[u8]) -> bool {
    let name = loader.rsplit(|byte| *byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"ld-musl"))
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
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// The dynamic linker that a 64-bit ELF file names (`PT_INTERP`), if it names one; `None` if it is no such file.
fn loader(mut file: &File) -> Option<Option<Vec<u8>>> {
    const PT_INTERP: [u8; 4] = 3u32.to_ne_bytes();
    /// No path is longer.
    const NAME_MAX: u64 = 4096;
    let mut head = [0; 64];
    file.read_exact(&mut head).ok()?;
    // ELFCLASS64, in this machine's order.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if head[..6] != [0x7f, b'E', b'L', b'F', 2, order] {
        return None;
    }
    let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    let table = word(&head[32..40])?;
    let (entry_len, entries) = (half(54), half(56));
    for index in 0..u64::from(entries) {
        let at = table.checked_add(index * u64::from(entry_len))?;
        let mut entry = [0; 40];
        file.read_exact_at(&mut entry, at).ok()?;
        if entry[..4] == PT_INTERP {
            let (at, len) = (word(&entry[8..16])?, word(&entry[32..40])?);
            let mut name = vec![0; len.min(NAME_MAX) as usize];
            file.read_exact_at(&mut name, at).ok()?;
            let end = name.iter().position(|byte| *byte == 0);
            name.truncate(end.unwrap_or(name.len()));
            return Some(Some(name));
        }
    }
    Some(None)
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

    /// With segments of these kinds, each of which has the name.
    fn elf(kinds: &[u32], name: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, order]);
        bytes[32..40].copy_from_slice(&64u64.to_ne_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_ne_bytes());
        bytes[56..58].copy_from_slice(&(kinds.len() as u16).to_ne_bytes());
        let end = 64 + 56 * kinds.len() as u64;
        for kind in kinds {
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(end.to_ne_bytes());
            bytes.extend([0; 16]);
            bytes.extend((name.len() as u64).to_ne_bytes());
            bytes.extend([0; 16]);
        }
        bytes.extend(name.as_bytes());
        bytes
    }

    #[test]
    fn the_dynamic_linker_of_a_program_is_found() {
        let (glibc, musl) = (
            "/lib64/ld-linux-x86-64.so.2\0",
            "/lib/ld-musl-x86_64.so.1\0",
        );
        let cut = &elf(&[1, 3], glibc)[..180];
        let named = |name: &str| Some(Some(name.trim_end_matches('\0').into()));
        for (name, bytes, expected) in [
            ("static", &*elf(&[1, 2, 4], ""), Some(None)),
            ("dynamic", &*elf(&[6, 3, 1], glibc), named(glibc)),
            ("musl", &*elf(&[6, 3, 1], musl), named(musl)),
            ("script", b"#!/bin/sh\nexit 0\n", None),
            ("empty", b"", None),
            ("cut", cut, None),
        ] {
            let path = file(name, bytes, 0o755);
            let opened = File::open(&path).expect("it is there");
            assert_eq!(loader(&opened), expected, "{name}");
            let told = obstacle(path.as_os_str());
            assert_eq!(
                told.is_some(),
                matches!(name, "static" | "musl"),
                "{name}: {told:?}"
            );
            fs::remove_file(&path).expect("it is ours");
        }
    }

    #[test]
    fn capabilities_of_a_file_are_seen() {
        let path = file("capable", &elf(&[3], ""), 0o755);
        assert!(!has_capabilities(&path));
        // Revision 2, effective: CAP_NET_RAW.
        let value = [0x0200_0001_u32, 1 << 13, 0, 0, 0]
            .map(u32::to_le_bytes)
            .concat();
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&path, "security.capability", &value, flags) {
            Ok(()) => assert!(has_capabilities(&path)),
            Err(error) => println!("skipped: only root can give a file capabilities: {error}"),
        }
        fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn a_program_of_ones_own_is_not_setuid_to_anybody_else() {
        let path = file("setuid", &elf(&[3], "x"), 0o6755);
        assert_eq!(obstacle(path.as_os_str()), None);
        fs::remove_file(&path).expect("it is ours");
        assert_eq!(obstacle(OsStr::new("sh")), None);
        assert_eq!(obstacle(OsStr::new("no-such-program-anywhere")), None);
    }
}
