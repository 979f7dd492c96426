//! Settings of an identifier.

use urxe_core::cm::Patience;

/// A setting of an [`super::Id`], for [`super::Id::set_option`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_set_option")]
pub enum CmOption {
    /// Traffic class of the connection's packets: DSCP. Before [`super::Id::resolve_route`].
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    Tos(u8),
    /// Others with this setting may have the same port, as long as none listens.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    ReuseAddr(bool),
    /// An IPv6 address of all zeros means IPv6 alone.
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    AfOnly(bool),
    /// Exponent of the QP's ACK timeout, 0 to 31: 4.096 us times 2 to its power. Default 17.
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    AckTimeout(u8),
    /// What the QP's RNR NAKs ask for, as a code, 0 to 31. Default 0: 655 ms, as Linux has it.
    #[doc(alias = "rdma_set_min_rnr_timer")]
    MinRnrTimer(u8),
    /// Exponent of the time that the peer may take to answer a message, 0 to 31. Default 20: 4.3 s, as Linux has it.
    ResponseTimeout(u8),
    /// How often a message is sent again, 0 to 15. Default 15.
    MaxCmRetries(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) tos: u8,
    pub(crate) reuse_addr: bool,
    pub(crate) af_only: bool,
    pub(crate) ack_timeout: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) response_timeout: u8,
    pub(crate) max_cm_retries: u8,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tos: 0,
            reuse_addr: false,
            af_only: false,
            ack_timeout: 17,
            min_rnr_timer: 0,
            response_timeout: 20,
            max_cm_retries: 15,
        }
    }
}

/// 10 + 20 + 40 + 80 + 160 ms. perftest and others tell their client to come, and listen then. With an adapter they win,
/// as the client's addresses and routes are resolved meanwhile, which takes no time here.
const REFUSALS: u8 = 5;

impl Options {
    /// How long answers are waited for.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            response_timeout: self.response_timeout,
            max_retries: self.max_cm_retries,
            refusals: REFUSALS,
        }
    }

    /// Changes one; `None` if its value is out of range.
    pub(crate) fn set(&mut self, option: CmOption) -> Option<()> {
        let up_to = |value: u8, max: u8| (value <= max).then_some(value);
        match option {
            CmOption::Tos(value) => self.tos = value,
            CmOption::ReuseAddr(on) => self.reuse_addr = on,
            CmOption::AfOnly(on) => self.af_only = on,
            CmOption::AckTimeout(value) => self.ack_timeout = up_to(value, 31)?,
            CmOption::MinRnrTimer(value) => self.min_rnr_timer = up_to(value, 31)?,
            CmOption::ResponseTimeout(value) => self.response_timeout = up_to(value, 31)?,
            CmOption::MaxCmRetries(value) => self.max_cm_retries = up_to(value, 15)?,
        }
        Some(())
    }
}
