//! Thread domains and parent domains: accepted, so that programs that use them run.

use crate::context::Context;
use crate::error::{Error, ErrorKind};
use crate::pd::Pd;

/// A promise that the objects of a domain are used by one thread at a time. An adapter's
/// library leaves out locks then. Here the locks that remain are needed for the engine's own
/// threads and cost next to nothing without contention, so the promise changes nothing.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_td")]
pub struct Td {
    context: Context,
}

impl Context {
    /// A thread domain.
    ///
    /// # Errors
    /// In the child of a fork.
    #[doc(alias = "ibv_alloc_td")]
    pub fn alloc_td(&self) -> Result<Td, Error> {
        self.engine().check_process()?;
        Ok(Td {
            context: self.clone(),
        })
    }
}

impl Pd {
    /// The protection domain itself, under another handle: objects that are created on
    /// either work with those of the other. A thread domain that comes with it changes
    /// nothing; allocators of the program's own are not taken, as nothing is allocated in
    /// memory that an adapter would read.
    ///
    /// # Errors
    /// If the thread domain is of another context, or in the child of a fork.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.26".parse().unwrap())?;
    /// let (pd, td) = (context.alloc_pd()?, context.alloc_td()?);
    /// let parent = pd.alloc_parent_domain(Some(&td))?;
    /// let cq = context.create_cq(16)?;
    /// let qp = parent.qp(&cq).create()?;
    /// # let _ = qp;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn alloc_parent_domain(&self, td: Option<&Td>) -> Result<Pd, Error> {
        self.engine().check_process()?;
        if td.is_some_and(|td| !td.context.is(self.context())) {
            return Err(ErrorKind::ForeignObject("thread domain").into());
        }
        Ok(self.clone())
    }
}
