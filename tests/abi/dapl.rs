//! uDAPL, an interface older than verbs, over its provider that connects by librdmacm: the QP is made on one identifier, and
//! moved to the one that the request came with.

use std::fs;

use crate::cm_ends::cm_ends;
use crate::ends::User;
use crate::harness::program;

/// Runs both ends with a provider that has the device's address. `None` if the program is missing.
fn ends(name: &str, server: &str, client: &str) -> Option<(String, String)> {
    let user = User::Myself;
    program(name, "dapl2-utils", user.address())?;
    let file = format!("urxe-dapl-{name}-{}.conf", std::process::id());
    let file = std::env::temp_dir().join(file);
    let provider = format!(
        "cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{} 0\" \"\"\n",
        user.address()
    );
    fs::write(&file, provider).expect("room for it");
    let line = |args| format!("env DAT_OVERRIDE={} {name} {args}", file.display());
    let ended = cm_ends(user, "dapl2-utils", &line(server), &line(client));
    fs::remove_file(&file).expect("it is ours");
    ended
}

/// Messages, WRITE and READ, which it compares; by events, and with larger buffers.
#[test]
fn dtest() {
    for more in ["", "-B 50 -b 4096"] {
        let server = format!("-P cma -s {more}");
        let client = format!("-P cma -h ADDR {more}");
        let Some((server, client)) = ends("dtest", &server, &client) else {
            return;
        };
        for ran in [server, client] {
            assert!(ran.contains("PASSED"), "{more}: {ran}");
        }
    }
}
