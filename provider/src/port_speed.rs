//! How fast a port says that it is.

use core::fmt;
use core::str::FromStr;

use crate::error::Error;
use crate::host::environment;

/// The speed that a port reports: lanes of one of the kinds that the IBTA names.
///
/// Nothing here is as fast or as slow as that: it is for programs that choose among devices, and
/// between RDMA and TCP, by what their ports say. Set by
/// [`crate::ContextBuilder::speed`] or the environment variable `URXE_SPEED`.
///
/// ```
/// let speed: urxe::PortSpeed = "200G".parse().unwrap();
/// assert_eq!(speed.to_string(), "200 Gb/sec (4X HDR)");
/// assert_eq!(urxe::PortSpeed::default().gbps(), 100.0);
/// assert!("150".parse::<urxe::PortSpeed>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct PortSpeed {
    mbps: u32,
    lanes: u8,
    lane: &'static str,
    lane_speed: u16,
}

impl PortSpeed {
    /// All speeds that can be set, from the slowest on.
    pub const ALL: [PortSpeed; 11] = [
        PortSpeed::new(2_500, 1, "SDR", 1),
        PortSpeed::new(10_000, 1, "QDR", 4),
        PortSpeed::new(20_000, 4, "DDR", 2),
        PortSpeed::new(25_000, 1, "EDR", 32),
        PortSpeed::new(40_000, 4, "QDR", 4),
        PortSpeed::new(50_000, 1, "HDR", 64),
        PortSpeed::new(56_000, 4, "FDR", 16),
        PortSpeed::DEFAULT,
        PortSpeed::new(200_000, 4, "HDR", 64),
        PortSpeed::new(400_000, 4, "NDR", 128),
        PortSpeed::new(800_000, 4, "XDR", 256),
    ];
    /// As many adapters have: more than most interfaces that a program could use for TCP.
    const DEFAULT: PortSpeed = PortSpeed::new(100_000, 4, "EDR", 32);

    const fn new(mbps: u32, lanes: u8, lane: &'static str, lane_speed: u16) -> PortSpeed {
        PortSpeed {
            mbps,
            lanes,
            lane,
            lane_speed,
        }
    }

    /// What `URXE_SPEED` says, or else the default: 100 Gb/s.
    ///
    /// # Errors
    /// If it is none of [`PortSpeed::ALL`].
    pub fn of_environment() -> Result<PortSpeed, Error> {
        let parse = |text: &str| text.parse().map_err(|e: PortSpeedError| e.to_string());
        let given = environment::parsed(environment::SPEED, parse)?;
        Ok(given.unwrap_or_default())
    }

    /// Megabits in a second, of all lanes.
    pub fn mbps(self) -> u32 {
        self.mbps
    }

    /// Gigabits in a second, of all lanes.
    pub fn gbps(self) -> f64 {
        f64::from(self.mbps) / 1000.0
    }

    /// How many lanes.
    #[doc(alias = "active_width")]
    pub fn lanes(self) -> u8 {
        self.lanes
    }

    /// The kind of the lanes, as a number of `enum ib_port_speed`: a bit for each kind.
    #[doc(alias = "active_speed_ex")]
    pub fn lane_speed(self) -> u16 {
        self.lane_speed
    }
}

impl Default for PortSpeed {
    fn default() -> PortSpeed {
        PortSpeed::DEFAULT
    }
}

impl fmt::Display for PortSpeed {
    /// As Linux says it of adapters, in the file `rate` of a port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gbps, lanes, lane) = (self.gbps(), self.lanes, self.lane);
        write!(f, "{gbps} Gb/sec ({lanes}X {lane})")
    }
}

impl FromStr for PortSpeed {
    type Err = PortSpeedError;

    /// Reads gigabits in a second: `100`, `100G`, `100Gb/s`, `100 Gbit/s`.
    fn from_str(text: &str) -> Result<PortSpeed, PortSpeedError> {
        let lower = text.trim().to_ascii_lowercase();
        let units = ["gbit/s", "gb/sec", "gb/s", "gbps", "g"];
        let number = units.iter().find_map(|unit| lower.strip_suffix(unit));
        let number = number.unwrap_or(&lower).trim_end();
        let mut all = PortSpeed::ALL.into_iter();
        all.find(|speed| speed.gbps().to_string() == number)
            .ok_or_else(|| PortSpeedError(text.to_owned()))
    }
}

/// A text is not the speed of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpeedError(String);

impl fmt::Display for PortSpeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = PortSpeed::ALL.map(|speed| speed.gbps().to_string());
        write!(f, "\"{}\" is none of {} Gb/s", self.0, all.join(", "))
    }
}

impl core::error::Error for PortSpeedError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_those_of_their_lanes() {
        // Mb/s of one lane, as Linux has them for the file `rate`.
        let lanes = [
            ("SDR", 1, 2_500),
            ("DDR", 2, 5_000),
            ("QDR", 4, 10_000),
            ("FDR", 16, 14_000),
            ("EDR", 32, 25_000),
            ("HDR", 64, 50_000),
            ("NDR", 128, 100_000),
            ("XDR", 256, 200_000),
        ];
        for speed in PortSpeed::ALL {
            let lane = (
                speed.lane,
                speed.lane_speed,
                speed.mbps / u32::from(speed.lanes),
            );
            assert!(lanes.contains(&lane), "{speed}: {lane:?}");
        }
        assert!(PortSpeed::ALL.is_sorted_by(|a, b| a.mbps < b.mbps));
    }

    #[test]
    fn speeds_are_read_with_their_unit_and_without() {
        let read = |text: &str| text.parse::<PortSpeed>().map(PortSpeed::mbps);
        for text in [
            "100",
            "100G",
            "100g",
            " 100Gb/s ",
            "100 Gbit/s",
            "100Gbps",
            "100 Gb/sec",
        ] {
            assert_eq!(read(text), Ok(100_000), "{text}");
        }
        assert_eq!(read("2.5"), Ok(2_500));
        for speed in PortSpeed::ALL {
            assert_eq!(speed.gbps().to_string().parse(), Ok(speed));
        }
    }

    #[test]
    fn what_is_no_speed_is_told_with_those_that_there_are() {
        for text in [
            "", "G", "150", "100M", "100 000", "-100", "1e2", "EDR", "100GG",
        ] {
            let error = text.parse::<PortSpeed>().expect_err(text).to_string();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
            assert!(error.contains(" 2.5, 10, 20, 25, "), "{error}");
            assert!(error.ends_with(" 400, 800 Gb/s"), "{error}");
        }
    }

    #[test]
    fn speeds_are_told_as_by_linux() {
        let all = PortSpeed::ALL.map(|speed| speed.to_string());
        assert_eq!(all[0], "2.5 Gb/sec (1X SDR)");
        assert_eq!(all[6], "56 Gb/sec (4X FDR)");
        assert_eq!(PortSpeed::default().to_string(), "100 Gb/sec (4X EDR)");
    }
}
