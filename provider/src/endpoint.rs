//! Endpoints: what one end of a connection must know of the other, and connecting by it.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use urxe_core::mr::Access;
use urxe_core::qp::attr::{AddressVector, AttrMask, Mtu, QpAttr};
use urxe_core::qp::ready::bring_to_rts;
use urxe_core::qp::state::QpState;
use urxe_wire::{Psn, Qpn};

use crate::error::{Error, ErrorKind};
use crate::host::environment;
use crate::qp::Qp;

/// One end of a connection: exchange it over any channel, in either direction.
///
/// As text it is one line without spaces, `address/qpn/psn/mtu`.
///
/// ```
/// let endpoint: urxe::Endpoint = "10.0.0.1/0x1a2b3c/0x77/4096".parse()?;
/// assert_eq!(endpoint.qpn.get(), 0x1a2b3c);
/// assert_eq!(endpoint.to_string().parse::<urxe::Endpoint>()?, endpoint);
/// # Ok::<(), urxe::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Endpoint {
    /// Its address (its GID).
    pub addr: IpAddr,
    /// Its QP's number.
    pub qpn: Qpn,
    /// The PSN of the first packet that it will send.
    pub psn: Psn,
    /// The largest MTU that its interface can carry.
    pub mtu: Mtu,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (qpn, psn, mtu) = (self.qpn.get(), self.psn.get(), self.mtu.bytes());
        write!(f, "{}/{qpn:#x}/{psn:#x}/{mtu}", self.addr)
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint, Error> {
        let error = |reason| no_endpoint(text, reason);
        let mut fields = text.trim().split('/');
        let mut field = |missing| fields.next().ok_or_else(|| error(missing));
        let addr = field("it is empty")?;
        let qpn = field("the QP number is missing")?;
        let psn = field("the PSN is missing")?;
        let mtu = field("the MTU is missing")?;
        if fields.next().is_some() {
            return Err(error("there is more after the MTU"));
        }
        let addr = addr.parse();
        let mtu = mtu.parse().ok().and_then(Mtu::from_bytes);
        Ok(Endpoint {
            addr: addr.map_err(|_| error("it does not begin with an IP address"))?,
            qpn: Qpn::new(number24(qpn).ok_or_else(|| error("the QP number is no 24-bit number"))?),
            psn: Psn::new(number24(psn).ok_or_else(|| error("the PSN is no 24-bit number"))?),
            mtu: mtu.ok_or_else(|| error("the MTU is none of 256, 512, 1024, 2048 and 4096"))?,
        })
    }
}

pub(crate) fn no_endpoint(text: &str, reason: &'static str) -> Error {
    // Whatever was sent in its place need not be repeated in full.
    let text = text.chars().take(80).collect();
    ErrorKind::Endpoint { text, reason }.into()
}

/// A number of at most 24 bits, hexadecimal with `0x` or decimal.
pub(crate) fn number24(text: &str) -> Option<u32> {
    let number = u32::try_from(environment::number(text)?).ok()?;
    (number < 1 << 24).then_some(number)
}

/// How to connect. The default suits most programs.
///
/// ```
/// use urxe::{ConnectOptions, Mtu};
///
/// let options = ConnectOptions { path_mtu: Some(Mtu::Mtu1024), ..ConnectOptions::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// What the peer may do through this QP.
    pub access: Access,
    /// Payload bytes a packet, the same on both sides; by default the smaller of what
    /// both interfaces can carry.
    pub path_mtu: Option<Mtu>,
    /// READs and atomics under way, either way.
    pub rd_atomic: u8,
    /// Local ACK timeout: 4.096 us times 2 to its power (14: 67 ms); 0 is for ever.
    pub timeout: u8,
    /// Retries when no answer comes, 0 to 7.
    pub retry_cnt: u8,
    /// Retries when the peer has no receive posted, 0 to 7; 7, the default, is for ever: a SEND to a peer that forgot its
    /// receive then has no completion, not even a failed one. [`Cq::poll_timeout`](crate::Cq::poll_timeout) ends the wait,
    /// and `URXE_STRICT=1` names the cause.
    pub rnr_retry: u8,
    /// How long peers shall wait when this side has no receive posted, as a code (12: 640 us).
    pub min_rnr_timer: u8,
    /// TOS byte of the packets: DSCP and ECN.
    pub traffic_class: u8,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            path_mtu: None,
            rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            traffic_class: 0,
        }
    }
}

impl Qp {
    /// What the peer must know to connect to this QP, at the context's first address.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint_at(self.pd().context().address())
    }

    /// The endpoint at another of the context's addresses.
    pub fn endpoint_at(&self, addr: IpAddr) -> Endpoint {
        Endpoint {
            addr,
            qpn: self.qp_num(),
            psn: self.first_psn(),
            mtu: self.pd().context().active_mtu(),
        }
    }

    /// Connects to a peer (RC, UC): INIT, RTR, RTS. The peer does the same with our endpoint;
    /// packets that arrive before it has are sent again. Receives can be posted before.
    ///
    /// The context's first address of the peer's IP version is used.
    ///
    /// # Errors
    /// See [`Qp::modify`]. The QP may be left in INIT or RTR; reset it to try again.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.14".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(16)?;
    /// use urxe::{ConnectOptions, QpState};
    ///
    /// let (a, b) = (pd.qp(&cq).create()?, pd.qp(&cq).create()?);
    /// a.connect(&b.endpoint(), &ConnectOptions::default())?;
    /// b.connect(&a.endpoint(), &ConnectOptions::default())?;
    /// assert_eq!(a.state()?, QpState::Rts);
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(&self, remote: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        let context = self.pd().context();
        let local = context.address_like(remote.addr);
        self.connect_from(local.unwrap_or(context.address()), remote, options)
    }

    /// Connects from a certain one of the context's addresses ([`Qp::connect`]).
    ///
    /// # Errors
    /// See [`Qp::connect`].
    pub fn connect_from(
        &self,
        local: IpAddr,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let attr = self.attributes(local, remote, options);
        bring_to_rts(self.qp_type(), self.state()?, &attr, |attr, mask| {
            self.modify(attr, mask)
        })
    }

    /// Brings a QP that was just created to INIT, where receives can be posted.
    ///
    /// # Errors
    /// See [`Qp::modify`].
    pub fn init(&self, access: Access) -> Result<(), Error> {
        let attr = QpAttr {
            qp_state: QpState::Init,
            qp_access_flags: access,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        self.modify(&attr, mask)
    }

    fn attributes(&self, local: IpAddr, remote: &Endpoint, options: &ConnectOptions) -> QpAttr {
        let smaller = self.pd().context().active_mtu().min(remote.mtu);
        QpAttr {
            qp_access_flags: options.access,
            path_mtu: options.path_mtu.unwrap_or(smaller),
            ah_attr: Some(AddressVector {
                local,
                remote: remote.addr,
                traffic_class: options.traffic_class,
                hop_limit: 64,
            }),
            dest_qp_num: remote.qpn,
            rq_psn: remote.psn,
            sq_psn: self.first_psn(),
            max_rd_atomic: options.rd_atomic,
            max_dest_rd_atomic: options.rd_atomic,
            min_rnr_timer: options.min_rnr_timer,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            ..QpAttr::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_endpoint_is_refused() {
        for text in [
            "",
            "x",
            "10.0.0.1",
            "10.0.0.1/1",
            "10.0.0.1/1/2",
            "10.0.0.1/1/2/1000",
            "10.0.0.1/0x1000000/2/1024",
            "10.0.0.1/1/-2/1024",
            "10.0.0.1/1/2/1024/5",
            "host/1/2/1024",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            assert!(
                matches!(error.kind(), ErrorKind::Endpoint { .. }),
                "{error}"
            );
        }
        let endpoint: Endpoint = "fd00::1/2/3/1024\n".parse().expect("an endpoint");
        assert_eq!(endpoint.to_string(), "fd00::1/0x2/0x3/1024");
    }
}
