//! The scenarios that come with the crate.

/// Their names and texts, to begin with: what each is for is its first line.
pub const EXAMPLES: [(&str, &str); 4] = [
    ("incast", include_str!("../../scenarios/incast.toml")),
    ("faults", include_str!("../../scenarios/faults.toml")),
    ("jobs", include_str!("../../scenarios/jobs.toml")),
    ("sweep", include_str!("../../scenarios/sweep.toml")),
];
