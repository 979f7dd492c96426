//! The exported functions, one file a family.
//!
//! Every `pub(crate) unsafe extern "C" fn` here that is named in `symbols.txt` is exported under its name, with its
//! version (`build.rs`). All of them take pointers as their manual pages describe: that is what their safety rests
//! on, and what `SAFETY` lines call the rules of a function.

pub(crate) mod ah;
pub(crate) mod buf;
pub(crate) mod comp_channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dm;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod gid;
pub(crate) mod import;
pub(crate) mod mcast;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod private;
pub(crate) mod qp;
pub(crate) mod qp_create;
pub(crate) mod query;
pub(crate) mod rates;
pub(crate) mod simulated;
pub(crate) mod srq;
pub(crate) mod strings;
pub(crate) mod sysfs;
pub(crate) mod xrcd;
