//! librpma: memory of another process, written, flushed and read by RDMA.

use std::path::Path;

use crate::c_program::compile;
use crate::cm_ends::cm_ends;
use crate::ends::User;

#[test]
fn librpma_writes_flushes_and_reads() {
    if !Path::new("/usr/include/librpma.h").exists() {
        println!("skipped: librpma.h is missing (apt-get install librpma-dev)");
        return;
    }
    let Some(program) = compile("abi/rpma.c", &["-lrpma", "-libverbs"]) else {
        return;
    };
    let line = |role: &str| format!("{} {role} ADDR PORT", program.binary);
    let ended = cm_ends(User::Myself, "gcc", &line("serve"), &line("go"));
    let (_, client) = ended.expect("it was just made");
    assert!(client.contains("bytes compared"), "{client}");
}
