//! What the transport tells a `tracing` subscriber, with the feature `tracing`: changes of
//! state, failures, NAKs and what is sent again. Without the feature nothing is left of it.
//! Nothing is told about packets that fare well.

/// An event of the target `urxe`.
macro_rules! tell {
    ($level:ident, $($what:tt)+) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: "urxe", tracing::Level::$level, $($what)+);
    }};
}
