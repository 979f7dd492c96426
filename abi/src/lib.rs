//! `libibverbs.so.1` and `librdmacm.so.1`, as programs find them that were built for RDMA adapters.
//!
//! Nothing here knows RDMA: each function translates between C and the crate [`urxe`].
//!
//! - `layout`: the structures of the C header;
//! - `object`: what stands behind the pointers that programs hold;
//! - `verbs`: the functions, one file a family. `build.rs` finds them there and gives them their exported names
//!   and versions;
//! - `cm`: those of the connection manager, `rsocket`: those of sockets on it, in the same way;
//! - `read`: events that programs read from descriptors, in place of calls;
//! - `ops`: the function pointers that inline functions of the header call through: the data path.
//!
//! A panic in a function with C linkage ends the process: nothing unwinds into C.

#![cfg_attr(
    feature = "fuzzing",
    allow(dead_code, reason = "nothing is exported there")
)]

mod blocking;
mod caller;
mod cm;
mod device;
mod errno;
mod events;
mod exit;
mod file;
#[cfg(feature = "fuzzing")]
#[path = "../../fuzz/abi/targets/mod.rs"]
pub mod fuzzing;
mod instance;
mod layout;
mod live;
mod lock;
mod object;
mod ops;
mod read;
mod rsocket;
mod stub;
mod verbose;
mod verbs;

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
