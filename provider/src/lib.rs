//! RDMA verbs in userspace, over ordinary UDP sockets (RoCEv2): no RDMA adapter, no
//! kernel module, no root.
//!
//! The objects are those of verbs, under the same names: open a [`Context`], allocate a
//! [`Pd`], register memory ([`Mr`]), create a [`Cq`] and a [`Qp`], connect, post
//! [`SendWr`]s and [`RecvWr`]s, poll [`Wc`]s. Search for `ibv_...` to find what a verbs
//! function is called here.
//!
//! # A ping-pong
//!
//! Both ends are in one process here; between two hosts they exchange their
//! [`Endpoint`]s, one line of text each, over any channel.
//!
//! ```
//! use urxe::{Access, ConnectOptions, Context, Cq, Mr, Qp, RecvWr, SendWr};
//!
//! struct End { cq: Cq, qp: Qp, send: Mr, recv: Mr }
//!
//! impl End {
//!     fn open(addr: &str) -> Result<End, urxe::Error> {
//!         let context = Context::open(addr.parse().unwrap())?;
//!         let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
//!         let qp = pd.qp(&cq).create()?;
//!         let send = pd.reg_owned(vec![0; 64], Access::NONE)?;
//!         let recv = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
//!         Ok(End { cq, qp, send, recv })
//!     }
//!
//!     /// Makes ready for one message.
//!     fn expect(&self) -> Result<(), urxe::Error> {
//!         self.qp.post_recv(&RecvWr::new(0, &[self.recv.sge(..)]))
//!     }
//!
//!     fn send(&self, text: &[u8]) -> Result<(), urxe::Error> {
//!         self.send.write(0, text);
//!         self.qp.post_send(&SendWr::send(1, &[self.send.sge(..text.len())]))
//!     }
//!
//!     fn receive(&self) -> Result<Vec<u8>, urxe::Error> {
//!         let wc = self.cq.poll_one()?;
//!         let mut text = vec![0; wc.ok()?.byte_len as usize];
//!         self.recv.read(0, &mut text);
//!         Ok(text)
//!     }
//! }
//!
//! # fn main() -> Result<(), urxe::Error> {
//! let (ping, pong) = (End::open("127.80.0.1")?, End::open("127.80.0.2")?);
//! ping.qp.connect(&pong.qp.endpoint(), &ConnectOptions::default())?;
//! pong.qp.connect(&ping.qp.endpoint(), &ConnectOptions::default())?;
//! for round in 0..3 {
//!     (ping.expect()?, pong.expect()?);
//!     ping.send(format!("ping {round}").as_bytes())?;
//!     assert_eq!(pong.receive()?, format!("ping {round}").as_bytes());
//!     pong.send(b"pong")?;
//!     assert_eq!(ping.receive()?, b"pong");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Which thread does the work
//!
//! There is no adapter, so some thread must move the packets. A thread that posts sends
//! them itself; one that polls ([`Cq::poll`]) or waits ([`CompChannel::wait`]) receives
//! too. A background thread does the rest, so that one-sided operations on a program
//! that sleeps or computes go on. [CONCURRENCY.md](https://github.com/urxe/urxe/blob/main/docs/CONCURRENCY.md)
//! has the whole story.
//!
//! # Connections by address
//!
//! [`cm`] makes connections by IP address and port, as librdmacm does, and speaks with it.
//!
//! # Features
//!
//! * `remote`, on by default: the network of a simulation in another process (`network::remote`).
//! * `seal`, on by default: packets that are authenticated and encrypted ([`Security`]). Without it, a third less is built, and a context that
//!   is to seal its packets does not open ([`ErrorKind::Unsupported`]).
//! * `tokio`: completions and events as streams for asynchronous programs (`CqStream`,
//!   `CompChannel::into_stream`, `Context::async_events`, `cm::EventChannel::into_stream`;
//!   [async_pingpong.rs](https://github.com/urxe/urxe/blob/main/provider/examples/async_pingpong.rs)).
//! * `tracing`: changes of state, failures, NAKs and what is sent again as events of the
//!   target `urxe`; nothing about packets without trouble.
//!
//! # Environment
//!
//! `URXE_PCAP=FILE` captures all packets to a file that Wireshark opens.
//!
//! `URXE_STRICT=1` reports uses of verbs that work by luck ([`StrictMode`]); `URXE_SEED`
//! repeats the decisions of a run.
//!
//! `URXE_FAULTS=drop=2%,seed=7` has packets meet faults on their way out ([`FaultSpec`]);
//! `URXE_MTU=1024` limits the path MTU ([`ContextBuilder::mtu`]); `URXE_SPEED=25` is the speed
//! that ports report ([`PortSpeed`]).

#![deny(unsafe_code)]
#![deny(missing_docs)]

mod advice;
mod advise;
mod ah;
mod async_event;
mod blame;
pub mod cm;
mod comp_channel;
mod congestion_control;
mod context;
mod cq;
mod cq_builder;
mod cq_poll;
mod cq_wait;
mod datagram;
mod debug;
mod device;
mod dm;
mod ece;
mod endpoint;
mod engine;
mod error;
mod event_type;
mod explain;
mod faults;
mod gid_places;
mod guid;
mod host;
mod likeness;
mod limits;
mod listed;
mod lock;
#[allow(
    unsafe_code,
    reason = "user memory can be written to by peers at any time"
)]
mod mem;
mod mr;
mod mr_array;
mod mw;
pub mod network;
mod pd;
mod pd_numbers;
mod port;
mod port_speed;
mod posting;
mod qp;
mod queues;
mod recovery;
mod remote_mr;
mod rereg;
mod security;
mod share;
mod special_mr;
mod srq;
pub mod stat_file;
mod stat_qps;
#[cfg(feature = "tokio")]
mod stream;
mod strict;
mod tags;
mod td;
#[cfg(test)]
mod testing;
mod wc;
mod wire;
mod wr;
mod xrcd;

pub use advice::{Advice, AdviseFault};
pub use ah::AddressHandle;
pub use async_event::AsyncEvent;
pub use blame::Blame;
pub use comp_channel::CompChannel;
pub use context::{Context, ContextBuilder};
pub use cq::Cq;
pub use cq_builder::CqBuilder;
pub use cq_poll::{CqPoll, RtValues};
pub use datagram::UdEndpoint;
pub use device::{Device, devices};
pub use dm::Dm;
pub use endpoint::{ConnectOptions, Endpoint};
pub use engine::{flush_open_captures, report_open_faults};
pub use error::{BadWr, Error, ErrorKind};
pub use event_type::EventType;
pub use explain::{Explanation, Topic, explain, topics};
pub use faults::{FaultSpec, FaultSpecError, Share};
pub use gid_places::{GidPlace, RoceVersion};
pub use likeness::{Likeness, LikenessError};
pub use limits::{AtomicCap, DeviceAttr};
pub use listed::ListedDevice;
pub use mr::{BorrowedMr, Mr};
pub use mr_array::{Element, MrArray};
pub use mw::Mw;
pub use pd::Pd;
pub use port::{PortAttr, PortState};
pub use port_speed::{PortSpeed, PortSpeedError};
pub use qp::{Qp, QpBuilder, QpInitAttr};
pub use remote_mr::{RemoteMr, RemoteMrTextError};
pub use rereg::Rereg;
pub use security::{Security, create_key_file, read_key_file, rotate_key_file};
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use share::fuzzing;
pub use share::{Participant, participants, user_directory};
pub use special_mr::{ImplicitMr, NullMr};
pub use srq::Srq;
pub use stat_qps::{PathStatus, QpStatus};
#[cfg(feature = "tokio")]
pub use stream::{AsyncEvents, CmEvents, CompEvents, CqStream};
pub use strict::{Caller, Callers, StrictMode, StrictReport, StrictRule, name_callers};
pub use td::Td;
pub use urxe_core::CreateQpError;
pub use urxe_core::ErrorDetail;
pub use urxe_core::Recovery;
pub use urxe_core::cm::VendorOptions as Ece;
pub use urxe_core::congestion;
pub use urxe_core::cq::{CqId, TmFlags, TmInfo, WcOpcode};
pub use urxe_core::error::{DropReason, Fault, Side, WcStatus};
pub use urxe_core::flush::{Flush, Placement, Selectivity};
pub use urxe_core::mr::{Access, BindMw, MwType, RegisterError, inc_rkey};
pub use urxe_core::multicast::McastError;
pub use urxe_core::qp::attr::{AddressVector, AttrMask, Mtu, QpAttr, QpCap};
pub use urxe_core::qp::ready::bring_to_rts;
pub use urxe_core::qp::state::{ModifyError, QpState, QpType};
pub use urxe_core::srq::{SrqAttr, SrqAttrMask, SrqError, SrqId};
pub use urxe_core::tm::{TagHandle, TagOp, TagRecv, TagWr, TmCap};
pub use urxe_core::work::{PostError, SendFlags, SendWr as SendWrFields, Sge, WrData, WrOpcode};
pub use urxe_seal::{KeyFile, KeyFileError};
pub use urxe_wire::{Gid, IcrcPolicy, Lkey, Pkey, Psn, Qkey, Qpn, Rkey, Rvh, Tmh, TmhOp};
pub use wc::Wc;
pub use wire::Wire;
pub use wr::{RecvWr, SendWr};
pub use xrcd::{Xrcd, XrcdOpen};

/// Keeps the example of the registry's page true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
