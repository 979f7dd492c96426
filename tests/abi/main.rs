//! The drop-in library from the outside: its symbols, and programs of the distribution that run on it.

mod c_program;
mod cm;
mod cm_ends;
mod crates;
mod dapl;
mod ends;
mod faults;
mod fio;
mod harness;
mod launch;
mod likeness;
mod linked;
mod perftest;
mod pingpong;
mod preloaded;
mod programs;
mod pyverbs;
mod qemu;
mod reach;
mod readme;
mod rsockets;
mod surroundings;
mod symbols;
mod ucx;
mod valgrind;
mod wheels;
