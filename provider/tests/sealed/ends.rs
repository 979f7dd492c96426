//! Key files, and contexts that use them.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use urxe::{Context, ContextBuilder, KeyFile, Security, Wire};

/// A key file of our own, removed at the end.
pub(crate) struct Key(pub(crate) PathBuf);

impl Key {
    pub(crate) fn new(id: u16, secret: u8) -> Key {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("urxe-test-key-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        write(&path, &KeyFile::new(id, [secret; 32], 0));
        Key(path)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// As `urxe key rotate` does: the file is replaced as a whole.
pub(crate) fn write(path: &Path, file: &KeyFile) {
    let new = path.with_extension("new");
    fs::write(&new, &**file.text()).expect("a file");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(new, path).expect("it is ours");
}

pub(crate) fn builder(addr: IpAddr, security: Security, key: &Key) -> ContextBuilder {
    Context::builder(addr)
        .wire(Wire::Sockets)
        .security(security)
        .key_file(&key.0)
}

pub(crate) fn open(addr: IpAddr, security: Security, key: &Key) -> Context {
    builder(addr, security, key)
        .open()
        .expect("the address is free")
}
