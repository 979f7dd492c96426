//! Which adapter a device of the list looks like to programs that have habits from one.

use core::fmt;
use core::str::FromStr;

use crate::error::Error;
use crate::gid_places::{GidPlace, RoceVersion};
use crate::host::environment;

/// The adapter that listed devices look like: what they are called, which maker's numbers they have, and what is at which
/// place of the GID table. What they do is the same.
///
/// Set by the environment variable `URXE_AS`, or by `urxe run --as`.
///
/// ```
/// use urxe::Likeness;
/// assert_eq!("rxe".parse(), Ok(Likeness::Rxe));
/// assert!("hfi1".parse::<Likeness>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Likeness {
    /// No adapter: IPv4 is at all indexes that programs have as a habit (0, 1 and 3).
    #[default]
    Generic,
    /// Linux's software adapter: the link-local address at index 0, then the others.
    Rxe,
    /// NVIDIA's adapters: each address twice, as RoCE v1 and as RoCE v2, the link-local one first. IPv4 for RoCE v2 is at
    /// index 3.
    Mlx5,
}

impl Likeness {
    /// All that there are.
    pub const ALL: [Likeness; 3] = [Likeness::Generic, Likeness::Rxe, Likeness::Mlx5];

    /// What `URXE_AS` says, or else [`Likeness::Generic`].
    ///
    /// # Errors
    /// If it is none of them.
    pub fn of_environment() -> Result<Likeness, Error> {
        let parse = |text: &str| text.parse().map_err(|e: LikenessError| e.to_string());
        let given = environment::parsed(environment::AS, parse)?;
        Ok(given.unwrap_or_default())
    }

    /// Its name, as it is set.
    pub fn name(self) -> &'static str {
        match self {
            Likeness::Generic => "generic",
            Likeness::Rxe => "rxe",
            Likeness::Mlx5 => "mlx5",
        }
    }

    /// What its devices are called: this and a number.
    pub fn device_prefix(self) -> &'static str {
        match self {
            Likeness::Generic => "urxe",
            Likeness::Rxe => "rxe",
            Likeness::Mlx5 => "mlx5_",
        }
    }

    /// The number of its maker, and the maker's number of the kind. Without a maker as Linux's software adapter says it.
    #[doc(alias = "vendor_part_id")]
    pub fn vendor(self) -> (u32, u32) {
        match self {
            Likeness::Generic | Likeness::Rxe => (0xff_ffff, 0),
            // A ConnectX-6 Dx.
            Likeness::Mlx5 => (0x02c9, 4125),
        }
    }

    /// The GID table of a device with some addresses, of which each is IPv4 (`true`) or not.
    pub(crate) fn gid_table(self, is_ipv4: &[bool]) -> Vec<GidPlace> {
        match self {
            Likeness::Generic => generic(is_ipv4),
            Likeness::Rxe => {
                let addresses = (0..is_ipv4.len()).map(|at| GidPlace::v2(Some(at)));
                std::iter::once(GidPlace::v2(None))
                    .chain(addresses)
                    .collect()
            }
            Likeness::Mlx5 => {
                let addresses = (0..is_ipv4.len()).map(Some);
                let all = std::iter::once(None).chain(addresses);
                let both = [RoceVersion::V1, RoceVersion::V2];
                all.flat_map(|address| both.map(|version| GidPlace { version, address }))
                    .collect()
            }
        }
    }
}

/// The first IPv4 address (or the first of all) at 0, 1 and 3; the others at 2 and from 4 on.
fn generic(is_ipv4: &[bool]) -> Vec<GidPlace> {
    let first = is_ipv4.iter().position(|is_ipv4| *is_ipv4).unwrap_or(0);
    let mut others = (0..is_ipv4.len()).filter(|at| *at != first);
    let second = others.next().unwrap_or(first);
    let head = [first, first, second, first];
    let places = head.into_iter().chain(others);
    places.map(|at| GidPlace::v2(Some(at))).collect()
}

impl fmt::Display for Likeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text is none of the adapters that devices can look like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LikenessError(String);

impl fmt::Display for LikenessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Likeness::ALL.map(Likeness::name).join(", ");
        write!(f, "\"{}\" is none of {names}", self.0)
    }
}

impl std::error::Error for LikenessError {}

impl FromStr for Likeness {
    type Err = LikenessError;

    fn from_str(text: &str) -> Result<Likeness, LikenessError> {
        let mut all = Likeness::ALL.into_iter();
        all.find(|likeness| likeness.name() == text)
            .ok_or_else(|| LikenessError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(likeness: Likeness, is_ipv4: &[bool]) -> String {
        let places = likeness.gid_table(is_ipv4);
        let text = places.iter().map(|place| {
            let version = if place.version == RoceVersion::V1 {
                "*"
            } else {
                ""
            };
            match place.address {
                Some(at) => format!("{at}{version}"),
                None => format!("L{version}"),
            }
        });
        text.collect::<Vec<_>>().join(" ")
    }

    /// L: link-local; *: RoCE v1.
    #[test]
    fn addresses_are_where_programs_expect_them() {
        for (likeness, is_ipv4, wanted) in [
            (Likeness::Generic, &[true][..], "0 0 0 0"),
            (Likeness::Generic, &[true, false], "0 0 1 0"),
            (Likeness::Generic, &[false, true, false], "1 1 0 1 2"),
            (Likeness::Generic, &[false], "0 0 0 0"),
            (Likeness::Rxe, &[true, false], "L 0 1"),
            (Likeness::Mlx5, &[true, false], "L* L 0* 0 1* 1"),
        ] {
            assert_eq!(table(likeness, is_ipv4), wanted, "{likeness} {is_ipv4:?}");
        }
    }
}
