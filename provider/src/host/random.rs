//! Numbers of the system that cannot be guessed.

use crate::error::Error;

/// A number from the system that cannot be guessed.
pub(crate) fn random() -> Result<u64, Error> {
    getrandom::u64()
        .map_err(|error| match error.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::ErrorKind::Unsupported.into(),
        })
        .map_err(Error::io("reading random numbers"))
}
