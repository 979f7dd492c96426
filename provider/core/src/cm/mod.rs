//! The communication manager as a sans-IO state machine: how two QPs find each other by
//! address and port (IBTA volume 1, chapter 12, with the header that RDMA-CM puts into the
//! private data).
//!
//! An [`Agent`] has listeners and connections and talks in management datagrams (MADs):
//!
//! * [`Agent::handle_mad`] for every MAD to QP 1;
//! * [`Agent::connect`], [`Agent::accept`] and so on for the application;
//! * [`Agent::handle_timeout`] when [`Agent::next_timeout`] has come;
//!
//! and after any of these [`Agent::front`] and [`Agent::pop`] until there is nothing to send,
//! and [`Agent::poll_event`] until there is no event. A [`crate::Shard`] has an agent and
//! does all that ([`crate::Shard::cm`]).
//!
//! | file | what |
//! |---|---|
//! | `agent.rs` | the agent, and what the application asks for |
//! | `arrivals.rs`, `requests.rs` | messages that arrive: of connections, of strangers |
//! | `bounds.rs`, `lines.rs` | what peers choose is capped; what is given up when there is too much of it |
//! | `clock.rs` | what happens when nothing does: messages sent again, timewait |
//! | `conn.rs`, `conns.rs`, `index.rs` | a connection, all of them, finding one |
//! | `farewell.rs`, `farewells.rs` | what others say in the name of a process that was killed |
//! | `handshake.rs` | what is said before a request, where packets are sealed under keys of their own |
//! | `listeners.rs` | which services take requests |
//! | `message.rs` | messages, written |
//! | `route.rs` | the owner of a message, where several share an address |
//! | `shrink.rs` | tables made smaller when very many connections are gone |
//! | `terms.rs`, `event.rs` | what both sides agree on; what the application hears |
//! | `management.rs` | the agent behind a shard's QP 1 |

mod agent;
mod arrivals;
mod bounds;
mod clock;
mod conn;
mod conns;
mod event;
mod farewell;
mod farewells;
mod handshake;
mod index;
mod lines;
mod listeners;
mod management;
mod message;
mod requests;
mod route;
mod shrink;
mod terms;

pub use agent::{Agent, AgentConfig, Counts, Outgoing};
pub use event::{CmEvent, Handshake, Hello, HelloFrom};
pub use farewell::Farewell;
pub use listeners::{ListenerId, Scope};
pub(crate) use management::Management;
pub use route::Destination;
pub use shrink::CmPlaces;
pub use terms::{
    Answer, CmError, CommId, ConnectRequest, DatagramAnswer, DatagramRequest, HELLO_LEN,
    HelloBytes, Incoming, MadPath, Patience, Reply, Terms, Transport, VendorOptions,
};
