//! Programs that were written against `urxe`, on simulated hosts, in virtual time.
//!
//! A program is a closure: it opens contexts, posts, polls and waits by the calls that open sockets elsewhere, and
//! knows nothing of the simulation. A [`Simulation`] gives each a host of a network; one seed is one run.
//!
//! ```
//! use fabric_sim::program::{Simulation, ask, tell};
//! use fabric_sim::{HostId, fault::Fault};
//! use urxe::{Access, ConnectOptions, Context, Qp, RecvWr, SendWr};
//!
//! // What both ends do, over real sockets as well.
//! fn open(addr: &str) -> Result<(urxe::Cq, Qp, urxe::Mr), urxe::Error> {
//!     let context = Context::open(addr.parse().unwrap())?;
//!     let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
//!     let qp = pd.qp(&cq).create()?;
//!     let memory = pd.reg_owned(vec![0; 1 << 16], Access::LOCAL_WRITE)?;
//!     Ok((cq, qp, memory))
//! }
//!
//! let mut sim = Simulation::new(42);
//! sim.fault(Fault::loss(0.0).nth([4])); // the fifth frame, and no other
//! sim.host(HostId(0), || {
//!     let (cq, qp, memory) = open("10.0.0.1").unwrap();
//!     tell("client", qp.endpoint());
//!     qp.connect(&ask("server").parse().unwrap(), &ConnectOptions::default()).unwrap();
//!     memory.write(0, b"from far away");
//!     qp.post_send(&SendWr::send(1, &[memory.sge(..60_000)]).signaled()).unwrap();
//!     cq.poll_one().unwrap().ok().unwrap(); // virtual time passes
//! });
//! sim.host(HostId(1), || {
//!     let (cq, qp, memory) = open("10.0.0.2").unwrap();
//!     qp.init(Access::NONE).unwrap();
//!     qp.post_recv(&RecvWr::new(1, &[memory.sge(..)])).unwrap();
//!     tell("server", qp.endpoint());
//!     qp.connect(&ask("client").parse().unwrap(), &ConnectOptions::default()).unwrap();
//!     assert_eq!(cq.poll_one().unwrap().ok().unwrap().byte_len, 60_000);
//! });
//! let report = sim.run().unwrap();
//! assert!(report.drops().total() == 1 && report.saw("retransmit"));
//! ```
//!
//! An async program runs in [`task::block_on`].
//!
//! [`#[fabric_sim::test]`](crate::test) runs a test over many seeds, and says which one failed.

mod calls;
mod capture;
mod cpu;
mod executor;
mod fewer;
mod flows;
mod groups;
mod here;
mod marks;
mod model;
mod nic;
mod page;
mod report;
mod seeds;
mod setup;
pub mod task;
mod threads;
mod told;
mod wait;
mod world;

pub use cpu::CpuModel;
pub use here::{Task, ask, host, now, sleep, spawn, tell};
pub use report::{Cause, Failure, HostEnd, Report};
pub use seeds::{SeedFailure, SeedTest, TestResult};
pub use setup::Simulation;

/// A thread of a simulation, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct TaskId(pub(crate) u32);
