//! Bodies of fuzz targets that have to see what the library does not export (`fuzz/abi` builds them).

mod calls;
mod script;

pub use self::calls::run as calls;
pub(crate) use self::script::Script;
pub use crate::rsocket::hostile::run as hostile_rsocket;
