//! What two sides that are urxe offer each other when they connect, as options of enhanced connection establishment (ECE).

use urxe_core::cm::VendorOptions as Ece;

/// To say which packets are here (`docs/RECOVERY.md`). The vendor is no one's: an identifier of the locally administered kind,
/// "ur" after the bit that says so.
pub(crate) const OFFER: Ece = Ece {
    vendor_id: 0x02_75_72,
    options: 1,
};
