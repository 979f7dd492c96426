//! How a QP gets to RTS: the one sequence for all services and callers.

use crate::qp::attr::{AttrMask, QpAttr, mask};
use crate::qp::state::{QpState, QpType, transition};

/// What may be given again on the way: a program may have brought the QP to INIT with other rights, or another Q_Key.
const RENEWED: AttrMask = mask!(ACCESS_FLAGS | QKEY);

/// Brings a QP to RTS, from RESET or (what receives may have been posted in) INIT: calls `modify` for each state with
/// what its service needs of `attr`.
///
/// # Errors
/// The first of `modify`. The QP stays in the state that it has then; reset it to try again.
#[doc(alias = "ibv_modify_qp")]
pub fn bring_to_rts<E>(
    service: QpType,
    from: QpState,
    attr: &QpAttr,
    mut modify: impl FnMut(&QpAttr, AttrMask) -> Result<(), E>,
) -> Result<(), E> {
    let steps = [
        (QpState::Reset, QpState::Init),
        (QpState::Init, QpState::Rtr),
        (QpState::Rtr, QpState::Rts),
    ];
    let done = usize::from(from == QpState::Init);
    for (from, qp_state) in steps.into_iter().skip(done) {
        let given = transition(service, from, qp_state).map_or(AttrMask::NONE, |step| {
            let renewed = match qp_state {
                QpState::Rtr => step.optional.and(RENEWED),
                _ => AttrMask::NONE,
            };
            step.required | renewed
        });
        modify(&QpAttr { qp_state, ..*attr }, AttrMask::STATE | given)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For every service each step gives what is needed, and nothing that is not allowed there.
    #[test]
    fn each_step_is_in_the_table() {
        use QpState::{Init, Reset, Rtr, Rts};
        for service in [
            QpType::Rc,
            QpType::Uc,
            QpType::Ud,
            QpType::XrcSend,
            QpType::XrcRecv,
        ] {
            for (begin, expected) in [(Reset, &[Init, Rtr, Rts][..]), (Init, &[Rtr, Rts])] {
                let (mut from, mut seen) = (begin, Vec::new());
                let done = bring_to_rts(service, begin, &QpAttr::default(), |attr, mask| {
                    let step = transition(service, from, attr.qp_state).ok_or("no such step")?;
                    let allowed = AttrMask::STATE | step.required | step.optional;
                    assert!(
                        mask.contains(step.required | AttrMask::STATE),
                        "{service:?}"
                    );
                    assert!(allowed.contains(mask), "{service:?} {mask:?}");
                    from = attr.qp_state;
                    seen.push(from);
                    Ok::<_, &str>(())
                });
                assert_eq!((done, &seen[..]), (Ok(()), expected), "{service:?}");
            }
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut calls = 0;
        let done = bring_to_rts(QpType::Rc, QpState::Reset, &QpAttr::default(), |attr, _| {
            calls += 1;
            match attr.qp_state {
                QpState::Rtr => Err("refused"),
                _ => Ok(()),
            }
        });
        assert_eq!((done, calls), (Err("refused"), 2));
    }
}
