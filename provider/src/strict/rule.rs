//! The rules: their names, and the advice in their reports.

use core::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident, $name:literal, $advice:literal;)*) => {
        /// What kind of misuse a [`crate::StrictReport`] is about. [STRICT.md](https://github.com/urxe/urxe/blob/main/docs/STRICT.md) has a
        /// section on each.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[non_exhaustive]
        pub enum StrictRule {
            $($(#[$doc])* $rule,)*
        }

        impl StrictRule {
            /// All of them.
            pub const ALL: &'static [StrictRule] = &[$(StrictRule::$rule),*];

            /// The rule's name, which is also its section in [STRICT.md](https://github.com/urxe/urxe/blob/main/docs/STRICT.md).
            pub const fn name(self) -> &'static str {
                match self {
                    $(StrictRule::$rule => $name,)*
                }
            }

            /// Why it is wrong, and what would be right.
            pub const fn advice(self) -> &'static str {
                match self {
                    $(StrictRule::$rule => $advice,)*
                }
            }
        }
    };
}

rules! {
    /// The bytes of a send changed before its completion was polled.
    SendBufferChanged, "send-buffer-changed",
    "Until the completion is polled the adapter may read the buffer at any time, a \
     second time too when a packet was lost, so the peer may get new bytes, or a \
     mixture. Poll the completion of this request, or of a later one of the same \
     send queue, before touching the buffer; or post small messages inline.";

    /// The program wrote into a buffer that is posted for a receive, or for the result of
    /// a READ or an atomic.
    ReceiveBufferWritten, "receive-buffer-written",
    "A posted buffer belongs to the adapter: whatever is written there may be \
     overwritten, or damage the message. Poll the completion first, then write.";

    /// The program looked into such a buffer before it polled the completion.
    ReceiveBufferRead, "receive-buffer-read",
    "Until the completion is polled the buffer holds old bytes, new ones, or a \
     mixture (here: \"<posted>\"). Poll the completion first, then read.";

    /// A send takes its bytes from a buffer that is posted for a receive.
    SendFromReceiveBuffer, "send-from-receive-buffer",
    "A message that arrives may overwrite the bytes while they are sent. Use one \
     buffer for sending and another for receiving, or post one after the other \
     is complete.";

    /// An lkey was used where an rkey belongs.
    LkeyAsRkey, "lkey-as-rkey",
    "A region has two keys: the lkey for its owner's own work requests, the rkey for \
     peers. Some adapters make them equal, others do not. Give peers Mr::rkey \
     (mr->rkey).";

    /// A message arrived and no receive was posted for it.
    MissingReceive, "missing-receive",
    "A SEND, or a WRITE with immediate, needs a receive that was posted before it \
     arrives. A reliable connection makes the sender wait and try again, which is \
     slow and fails after rnr_retry times; unreliable services lose the message. Post \
     receives before the peer may send: before connecting, and again before \
     answering.";

    /// A datagram, or a message of an unreliable connection, is longer than its receive.
    DatagramTooLong, "datagram-too-long",
    "Unreliable services drop it: no completion at either side tells of it. A receive \
     for datagrams needs 40 bytes more than the message, in front, for the GRH.";

    /// A datagram bears another Q_Key than the QP that it is for.
    WrongQkey, "wrong-qkey",
    "Adapters drop such datagrams: no completion at either side tells of it. The \
     sender gives the Q_Key that the receiver's QP has (wr.ud.remote_qkey, \
     SendWr::ud_addr); one with the highest bit set stands for that of the \
     sender's own QP.";

    /// A receive was posted after the message that needed it was refused.
    ReceivePostedLate, "receive-posted-late",
    "It worked because the sender tried again, if at all. Post the receive before the \
     peer is allowed to send.";

    /// A peer without receives is tried again and again, for ever.
    EndlessRnrRetry, "endless-rnr-retry",
    "rnr_retry 7 means for ever: if the peer never posts a receive, this request \
     never completes, not even with an error. Have the peer post receives; or use an \
     rnr_retry of 0 to 6 so that the failure is seen.";

    /// Memory was deregistered while a work request used it.
    MrInUse, "mr-in-use",
    "The adapter still needs the memory: the request will fail, or on hardware without \
     such checks use memory that is somebody else's by then. Poll the completions of \
     all requests that use a region before deregistering it.";

    /// A QP was destroyed while sends were under way.
    QpInUse, "qp-in-use",
    "Nobody will learn whether these requests were carried out, and they make no \
     completions. Poll their completions first, or bring the QP into the error state \
     and poll the flushed ones.";

    /// A completion queue cannot take all completions that may come.
    CqTooSmall, "cq-too-small",
    "When more completions arrive than fit, the queue overruns: completions are lost and \
     the QPs fail. Create it for as many completions as requests of all its queues \
     can be outstanding, or poll earlier.";

    /// A QP or a completion queue was destroyed with completions that were not polled.
    CompletionsNotPolled, "completions-not-polled",
    "They may be errors that go unnoticed. Poll a completion queue until it is empty \
     before destroying it, or a QP that has completions in it.";

    /// The send queue is full of requests that make no completion.
    NeverSignaled, "never-signaled",
    "Hardware gives a place in the send queue back when the program polls a completion \
     of that request or of a later one; without one the queue is full for ever. Signal \
     at least one request in every half queue, and poll it.";

    /// More sends were posted than the send queue has places, as hardware counts.
    SendQueueNotPolled, "send-queue-not-polled",
    "Hardware gives a place in the send queue back when the program polls a completion \
     of that request or of a later one: there this post fails with ENOMEM. That an \
     answer of the peer arrived is no completion. Poll before posting more, or create \
     the QP with a larger max_send_wr.";

    /// A work request names memory of another protection domain.
    PdMismatch, "pd-mismatch",
    "A QP can use only memory that was registered in its own protection domain; the \
     request will fail with a local protection error. Register the memory in the QP's \
     protection domain.";
}

impl fmt::Display for StrictRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_section_in_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/STRICT.md");
        let document = std::fs::read_to_string(path).expect("the document is there");
        for rule in StrictRule::ALL {
            let heading = format!("\n### {rule}\n");
            assert!(document.contains(&heading), "no section {rule}");
        }
    }
}
