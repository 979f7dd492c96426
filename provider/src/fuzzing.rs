//! For fuzz targets: what is read from files and sockets that other processes of the user can write to. Each function
//! takes the bytes, and panics on a finding.

use crate::share::fuzzing;

/// The file with the holders of QPNs, from its beginning; what is missing counts as zeros.
pub fn registry(bytes: &[u8]) {
    fuzzing::registry(bytes);
}

/// The file of ports, behind its head.
pub fn ports(bytes: &[u8]) {
    fuzzing::ports(bytes);
}

/// A packet that a neighbour hands over, as it comes out of the socket.
pub fn handed(bytes: &[u8]) {
    fuzzing::handed(bytes);
}
