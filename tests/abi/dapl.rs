//! uDAPL, an interface older than verbs, over its provider that connects by librdmacm: the QP is made on one identifier, and
//! moved to the one that the request came with.

use std::fs;
use std::path::PathBuf;

use crate::cm_ends::{Talking, cm_ends, command};
use crate::ends::{User, alone};
use crate::harness::{program, run};

/// A file that names a provider with the device's address. Removed with the value.
struct Provider(PathBuf);

impl Provider {
    fn new(name: &str) -> Provider {
        let file = format!("urxe-dapl-{name}-{}.conf", std::process::id());
        let file = std::env::temp_dir().join(file);
        let provider = format!(
            "cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{} 0\" \"\"\n",
            User::Myself.address()
        );
        fs::write(&file, provider).expect("room for it");
        Provider(file)
    }

    /// The command line, with it; line by line, as it says it.
    fn line(&self, line: &str) -> String {
        format!("env DAT_OVERRIDE={} stdbuf -oL {line}", self.0.display())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // A test that failed has more to say than this.
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs both ends of dtest. `None` if it is missing.
fn ends(server: &str, client: &str) -> Option<(String, String)> {
    let user = User::Myself;
    program("dtest", "dapl2-utils", user.address())?;
    let provider = Provider::new("dtest");
    let line = |args| provider.line(&format!("dtest {args}"));
    cm_ends(user, "coreutils", &line(server), &line(client))
}

/// Messages, WRITE and READ, which it compares; by events, and with larger buffers.
#[test]
fn dtest() {
    for more in ["", "-B 50 -b 4096"] {
        let server = format!("-P cma -s {more}");
        let client = format!("-P cma -h ADDR {more}");
        let Some((server, client)) = ends(&server, &client) else {
            return;
        };
        for ran in [server, client] {
            assert!(ran.contains("PASSED"), "{more}: {ran}");
        }
    }
}

/// Its server serves until a client tells it to end.
#[test]
fn dapltest() {
    let user = User::Myself;
    let Some(_) = program("dapltest", "dapl2-utils", user.address()) else {
        return;
    };
    let provider = Provider::new("dapltest");
    let start = |test: &str, args: &str| {
        let line = provider.line(&format!("dapltest -T {test} -D cma {args}"));
        command(user, "coreutils", &line, "").expect("it is there")
    };
    let _alone = alone();
    let mut server = Talking::start(start("S", ""));
    server.wait_for("Service Point Ready");
    for transactions in [
        // Messages both ways, WRITE and READ.
        "T -i 100 -t 1 -w 1 client SR 256 1 server SR 256 1 client RW 4096 2 server RR 4096 2",
        // What arrives is compared; two threads with two endpoints each.
        "T -i 50 -t 2 -w 2 -V client SR 256 1 server SR 256 1 client RW 65536 1 server SR 4 1",
        "P -i 100 -p 8 -m b RW 4096 1",
        "Q",
    ] {
        let (test, args) = transactions.split_once(' ').unwrap_or((transactions, ""));
        let ran = run(start(test, &format!("-s ADDR {args}")));
        assert_eq!(ran.code, Some(0), "{transactions}: {}", ran.text);
        assert!(!ran.text.contains("ailed"), "{transactions}: {}", ran.text);
    }
    let served = server.finish();
    assert!(served.text.contains("Exiting"), "{served:?}");
}
