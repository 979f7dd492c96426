//! How a scenario's values are written. What serde cannot know about a value is checked as it is read, so that the
//! error has its place in the file.

use core::fmt::Display;
use core::str::FromStr;
use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use urxe_core::congestion::{CongestionControl, DcqcnParams, DelayParams, Rate as CoreRate};
use urxe_core::qp::attr::Mtu;
use urxe_wire::Psn;

use crate::check::Mark;
use crate::congestion::{HpccParams, NsccParams, RcccParams, Steering, SwiftParams, TimelyParams};
use crate::engine::{Rate, Span, quantity};
use crate::qos::Qos;
use crate::topology::{PLANES_MAX, Topology, cable_delay};

/// Types that are read from a text, as their `FromStr` does.
macro_rules! texts {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

texts!(Span, Rate, Topology, Mark, Cable, Congestion);

/// Types that are read as another and then checked.
macro_rules! checked {
    ($($(#[$doc:meta])* $name:ident($inner:ty) from $given:ty: $check:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(super) struct $name(pub(super) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                let check: fn($given) -> Result<$inner, String> = $check;
                check(<$given>::deserialize(from)?).map($name).map_err(D::Error::custom)
            }
        }
    )*};
}

checked! {
    /// Number of something in a network.
    Count(u32) from u32: |n| ensure(n, (1..=65_536).contains(&n), "1 to 65536");
    /// Number of something that is multiplied by itself.
    Few(u32) from u32: |n| ensure(n, (1..=128).contains(&n), "1 to 128");
    /// Ports of a host.
    PlaneCount(u32) from u32: |n| ensure(n, (1..=PLANES_MAX as u32).contains(&n), "1 to 8");
    /// Ports of a switch of a fat tree.
    Ports(u32) from u32: |k| ensure(k, (2..=64).contains(&k) && k % 2 == 0, "even, at most 64");
    /// How often something is done.
    Repeat(u32) from u32: |n| ensure(n, (1..=10_000).contains(&n), "1 to 10000");
    /// A part of a link's rate.
    Load(f64) from f64: |x| ensure(x, x > 0.0 && x <= 2.0, "a load is above 0, and at most 2");
    /// A probability.
    Probability(f64) from f64: |p| ensure(p, (0.0..=1.0).contains(&p), "a probability is 0 to 1");
    /// A DSCP, as the TOS byte that has it and says that ECN is possible.
    Dscp(u8) from u8: |dscp| ensure(dscp, dscp < 64, "a DSCP is below 64").map(|dscp| dscp << 2 | Qos::ROCE_TOS & 3);
    /// The MTU of a path.
    PathMtu(Mtu) from u32: |n| Mtu::from_bytes(n).ok_or(format!("{n} is not 256, 512, 1024, 2048 or 4096"));
    /// A PSN.
    FirstPsn(Psn) from u32: |psn| ensure(psn, psn < 1 << 24, "a PSN has 24 bits").map(Psn::new);
    /// A list of classes: bit n is class n.
    Classes(u8) from Vec<u8>: |classes| classes.into_iter().try_fold(0, |mask, class| {
        ensure(class, class < 8, "classes are 0 to 7").map(|class| mask | 1 << class)
    });
    /// Classes by DSCP.
    DscpMap(Vec<(usize, u8)>) from BTreeMap<String, u8>: |map| map.into_iter().map(|(dscp, class)| {
        let number = dscp.parse().ok().filter(|&number| number < 64 && class < 8);
        let fault = || format!("{dscp} = {class}: a DSCP is below 64, a class below 8");
        number.map(|number| (number, class)).ok_or_else(fault)
    }).collect();
    /// Numbers of frames.
    Rising(Vec<u64>) from Vec<u64>: |list| if list.is_sorted_by(|a, b| a < b) {
        Ok(list)
    } else {
        Err("numbers of frames must rise".to_owned())
    };
}

impl Default for Repeat {
    fn default() -> Repeat {
        Repeat(1)
    }
}

fn ensure<T: Display>(value: T, holds: bool, rule: &str) -> Result<T, String> {
    holds.then_some(()).ok_or(format!("{value}: {rule}"))?;
    Ok(value)
}

/// Bytes as a number, or as text: `64KiB`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size<T = u64>(pub(super) T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Size<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes, or a size like 64KiB")]
        enum Given {
            Bytes(u64),
            Text(String),
        }
        let bytes = match Given::deserialize(from)? {
            Given::Bytes(bytes) => bytes,
            Given::Text(text) => bytes(&text).map_err(D::Error::custom)?,
        };
        let small = T::try_from(bytes).map_err(|_| D::Error::custom("more than 4 GiB"))?;
        Ok(Size(small))
    }
}

/// Bytes of a text like `64KiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let unit = |name: &str| match name {
        "" | "B" => Some(1),
        "KB" | "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    quantity(text, "a size like 64KiB", unit).map_err(|error| error.to_string())
}

/// A name, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
pub(super) enum Names {
    One(String),
    Some(Vec<String>),
}

impl Names {
    pub(super) fn each(&self) -> &[String] {
        match self {
            Names::One(name) => core::slice::from_ref(name),
            Names::Some(names) => names,
        }
    }
}

/// A length in metres (`30m`) or a delay (`150ns`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Cable(pub(super) Span);

impl FromStr for Cable {
    type Err = String;

    fn from_str(text: &str) -> Result<Cable, String> {
        cable_delay(text).map(Cable)
    }
}

/// The congestion control that a scenario names: `none`, `dcqcn`, `window:64KB`, `delay:25us`, `swift:10us`, `timely:50us`,
/// `hpcc`, `nscc`, `nscc:10us` or `rccc`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Congestion {
    #[default]
    None,
    Dcqcn,
    Window(u32),
    Delay(Span),
    By(Steering),
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(text: &str) -> Result<Congestion, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Congestion::None),
            None if text == "dcqcn" => Ok(Congestion::Dcqcn),
            None if text == "nscc" => Ok(Congestion::By(Steering::Nscc(NsccParams::default()))),
            None if text == "rccc" => Ok(Congestion::By(Steering::Rccc(RcccParams::default()))),
            None if text == "hpcc" => Ok(Congestion::By(Steering::Hpcc(HpccParams::default()))),
            Some(("window", size)) => match u32::try_from(bytes(size)?) {
                Ok(bytes) => Ok(Congestion::Window(bytes)),
                Err(_) => Err("more than 4 GiB".to_owned()),
            },
            Some((name @ ("delay" | "swift" | "timely" | "nscc"), target)) => {
                let target: Span = target.parse().map_err(|error| format!("{error}"))?;
                if target == Span::ZERO {
                    return Err(format!("{text:?}: a time above 0 is needed"));
                }
                Ok(match name {
                    "delay" => Congestion::Delay(target),
                    "swift" => Congestion::By(Steering::Swift(SwiftParams::target(target))),
                    "nscc" => Congestion::By(Steering::Nscc(NsccParams {
                        target: Some(target),
                        ..NsccParams::default()
                    })),
                    _ => Congestion::By(Steering::Timely(TimelyParams::low(target))),
                })
            }
            _ => Err(format!(
                "{text:?} is not none, dcqcn, window:SIZE, delay:TIME, swift:TIME, timely:TIME, hpcc, nscc, nscc:TIME or rccc"
            )),
        }
    }
}

impl Congestion {
    /// The algorithm in the transport's place, if it is one.
    pub(super) fn steering(self) -> Option<Steering> {
        match self {
            Congestion::By(steering) => Some(steering),
            _ => None,
        }
    }

    /// As the transport has it. DCQCN starts at the rate of the sender's link.
    pub(super) fn at(self, line_rate: Rate) -> CongestionControl {
        match self {
            Congestion::None => CongestionControl::None,
            Congestion::By(_) => CongestionControl::Steered,
            Congestion::Dcqcn => {
                CongestionControl::Dcqcn(DcqcnParams::at(CoreRate::from_bps(line_rate.as_bps())))
            }
            Congestion::Window(bytes) => CongestionControl::Window { bytes },
            Congestion::Delay(target) => {
                CongestionControl::Delay(DelayParams::target(target.ps() / 1000))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly() {
        for (text, expected) in [
            ("64KiB", 65_536),
            ("1.5 KiB", 1_536),
            ("7", 7),
            ("2MB", 2_000_000),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "KiB", "4 parsecs", "99999999999GiB", "-1"] {
            let expected = format!("{text:?} is not a size like 64KiB");
            assert_eq!(bytes(text), Err(expected));
        }
    }
}
