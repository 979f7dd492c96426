//! A ring of records in memory that two processes of one host share: one writes, the other reads.
//!
//! The writer makes the memory ([`Producer::create`]) and sends its descriptor to the reader, which opens it
//! ([`Consumer::open`]). A record is some bytes and a [`Mark`]; it arrives whole, in order, and once. Neither side ever waits for
//! the other: a full ring says so, an empty one too. A reader that is about to sleep says so in the memory, and the writer then
//! wakes it by whatever means they have ([`Producer::must_wake`]).
//!
//! Each side may be hostile, or killed at any moment. What the other one wrote is read once, checked, and then used; the bytes of a record
//! are copied out before anything looks at them. Nonsense closes the ring.
//!
//! ```
//! use urxe_ring::{Consumer, Mark, Pop, Producer, Push};
//!
//! let (mut producer, memory) = Producer::create()?;
//! let mut consumer = Consumer::open(memory)?;
//! let mark = Mark { kind: 1, tag: 7, size: 5 };
//! assert_eq!(producer.push(mark, b"hello"), Push::Done);
//! let mut bytes = [0; 64];
//! assert_eq!(consumer.pop(&mut bytes), Pop::Record { len: 5, mark });
//! assert_eq!(&bytes[..5], b"hello");
//! assert_eq!(consumer.pop(&mut bytes), Pop::Empty);
//! # Ok::<(), std::io::Error>(())
//! ```
#![cfg(target_os = "linux")]

mod consumer;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod layout;
mod memory;
mod producer;
mod sync;
#[cfg(test)]
mod tests;
mod window;

pub use consumer::{Consumer, Pop};
pub use layout::{Mark, RECORD_MAX, RING_BYTES};
pub use producer::{Position, Producer, Push};
pub use window::Window;
