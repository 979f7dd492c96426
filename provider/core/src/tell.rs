//! Events for a `tracing` subscriber, with the feature `tracing`: changes of
//! state, failures, NAKs and what is sent again. Without the feature nothing is left of it.
//! There are no events for packets without trouble.

/// An event of the target `urxe`.
macro_rules! tell {
    ($level:ident, $($what:tt)+) => {{
        #[cfg(feature = "tracing")]
        tracing::event!(target: "urxe", tracing::Level::$level, $($what)+);
    }};
}
