//! What a test asks of either end. A test is written once, and the two ends change places.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::work::{Completion, Region, Span, Work};

/// Errors are sentences for the report.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// The service of a QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    Rc,
    Uc,
    Ud,
}

/// Where receives are posted: to a QP, or to a shared receive queue by its handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Qp(u32),
    Srq(u32),
}

/// How a connection is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) service: Service,
    pub(crate) mtu: u32,
    /// What the peer may do through the QP.
    pub(crate) access: u32,
    /// As a code: 4.096 us times 2 to its power.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) rd_atomic: u8,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) addr: IpAddr,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
}

/// A verbs provider by remote control, with one context, one PD and one CQ. QPs are named by their numbers.
pub(crate) trait Side {
    fn name(&self) -> &'static str;

    /// Drops everything and begins again.
    fn open(&mut self, addr: IpAddr) -> Result<()>;
    /// Drops everything.
    fn close(&mut self) -> Result<()>;
    fn counters(&mut self) -> Result<BTreeMap<String, u64>>;

    fn mr(&mut self, length: usize, access: u32) -> Result<Region>;
    /// Fills a span with the pattern of `seed`.
    fn fill(&mut self, span: Span, seed: u64) -> Result<()>;
    /// The place of the first byte that is not the pattern's.
    fn check(&mut self, span: Span, seed: u64) -> Result<Option<usize>>;
    fn fill_byte(&mut self, span: Span, byte: u8) -> Result<()>;
    fn check_byte(&mut self, span: Span, byte: u8) -> Result<Option<usize>>;
    fn write(&mut self, mr: Region, offset: usize, bytes: &[u8]) -> Result<()>;
    fn read(&mut self, mr: Region, offset: usize, length: usize) -> Result<Vec<u8>>;
    /// A shared receive queue; its handle.
    fn srq(&mut self) -> Result<u32>;
    /// A QP in RESET; its number.
    fn qp(&mut self, service: Service, srq: Option<u32>) -> Result<u32>;
    /// From RESET to RTS.
    fn connect(&mut self, qp: u32, local: Endpoint, remote: Endpoint, path: &Path) -> Result<()>;
    /// From RESET to RTS, for datagrams.
    fn ready(&mut self, qp: u32, qkey: u32, psn: u32) -> Result<()>;
    /// An address handle for a host or a multicast group; its handle.
    fn ah(&mut self, remote: IpAddr) -> Result<u32>;
    /// Attaches a QP to a multicast group.
    fn attach(&mut self, qp: u32, group: IpAddr) -> Result<()>;
    /// New memory, with an rkey that the peer of the QP (in RTS) may write by and then take back.
    fn lend(&mut self, qp: u32, length: usize) -> Result<Region>;
    /// The number of the state that it is in.
    fn state(&mut self, qp: u32) -> Result<u32>;

    fn post_recv(&mut self, queue: Queue, wr_id: u64, span: Span) -> Result<()>;
    fn post_send(&mut self, qp: u32, works: &[Work]) -> Result<()>;
    /// Up to `count` completions, those that come within the time.
    fn poll(&mut self, count: usize, patience: Duration) -> Result<Vec<Completion>>;
    fn arm(&mut self, solicited_only: bool) -> Result<()>;
    /// Whether an event comes within the time.
    fn wait_event(&mut self, patience: Duration) -> Result<bool>;
}
