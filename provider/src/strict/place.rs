//! The caller's place in the program, for reports.

use core::fmt;
use core::panic::Location;
use std::sync::OnceLock;

/// How the calls of a program are found that sees this library through another one, as a program in C does: what Rust
/// knows of a call is then a place in the library between.
#[derive(Clone, Copy, Debug)]
pub struct Callers {
    /// The address in the program from which the calling thread came, if it can be told.
    pub find: fn() -> Option<usize>,
    /// What is there, in words.
    pub name: fn(usize) -> String,
}

static CALLERS: OnceLock<Callers> = OnceLock::new();

/// Makes strict mode name calls in this way from now on, in all of the process. The first to ask for it decides.
pub fn name_callers(callers: Callers) {
    // A later call sees the same program.
    let _ = CALLERS.set(callers);
}

/// An address in a program that is not written in Rust; as text it is what [`Callers::name`] says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Caller(usize);

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CALLERS.get() {
            Some(callers) => f.write_str(&(callers.name)(self.0)),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) struct Place {
    pub(super) at: &'static Location<'static>,
    pub(super) caller: Option<Caller>,
}

impl Place {
    /// The call that the calling thread is in.
    #[cold]
    #[track_caller]
    pub(crate) fn here() -> Place {
        let at = Location::caller();
        let caller = CALLERS.get().and_then(|callers| (callers.find)());
        Place {
            at,
            caller: caller.map(Caller),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.caller {
            Some(caller) => write!(f, "{caller}"),
            None => write!(f, "{}:{}", self.at.file(), self.at.line()),
        }
    }
}
