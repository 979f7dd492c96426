//! What processes of one user share: the registry of QPNs, the file of ports, what others say for the killed, and packets that one hands over to another. See
//! `provider/src/share/fuzzing.rs`.

use urxe::fuzzing;

/// Of the registry: its tables, as (place of the first entry, entries, bytes of one).
const TABLES: [(usize, usize, usize); 4] = [
    (0, 4, 16),
    (64, 512, 16),
    (64 + 512 * 16, 2048, 24),
    (64 + 512 * 16 + 2048 * 24, 4096, 8),
];
const LEN: usize = 64 + 512 * 16 + 2048 * 24 + 4096 * 8;

/// Input: entries of an otherwise empty file. Each is a byte for the table, two for the place in it, and its bytes.
pub fn registry(data: &[u8]) {
    let mut file = vec![0; LEN];
    file[..16].copy_from_slice(b"urxe registry 1\n");
    let mut rest = data;
    while let Some((&[table, high, low], behind)) = rest.split_first_chunk() {
        let (start, count, len) = TABLES[usize::from(table) % TABLES.len()];
        let at = start + usize::from(u16::from_be_bytes([high, low])) % count * len;
        let (entry, behind) = behind.split_at(len.min(behind.len()));
        file[at..at + entry.len()].copy_from_slice(entry);
        rest = behind;
    }
    fuzzing::registry(&file);
    // A file that a process died in the midst of making.
    fuzzing::registry(&file[..usize::from(data.first().copied().unwrap_or(0)) * LEN / 256]);
}

/// Input: the file's entries.
pub fn ports(data: &[u8]) {
    fuzzing::ports(data);
}

/// Input: the file, from its beginning.
pub fn farewells(data: &[u8]) {
    fuzzing::farewells(data);
}

/// Input: a message, as it comes out of the socket.
pub fn hand_over(data: &[u8]) {
    fuzzing::handed(data);
}
