//! Why a QP could not be created.

/// Why a QP could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateQpError {
    /// A capability is beyond the limit.
    #[error("{name} is {value}, but at most {max} is possible")]
    Cap {
        /// Name of the field of `ibv_qp_cap`.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The limit.
        max: u32,
    },
    /// The shared receive queue does not exist, or is of another type than the QP's.
    #[error("the QP cannot take receives from this SRQ: {0}")]
    Srq(&'static str),
    /// An XRC target without a domain, or another QP with one.
    #[error("an XRC target QP needs an XRC domain, and no other QP takes one")]
    Xrcd,
    /// The table is full.
    #[error("all {0} QPs are in use")]
    Full(usize),
    /// All granted QPNs are in use: see [`crate::Shard::grant_qpns`].
    #[error("no QPN is left")]
    NoQpn,
}
