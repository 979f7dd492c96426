//! Packets in envelopes: what they protect, and what both ends are told when they do not fit together. Over sockets always, as
//! nothing is sealed that goes through memory.

mod attacks;
mod ends;
mod files;
mod keys;
mod pairs;
mod riders;
mod sniffer;
