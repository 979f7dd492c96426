#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| urxe_fuzz::shared::farewells(data));
