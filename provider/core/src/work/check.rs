//! Checks requests against a send queue without posting them, so that a list can be posted as a whole or not
//! at all.

use crate::qp::state::QpType;
use crate::shard::Shard;
use crate::table::QpIndex;
use crate::work::{MESSAGE_MAX, PostError, SendQueue, SendWr, WrData};

impl SendQueue {
    /// Checks everything about a request but that there is room, and returns its length.
    #[inline]
    pub(super) fn check(&self, wr: &SendWr<'_>) -> Result<u32, PostError> {
        if wr.opcode.is_bare() {
            wr.check_bare()?;
        }
        let length = match wr.data {
            WrData::Sges(sges) => self.check_sges(sges)?,
            WrData::Inline(_) if wr.opcode.returns_data() => {
                return Err(PostError::InlineNotAllowed);
            }
            WrData::Inline(bytes) if bytes.len() > self.inline_max() => {
                return Err(PostError::InlineTooLong {
                    given: bytes.len(),
                    max: self.inline_max(),
                });
            }
            WrData::Inline(bytes) => bytes.len() as u32,
        };
        if self.rules.qp_type != QpType::Rc {
            self.rules.check(wr, length)?;
        }
        Ok(length)
    }

    #[inline]
    fn check_sges(&self, sges: &[crate::work::Sge]) -> Result<u32, PostError> {
        if sges.len() > self.sge_max() {
            return Err(PostError::TooManySges {
                given: sges.len(),
                max: self.sge_max(),
            });
        }
        let length: u64 = sges.iter().map(|s| u64::from(s.length)).sum();
        if length > MESSAGE_MAX {
            return Err(PostError::MessageTooLong(length));
        }
        Ok(length as u32)
    }
}

impl Shard {
    /// True to the end of a list: each of it would be posted, if they were posted now.
    ///
    /// # Errors
    /// The index of the first that would be refused, and why.
    pub fn check_sends<'a>(
        &self,
        index: QpIndex,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        let qp = self.qps.at(index).ok_or((0, PostError::NoQp))?;
        let state = qp.state();
        if !state.takes_post_send() {
            return Err((0, PostError::SendState(state)));
        }
        let sq = &qp.req.sq;
        let room = (sq.capacity() - sq.posted()) as usize;
        for (place, wr) in wrs.enumerate() {
            if place >= room {
                return Err((place, PostError::QueueFull(sq.capacity())));
            }
            sq.check(&wr).map_err(|error| (place, error))?;
        }
        Ok(())
    }
}
