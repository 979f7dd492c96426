//! Codes in connection manager messages. Each keeps unknown numbers.

use core::fmt;

use crate::field::field_as;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident($raw:ty) { $($code:ident = $number:literal, $text:literal;)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            $(
                #[doc = concat!($text, ".")]
                pub const $code: $name = $name($number);
            )*

            /// In words; `None` for a number without meaning.
            pub const fn describe(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} {})"), self.0, self.describe().unwrap_or("?"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.describe() {
                    Some(text) => f.write_str(text),
                    None => write!(f, "code {}", self.0),
                }
            }
        }

        field_as!($name: $raw, $name, |code| code.0);
    )*};
}

codes! {
    /// Which message an MRA is about, 2 bits.
    MraMessage(u8) {
        REQ = 0, "REQ";
        REP = 1, "REP";
        LAP = 2, "LAP";
    }

    /// Which message a REJ is about, 2 bits.
    RejMessage(u8) {
        REQ = 0, "REQ";
        REP = 1, "REP";
        OTHER = 2, "no message";
    }

    /// Why a REJ was sent.
    RejReason(u16) {
        NO_QP = 1, "no QP";
        NO_EEC = 2, "no EE context";
        NO_RESOURCES = 3, "no resources";
        TIMEOUT = 4, "timeout";
        UNSUPPORTED = 5, "unsupported request";
        INVALID_COMM_ID = 6, "invalid communication id";
        INVALID_COMM_INSTANCE = 7, "invalid communication instance";
        INVALID_SERVICE_ID = 8, "invalid service id";
        INVALID_TRANSPORT_TYPE = 9, "invalid transport service type";
        STALE_CONNECTION = 10, "stale connection";
        RDC_NOT_EXIST = 11, "no RD channel";
        INVALID_GID = 12, "invalid primary GID";
        INVALID_LID = 13, "invalid primary LID";
        INVALID_SL = 14, "invalid primary service level";
        INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
        INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
        INVALID_PACKET_RATE = 17, "invalid primary packet rate";
        INVALID_ALT_GID = 18, "invalid alternate GID";
        INVALID_ALT_LID = 19, "invalid alternate LID";
        INVALID_ALT_SL = 20, "invalid alternate service level";
        INVALID_ALT_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
        INVALID_ALT_HOP_LIMIT = 22, "invalid alternate hop limit";
        INVALID_ALT_PACKET_RATE = 23, "invalid alternate packet rate";
        CM_REDIRECT = 24, "go to another port or connection manager";
        PORT_REDIRECT = 25, "go to another port";
        INVALID_MTU = 26, "invalid path MTU";
        INSUFFICIENT_RESP_RESOURCES = 27, "insufficient responder resources";
        CONSUMER_DEFINED = 28, "refused by the application";
        INVALID_RNR_RETRY = 29, "invalid RNR retry count";
        DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication id";
        INVALID_CLASS_VERSION = 31, "invalid class version";
        INVALID_FLOW_LABEL = 32, "invalid primary flow label";
        INVALID_ALT_FLOW_LABEL = 33, "invalid alternate flow label";
        VENDOR_OPTION_NOT_SUPPORTED = 35, "vendor option not supported";
    }

    /// The outcome of a SIDR_REQ.
    SidrStatus(u8) {
        VALID = 0, "valid QP";
        UNSUPPORTED = 1, "service id not supported";
        REJECT = 2, "refused by the service";
        NO_QP = 3, "no QP";
        REDIRECT = 4, "go elsewhere";
        UNSUPPORTED_VERSION = 5, "version not supported";
    }
}
