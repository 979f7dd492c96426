//! What single switches and ports have in place of the settings of all.

use crate::qos::PRIORITIES;
use crate::switch::{Marking, SwitchConfig, Threshold};
use crate::topology::{Node, PortId, SwitchId};

/// Where an [`Override`] holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A switch with all of its ports.
    Switch(SwitchId),
    /// A port of a switch.
    Port(PortId),
}

/// Settings of one switch or port that are not those of [`FabricConfig::switch`](crate::FabricConfig::switch). Of several for one place the
/// last holds, and one for a port before one for its switch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Override {
    /// Which.
    pub place: Place,
    /// The whole buffer of a switch.
    pub buffer: Option<u64>,
    /// Up to where a lossless class may fill the shared pool of a switch.
    pub threshold: Option<Threshold>,
    /// Room for what arrives after a pause was sent, by port and lossless class.
    pub headroom: Option<u32>,
    /// Marking by class of what leaves by the port.
    pub marking: Option<[Option<Marking>; PRIORITIES]>,
}

impl Override {
    /// One that changes nothing yet.
    pub fn new(place: Place) -> Override {
        Override {
            place,
            buffer: None,
            threshold: None,
            headroom: None,
            marking: None,
        }
    }

    /// The same elsewhere.
    #[must_use]
    pub fn at(mut self, place: Place) -> Override {
        self.place = place;
        self
    }

    /// Changes what it has.
    fn apply(&self, config: &mut SwitchConfig) {
        config.buffer = self.buffer.unwrap_or(config.buffer);
        config.threshold = self.threshold.unwrap_or(config.threshold);
        config.headroom = self.headroom.or(config.headroom);
        config.marking = self.marking.unwrap_or(config.marking);
    }
}

/// The settings at a switch, or at one of its ports.
pub(super) fn settings_at(
    all: &SwitchConfig,
    overrides: &[Override],
    switch: SwitchId,
    port: Option<PortId>,
) -> SwitchConfig {
    let mut config = all.clone();
    let places = [Some(Place::Switch(switch)), port.map(Place::Port)];
    for place in places.into_iter().flatten() {
        let here = overrides.iter().filter(|given| given.place == place);
        here.for_each(|given| given.apply(&mut config));
    }
    config
}

/// How what leaves a port of a switch is marked, if not as in all of the network.
pub(super) fn marking_at(
    all: &SwitchConfig,
    overrides: &[Override],
    node: Node,
    port: PortId,
) -> Option<Box<[Option<Marking>; PRIORITIES]>> {
    let Node::Switch(switch) = node else {
        return None;
    };
    let own = settings_at(all, overrides, switch, Some(port)).marking;
    (own != all.marking).then(|| own.into())
}
