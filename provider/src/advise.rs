//! Advice about memory that will be used.

use urxe_core::work::Sge;

use crate::advice::Advice;
use crate::error::{Error, ErrorKind};
use crate::pd::Pd;

impl Pd {
    /// Brings the pages behind scatter/gather entries into memory, so that their first use
    /// finds them there. It is done when this returns (as with `IBV_ADVISE_MR_FLAG_FLUSH`).
    /// Regions of every kind may be named, not only those registered on demand.
    ///
    /// # Errors
    /// [`ErrorKind::Advise`] for the first entry that cannot be used so; those before it
    /// were brought in.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.21".parse().unwrap())?;
    /// # let pd = context.alloc_pd()?;
    /// use urxe::{Access, Advice};
    ///
    /// let region = pd.reg_owned(vec![0; 1 << 20], Access::LOCAL_WRITE | Access::ON_DEMAND)?;
    /// pd.advise_mr(Advice::PrefetchWrite, &[region.sge(..)])?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise_mr(&self, advice: Advice, sges: &[Sge]) -> Result<(), Error> {
        self.engine().check_process()?;
        for (entry, sge) in sges.iter().enumerate() {
            let outcome = self.engine().prefetch(self.id(), advice, sge);
            outcome.map_err(|fault| ErrorKind::Advise { entry, fault })?;
        }
        Ok(())
    }
}
