//! The congestion control that a scenario names.

use urxe_core::congestion::{CongestionControl, DcqcnParams, DelayParams, Rate as CoreRate};

use crate::engine::{Rate, Span};
use crate::scenario::ScenarioError;
use crate::scenario::build::bytes;
use crate::scenario::file::Size;

/// Reads `none`, `dcqcn`, `window:64KB` or `delay:25us`. DCQCN starts at the rate of the sender's link.
pub(super) fn congestion_control(
    place: &str,
    text: &str,
    line_rate: Rate,
) -> Result<CongestionControl, ScenarioError> {
    match text.split_once(':') {
        None if text == "none" => Ok(CongestionControl::None),
        None if text == "dcqcn" => {
            let rate = CoreRate::from_bps(line_rate.as_bps());
            Ok(CongestionControl::Dcqcn(DcqcnParams::at(rate)))
        }
        Some(("window", size)) => {
            let bytes = bytes(place, &Size::Text(size.to_owned()))?;
            let bytes =
                u32::try_from(bytes).map_err(|_| ScenarioError::value(place, "more than 4 GiB"))?;
            Ok(CongestionControl::Window { bytes })
        }
        Some(("delay", target)) => {
            let target: Span = target.parse().map_err(|e| ScenarioError::value(place, e))?;
            Ok(CongestionControl::Delay(DelayParams::target(
                target.ps() / 1000,
            )))
        }
        _ => Err(ScenarioError::value(
            place,
            format!("{text:?} is not none, dcqcn, window:SIZE or delay:TIME"),
        )),
    }
}
