//! `#[fabric_sim::test]`: see the crate `urxe-fabric-sim`, which exports it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod expand;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use expand::{Attributes, expand};

/// A test that runs in the simulated fabric, once for each of many seeds.
///
/// The function takes a `&mut Simulation`, builds what it tests, and runs it. If it has no return type, `?` may be used on
/// `Simulation::run` all the same.
///
/// ```ignore
/// #[fabric_sim::test(seeds = 200)]
/// fn lock_is_exclusive(sim: &mut Simulation) {
///     sim.host(HostId(0), client).host(HostId(1), server);
///     sim.fault(Fault::loss(0.01));
///     sim.run()?.assert_sometimes("nak");
/// }
/// ```
///
/// * `seeds = 200`: seeds 0 to 199 (default: 100). The environment variables `URXE_SIM_SEED` (that one alone) and
///   `URXE_SIM_SEEDS` (so many, or a range) take precedence.
/// * `twice`: each seed runs twice, and both runs must be the same, event by event. `URXE_SIM_TWICE=1` does
///   that for every test.
///
/// A seed that fails is named, with the line that repeats it.
#[proc_macro_attribute]
pub fn test(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let attributes = parse_macro_input!(attributes as Attributes);
    let function = parse_macro_input!(item as ItemFn);
    match expand(&attributes, &function) {
        Ok(tokens) => tokens.into(),
        Err(error) => error.to_compile_error().into(),
    }
}
