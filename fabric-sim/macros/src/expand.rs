//! What the attribute makes of a function.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitInt, ReturnType, Token};

/// Seeds of a test that does not say how many.
const SEEDS: u64 = 100;

/// What the attribute says.
pub(crate) struct Attributes {
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

/// The test.
pub(crate) fn expand(attributes: &Attributes, function: &ItemFn) -> syn::Result<TokenStream> {
    let signature = &function.sig;
    if signature.inputs.len() != 1 || signature.asyncness.is_some() {
        let words = "a test in the simulated fabric is `fn name(sim: &mut Simulation)`; \
                     what may be async are the programs in it, by `program::task::block_on`";
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

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(text: &str) -> Result<(u64, bool), String> {
        let parsed: syn::Result<Attributes> = syn::parse_str(text);
        let parsed = parsed.map_err(|error| error.to_string())?;
        Ok((parsed.seeds, parsed.twice))
    }

    #[test]
    fn attributes_are_seeds_and_twice() {
        assert_eq!(attributes(""), Ok((SEEDS, false)));
        assert_eq!(attributes("seeds = 200"), Ok((200, false)));
        assert_eq!(attributes("twice, seeds = 3,"), Ok((3, true)));
        for (bad, words) in [
            ("seeds = 0", "tests nothing"),
            ("seeds = -1", "invalid digit"),
            ("seeds", "expected `=`"),
            ("seed = 4", "unknown"),
            ("twice = true", "expected `,`"),
        ] {
            let error = attributes(bad).expect_err(bad);
            assert!(error.contains(words), "{bad}: {error}");
        }
    }

    #[test]
    fn a_test_takes_a_simulation_and_is_not_async() {
        let expand = |text: &str| {
            let function: ItemFn = syn::parse_str(text).expect("a function");
            let attributes = Attributes {
                seeds: 7,
                twice: false,
            };
            expand(&attributes, &function).map(|tokens| tokens.to_string())
        };
        for bad in [
            "fn t() {}",
            "fn t(a: &mut Simulation, b: u8) {}",
            "async fn t(sim: &mut Simulation) {}",
        ] {
            let error = expand(bad).expect_err(bad).to_string();
            assert!(error.contains("fn name(sim: &mut Simulation)"), "{error}");
        }
        let usual = expand("#[should_panic] fn t(sim: &mut Simulation) { sim.run()?; }");
        let usual = usual.expect("a test");
        assert!(usual.contains("# [should_panic] fn t ()"), "{usual}");
        assert!(usual.contains("program :: Failure"), "what `?` returns");
        let other = expand("fn t(sim: &mut Simulation) -> Result<(), String> { Ok(()) }");
        let other = other.expect("a test");
        assert!(!other.contains("program :: Failure"), "its own: {other}");
    }
}
