//! `#[fabric_sim::test]`: see the crate `urxe-fabric-sim`, which exports it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitInt, ReturnType, Token, parse_macro_input};

/// Seeds of a test that does not say how many.
const SEEDS: u64 = 100;

/// A test that runs in the simulated fabric, once for each of many seeds.
///
/// The function takes a `&mut Simulation`, builds what it tests, and runs it. If it has no return type, `?` may be used on
/// [`Simulation::run`] all the same.
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

struct Attributes {
    seeds: u64,
    twice: bool,
}

impl Parse for Attributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Attributes> {
        let mut attributes = Attributes {
            seeds: SEEDS,
            twice: false,
        };
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            match name.to_string().as_str() {
                "seeds" => {
                    input.parse::<Token![=]>()?;
                    let number: LitInt = input.parse()?;
                    attributes.seeds = number.base10_parse()?;
                    if attributes.seeds == 0 {
                        return Err(Error::new(number.span(), "a test of no seed tests nothing"));
                    }
                }
                "twice" => attributes.twice = true,
                _ => {
                    let words = "unknown: there are `seeds = N` and `twice`";
                    return Err(Error::new(name.span(), words));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(attributes)
    }
}

fn expand(attributes: &Attributes, function: &ItemFn) -> syn::Result<proc_macro2::TokenStream> {
    let signature = &function.sig;
    if signature.inputs.len() != 1 || signature.asyncness.is_some() {
        let words = "a test in the simulated fabric is `fn name(sim: &mut Simulation)`";
        return Err(Error::new(signature.span(), words));
    }
    let Attributes { seeds, twice } = attributes;
    let (name, inputs, body) = (&signature.ident, &signature.inputs, &function.block);
    let others = &function.attrs;
    let body = match &signature.output {
        // What `?` returns in a function that says nothing of it.
        ReturnType::Default => quote! {
            fn body(#inputs) -> ::core::result::Result<(), ::fabric_sim::program::Failure> {
                #body
                #[allow(unreachable_code, reason = "a body may end in a panic")]
                ::core::result::Result::Ok(())
            }
        },
        output => quote! { fn body(#inputs) #output #body },
    };
    Ok(quote! {
        #[::core::prelude::v1::test]
        #(#others)*
        fn #name() {
            #body
            // Without the crate's name, as `cargo test` takes it.
            let path = ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name));
            let name = path.split_once("::").map_or(path, |(_, name)| name);
            ::fabric_sim::program::SeedTest { name, seeds: #seeds, twice: #twice }.run(body);
        }
    })
}
