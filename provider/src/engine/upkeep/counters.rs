//! Counters of the engine itself, beside those of the core.

use urxe_seal::Refusal;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct EngineCounters {
            $($(#[doc = $doc])* pub(crate) $name: u64,)*
        }

        /// What every counter counts, by name.
        pub(crate) const MEANINGS: &[(&str, &str)] = &[
            $((stringify!($name), concat!($($doc),*)),)*
            ("rx_buffer_drops", "Datagrams that the kernel dropped because the socket's buffer was full."),
            ("send_err", "Packets or runs that could not be sent: tx_errors under the kernel driver's name."),
            ("link_downed", "Times that the interface went down."),
            ("fault_dropped", "Packets lost on purpose (URXE_FAULTS, drop)."),
            ("fault_duplicated", "Packets sent twice on purpose (URXE_FAULTS, dup)."),
            ("fault_reordered", "Packets held back on purpose until later ones had left (URXE_FAULTS, reorder)."),
            ("fault_corrupted", "Packets sent with a wrong bit on purpose (URXE_FAULTS, corrupt)."),
            ("fault_delayed", "Packets sent later on purpose (URXE_FAULTS, delay)."),
            ("fault_queue_full", "Packets lost because they would have waited too long for a rate that is there on purpose (URXE_FAULTS, rate and queue)."),
            ("fault_overflowed", "Packets lost because too many were delayed on purpose (URXE_FAULTS, delay)."),
        ];

        impl EngineCounters {
            /// Every counter with its name.
            pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Times that a socket was handed packets.
    tx_calls,
    /// Of those, lone packets to neighbours on this host that a connected socket took.
    tx_direct,
    /// Trains that were written to memory for neighbours on this host.
    tx_records,
    /// Of those, trains that were made where the neighbour reads them, and not copied there.
    tx_in_place,
    /// Trains that were lost because a neighbour had not read for four megabytes.
    rings_full,
    /// Trains that neighbours on this host had written to memory.
    rx_records,
    /// Of those, trains of which packets in the middle of messages were placed from there, and not copied before.
    rx_in_place,
    /// Rings in memory that were given up because their writer had written nonsense.
    rings_broken,
    /// Times that a socket was full.
    tx_blocked,
    /// Runs that the kernel would not cut.
    tx_gso_refused,
    /// Packets or runs that could not be sent (no route, forbidden, too long).
    tx_errors,
    /// Times that a socket was asked for packets and had some.
    rx_calls,
    /// Times that a socket was asked for packets and had none.
    rx_empty,
    /// Errors that a socket reported on receiving.
    rx_errors,
    /// Datagrams that were cut off because they were longer than any packet.
    rx_truncated,
    /// Sealed packets that were opened.
    seal_opened,
    /// Datagrams at the port of sealed packets that are none.
    seal_refused_format,
    /// Packets that are sealed by another version of urxe.
    seal_refused_version,
    /// Packets that are sealed under another key file.
    seal_refused_key,
    /// Genuine packets that are authenticated only, where sealing is required.
    seal_refused_mode,
    /// Packets of an epoch that is over, or that the key file does not have.
    seal_refused_epoch,
    /// Packets with a wrong tag: made without the key, or changed on their way.
    seal_refused_forged,
    /// Packets that were received before.
    seal_refused_replayed,
    /// Packets that come so late that they may have been received before.
    seal_refused_late,
    /// Packets that are not under the keys of the pair that their QP is of, or of a pair that is not known here.
    seal_refused_pair,
    /// First messages of handshakes, and requests without one, that were refused.
    seal_refused_handshake,
    /// Connections that got keys of their own.
    seal_pairs,
    /// Peers that said that they take no packets of this side.
    seal_refused_by_peer,
    /// Times that posts were taken over which had been left for the engine's holder.
    bells_served,
    /// Packets of others on a shared address, handed to them.
    handed_over,
    /// Packets of others that their owner could not take.
    hand_over_lost,
    /// Packets of ours on a shared address that others got, and handed over.
    taken_over,
    /// Times that the kernel's steering program was made anew.
    steering_repairs,
    /// Times that the progress thread woke up.
    progress_wakes,
    /// Times that the progress thread was woken by another thread.
    progress_kicks,
    /// Times that the progress thread looked around while the program drove.
    progress_ticks,
    /// Times that the progress thread drove itself.
    progress_watches,
    /// Times that freed memory was given back to the system, after very many QPs or connections.
    heap_trims,
    /// Microseconds that this took.
    heap_trim_us,
}

impl EngineCounters {
    /// Counts a sealed packet that is not taken.
    #[cold]
    pub(crate) fn count_refusal(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::NoEnvelope => &mut self.seal_refused_format,
            Refusal::OtherVersion(_) => &mut self.seal_refused_version,
            Refusal::OtherKey(_) => &mut self.seal_refused_key,
            Refusal::TooWeak(_) => &mut self.seal_refused_mode,
            Refusal::UnknownEpoch(_) | Refusal::OldEpoch(_) => &mut self.seal_refused_epoch,
            Refusal::Replayed => &mut self.seal_refused_replayed,
            Refusal::Late => &mut self.seal_refused_late,
            Refusal::UnknownPair | Refusal::OtherQp | Refusal::NotOfPair => {
                &mut self.seal_refused_pair
            }
            _ => &mut self.seal_refused_forged,
        } += 1;
    }
}
