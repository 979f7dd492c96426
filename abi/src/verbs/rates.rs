//! `enum ibv_rate`, and conversions of its values.

use core::ffi::c_int;

/// Number, multiple of 2.5 Gbit/s (where it is one), and Mbit/s.
const RATES: [(c_int, Option<c_int>, c_int); 23] = [
    (2, Some(1), 2_500),
    (5, Some(2), 5_000),
    (3, Some(4), 10_000),
    (6, Some(8), 20_000),
    (4, Some(12), 30_000),
    (7, Some(16), 40_000),
    (8, Some(24), 60_000),
    (9, Some(32), 80_000),
    (10, Some(48), 120_000),
    (11, None, 14_062),
    (12, None, 56_250),
    (13, None, 112_500),
    (14, None, 168_750),
    (15, None, 25_781),
    (16, None, 103_125),
    (17, None, 206_250),
    (18, None, 309_375),
    (19, Some(11), 28_125),
    (20, Some(20), 50_000),
    (21, Some(160), 400_000),
    (22, Some(240), 600_000),
    (23, Some(320), 800_000),
    (24, Some(480), 1_200_000),
];
/// `IBV_RATE_MAX`
const MAX: c_int = 0;

/// The number of the slowest that is as fast: lanes carry a little more than their name says.
pub(crate) fn rate_of(mbps: u32) -> c_int {
    let fast = RATES.iter().filter(|(.., m)| m.unsigned_abs() >= mbps);
    let slowest = fast.min_by_key(|(.., m)| *m);
    slowest.map_or(MAX, |(number, ..)| *number)
}

pub(crate) unsafe extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    let known = RATES.iter().find(|(number, ..)| *number == rate);
    known.and_then(|(_, mult, _)| *mult).unwrap_or(-1)
}

pub(crate) unsafe extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    let known = RATES.iter().find(|(_, m, _)| *m == Some(mult));
    known.map_or(MAX, |(number, ..)| *number)
}

pub(crate) unsafe extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    let known = RATES.iter().find(|(number, ..)| *number == rate);
    known.map_or(-1, |(_, _, mbps)| *mbps)
}

pub(crate) unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    let known = RATES.iter().find(|(_, _, m)| *m == mbps);
    known.map_or(MAX, |(number, ..)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_the_rate_of_its_speed() {
        // `IBV_RATE_25_GBPS` and so on.
        for (gbps, rate) in [
            ("2.5", 2),
            ("25", 15),
            ("56", 12),
            ("100", 16),
            ("200", 17),
            ("800", 23),
        ] {
            let speed: urxe::PortSpeed = gbps.parse().expect("a speed");
            assert_eq!(rate_of(speed.mbps()), rate, "{gbps}");
        }
    }
}
