//! This process's memory, as the system counts it.

use crate::error::CliError;

/// Resident bytes of this process.
pub(crate) fn resident() -> Result<u64, CliError> {
    const FILE: &str = "/proc/self/status";
    let fail = |text: &str| CliError::Failed(format!("{FILE}: {text}"));
    let status = std::fs::read_to_string(FILE).map_err(|error| fail(&error.to_string()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    Ok(kib.ok_or_else(|| fail("no VmRSS in kB"))? << 10)
}
