//! What protects packets that leave through sockets: nothing, or an envelope under a key that both ends have (docs/SEALED.md).

mod key_path;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use urxe_seal::{KeyFile, Mode};
use zeroize::Zeroizing;

use crate::error::{Error, ErrorKind};
use crate::host::environment;
use crate::host::random::random;

/// What is done for packets that leave through sockets, and asked of those that arrive there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Security {
    /// Plain RoCEv2.
    #[default]
    Off,
    /// Packets are authenticated: without the key none can be made or changed. All can be read.
    Auth,
    /// Packets are authenticated and encrypted. A peer with [`Security::Auth`] and the same key is understood; it answers as it does always,
    /// in the clear.
    Seal,
    /// As [`Security::Seal`], and a peer that does less is refused.
    SealRequired,
    /// As [`Security::Auth`], and connections that the connection manager makes have keys of their own, which only their two ends know. Those
    /// to a peer without them are refused.
    AuthPairs,
    /// As [`Security::Seal`], with such keys.
    SealPairs,
    /// As [`Security::SealRequired`], with such keys.
    SealRequiredPairs,
}

impl Security {
    /// How packets are sealed, and what is accepted at least.
    pub(crate) fn modes(self) -> Option<(Mode, Mode)> {
        match self {
            Security::Off => None,
            Security::Auth | Security::AuthPairs => Some((Mode::Auth, Mode::Auth)),
            Security::Seal | Security::SealPairs => Some((Mode::Seal, Mode::Auth)),
            Security::SealRequired | Security::SealRequiredPairs => Some((Mode::Seal, Mode::Seal)),
        }
    }

    /// Connections have keys of their own.
    pub(crate) fn has_pairs(self) -> bool {
        matches!(
            self,
            Security::AuthPairs | Security::SealPairs | Security::SealRequiredPairs
        )
    }
}

impl FromStr for Security {
    type Err = String;

    fn from_str(text: &str) -> Result<Security, String> {
        let mut words = text.split(',');
        let mode = words.next().unwrap_or_default();
        let (mut requires, mut pairs) = (false, false);
        let mut are_known = true;
        for word in words {
            match word {
                "require" if !requires => requires = true,
                "pairs" if !pairs => pairs = true,
                _ => are_known = false,
            }
        }
        match (mode, requires, pairs) {
            ("off", false, false) if are_known => Ok(Security::Off),
            // What `auth` refuses is everything that is not authenticated, so it can require no more.
            ("auth", _, false) if are_known => Ok(Security::Auth),
            ("auth", _, true) if are_known => Ok(Security::AuthPairs),
            ("seal", false, false) if are_known => Ok(Security::Seal),
            ("seal", true, false) if are_known => Ok(Security::SealRequired),
            ("seal", false, true) if are_known => Ok(Security::SealPairs),
            ("seal", true, true) if are_known => Ok(Security::SealRequiredPairs),
            _ => Err(format!(
                "\"{text}\" is not \"off\", \"auth\" or \"seal\", the last two with \",require\" and \",pairs\" if that is wanted"
            )),
        }
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Security::Off => "off",
            Security::Auth => "auth",
            Security::Seal => "seal",
            Security::SealRequired => "seal,require",
            Security::AuthPairs => "auth,pairs",
            Security::SealPairs => "seal,pairs",
            Security::SealRequiredPairs => "seal,require,pairs",
        })
    }
}

/// How a context seals its packets, if it does.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    pub(crate) mode: Mode,
    pub(crate) mode_min: Mode,
    /// Connections have keys of their own.
    pub(crate) has_pairs: bool,
    pub(crate) key_file: PathBuf,
}

impl Sealing {
    /// By what the program says, or else the environment: a key file alone means [`Security::Seal`].
    pub(crate) fn choose(
        security: Option<Security>,
        key_file: Option<PathBuf>,
    ) -> Result<Option<Sealing>, Error> {
        let security = match security {
            Some(security) => Some(security),
            None => environment::parsed(environment::SECURITY, str::parse)?,
        };
        let set = || environment::value(environment::KEY_FILE).map(PathBuf::from);
        let key_file = key_file.or_else(set);
        let security = security.unwrap_or(match key_file {
            Some(_) => Security::Seal,
            None => Security::Off,
        });
        let Some((mode, mode_min)) = security.modes() else {
            return Ok(None);
        };
        have_ciphers()?;
        let key_file = key_file.ok_or(ErrorKind::NoKeyFile)?;
        Ok(Some(Sealing {
            mode,
            mode_min,
            has_pairs: security.has_pairs(),
            key_file,
        }))
    }
}

/// What needs a key needs the feature `seal`.
fn have_ciphers() -> Result<(), Error> {
    if cfg!(feature = "seal") {
        return Ok(());
    }
    Err(ErrorKind::Unsupported(
        "packets are to be sealed, and this program was built with the crate urxe without its feature \"seal\"",
    )
    .into())
}

/// Reads a key file of `urxe key new`.
///
/// # Errors
/// [`ErrorKind::KeyFile`]: it is not there, is open to other users, or is none. [`ErrorKind::Unsupported`] without the feature `seal`, as of
/// all functions of keys.
pub fn read_key_file(path: &Path) -> Result<KeyFile, Error> {
    have_ciphers()?;
    key_path::read(path).map_err(unusable(path))
}

/// Makes a key file that only its owner can read, with one secret that is used at once.
///
/// # Errors
/// [`ErrorKind::KeyFile`] if it cannot be written, or is there already.
pub fn create_key_file(path: &Path) -> Result<KeyFile, Error> {
    have_ciphers()?;
    let [a, b, ..] = random()?.to_be_bytes();
    let file = KeyFile::new(u16::from_be_bytes([a, b]), *secret()?, unix_now());
    key_path::create(path, &file).map_err(unusable(path))?;
    Ok(file)
}

/// Adds a secret to a key file that senders use after a while, and takes out those that are not accepted any more. The file is replaced as a
/// whole.
///
/// # Errors
/// [`ErrorKind::KeyFile`]; the file is as it was.
pub fn rotate_key_file(path: &Path, after: Duration) -> Result<KeyFile, Error> {
    let mut file = read_key_file(path)?;
    let now = unix_now();
    file.rotate(*secret()?, now, now.saturating_add(after.as_secs()));
    key_path::replace(path, &file).map_err(unusable(path))?;
    Ok(file)
}

fn secret() -> Result<Zeroizing<[u8; 32]>, Error> {
    let mut secret = Zeroizing::new([0; 32]);
    for part in secret.as_chunks_mut::<8>().0 {
        *part = random()?.to_ne_bytes();
    }
    Ok(secret)
}

fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn unusable(path: &Path) -> impl FnOnce(String) -> Error {
    let path = path.display().to_string();
    move |reason| ErrorKind::KeyFile(format!("{path} cannot be used: {reason}")).into()
}

pub(crate) use key_path::Seen;

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "seal"))]
    #[test]
    fn without_the_feature_nothing_is_sealed_and_the_error_names_it() {
        let address = "127.81.0.97".parse().expect("an address");
        let sealed = crate::Context::builder(address).security(Security::Auth);
        let path = Path::new("/nonexistent/key");
        for error in [
            sealed.clone().open().err(),
            sealed.key_file(path).open().err(),
            crate::Context::builder(address).key_file(path).open().err(),
            read_key_file(path).err(),
            create_key_file(path).err(),
            rotate_key_file(path, Duration::ZERO).err(),
        ] {
            let error = error.expect("nothing can be sealed");
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
            assert!(error.to_string().contains("feature \"seal\""), "{error}");
        }
        let path = std::env::temp_dir().join(format!("urxe-off-{}", std::process::id()));
        let plain = crate::Context::builder(address).security(Security::Off);
        assert!(plain.key_file(path).open().is_ok());
    }

    #[test]
    fn what_is_written_is_read() {
        for security in [
            Security::Off,
            Security::Auth,
            Security::Seal,
            Security::SealRequired,
            Security::AuthPairs,
            Security::SealPairs,
            Security::SealRequiredPairs,
        ] {
            assert_eq!(security.to_string().parse(), Ok(security));
        }
        for (text, security) in [
            ("auth,require", Security::Auth),
            ("auth,pairs,require", Security::AuthPairs),
            ("seal,pairs,require", Security::SealRequiredPairs),
        ] {
            assert_eq!(text.parse(), Ok(security));
        }
        for text in [
            "",
            "on",
            "require",
            "off,require",
            "off,pairs",
            "pairs",
            "Seal",
            "seal,",
            "seal,pair",
            "seal,pairs,pairs",
            "pairs,seal",
        ] {
            assert!(text.parse::<Security>().is_err(), "{text}");
        }
    }
}
