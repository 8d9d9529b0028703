//! Which layers are around a server, as data and as text.

use crate::faults::{FaultInjector, FaultPlan};
use crate::validate::Validate;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use trunnion_runtime_core::server::Opened;

/// One layer.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// [`Validate`]: breaches of the contract are logged.
    Validate,
    /// [`FaultInjector`] with this plan.
    Faults(FaultPlan),
    /// [`Record`](crate::Record) to the file of this path. A file that cannot be written is logged, and nothing is recorded.
    #[cfg(feature = "std")]
    Record(String),
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Validate => f.write_str("validate"),
            Self::Faults(plan) => fmt::Display::fmt(plan, f),
            #[cfg(feature = "std")]
            Self::Record(path) => write!(f, "record={path}"),
        }
    }
}

/// The layers around a server, the outermost first: the one a call comes to first.
///
/// In text they are separated by commas:
///
/// | item | layer |
/// |---|---|
/// | `validate` | [`Validate`] |
/// | `fault=number:kind`, `fault=operation:number:kind` | [`FaultInjector`]: the operation with this number, from 1, fails |
/// | `delay=time` | [`FaultInjector`]: completions are told so late; a whole number with `us`, `ms` or `s` |
/// | `reorder=seed` | [`FaultInjector`]: completions of different streams are told in another order |
/// | `record=path` | [`Record`](crate::Record): what is asked is written to this file; with feature `std` |
///
/// Operations are those of [`Operation`](crate::Operation), kinds those of [`FaultKind`](crate::FaultKind). Neighbouring items of a fault
/// injector make one. `0`, `off` and `false` are no layer.
///
/// ```
/// use trunnion_server_layers::Layers;
/// let layers: Layers = "validate,fault=launch:3:lost,delay=200us,reorder=7".parse()?;
/// assert_eq!(layers.all().len(), 2);
/// assert_eq!(layers.to_string(), "validate,fault=launch:3:lost,delay=200us,reorder=7");
/// # Ok::<(), trunnion_server_layers::ParseLayersError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Layers(Vec<Layer>);

/// Text that names no layers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layer `{item}`: {why}")]
pub struct ParseLayersError {
    /// The item that is wrong.
    pub item: String,
    /// What is wrong with it, and what is valid.
    pub why: String,
}

/// The items there are.
const VALID: &str = match cfg!(feature = "std") {
    true => "`validate`, `fault=[operation:]number:kind`, `delay=time`, `reorder=seed`, `record=path`, or 0 for none",
    false => "`validate`, `fault=[operation:]number:kind`, `delay=time`, `reorder=seed`, or 0 for none",
};

impl Layers {
    /// None.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// One more layer, inside those there are.
    pub fn with(mut self, layer: Layer) -> Self {
        self.0.push(layer);
        self
    }

    /// The layers, outermost first.
    pub fn all(&self) -> &[Layer] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The server with these layers around it. Breaches that a [`Validate`] finds are logged; who wants to ask for them puts it around
    /// the server itself.
    pub fn around(&self, mut opened: Opened) -> Opened {
        for layer in self.0.iter().rev() {
            opened = match layer {
                Layer::Validate => Validate::around(opened).0,
                Layer::Faults(plan) => FaultInjector::around(opened, plan.clone()).0,
                #[cfg(feature = "std")]
                Layer::Record(path) => crate::record::to_file(opened, path),
            };
        }
        opened
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        self.0.iter().enumerate().try_for_each(|(i, layer)| {
            f.write_str(if i == 0 { "" } else { "," })?;
            fmt::Display::fmt(layer, f)
        })
    }
}

impl FromStr for Layers {
    type Err = ParseLayersError;

    fn from_str(text: &str) -> Result<Self, ParseLayersError> {
        if matches!(text.trim(), "0" | "off" | "false") {
            return Ok(Self::new());
        }
        let mut layers = Self::new();
        for item in text.split(',').map(str::trim) {
            let unknown = || ParseLayersError { item: item.to_string(), why: alloc::format!("valid: {VALID}") };
            match item.split_once('=') {
                None if item == "validate" => layers.0.push(Layer::Validate),
                #[cfg(feature = "std")]
                Some((name, path)) if name.trim() == "record" && !path.trim().is_empty() => {
                    layers.0.push(Layer::Record(path.trim().to_string()));
                }
                None => return Err(unknown()),
                Some((name, value)) => {
                    if !matches!(layers.0.last(), Some(Layer::Faults(_))) {
                        layers.0.push(Layer::Faults(FaultPlan::new()));
                    }
                    let Some(Layer::Faults(plan)) = layers.0.last_mut() else { return Err(unknown()) };
                    if !plan.set(item, name.trim(), value.trim())? {
                        return Err(unknown());
                    }
                }
            }
        }
        Ok(layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FaultKind;
    use crate::operation::Operation;
    use core::time::Duration;

    #[test]
    fn text_and_layers_are_the_same() {
        let plan = FaultPlan::new().fail(2, FaultKind::Never).delay(Duration::from_millis(3));
        let layers = Layers::new()
            .with(Layer::Validate)
            .with(Layer::Faults(plan.fail_operation(Operation::Access, 9, FaultKind::Panic).reorder(0)))
            .with(Layer::Validate);
        let text = "validate,fault=2:never,fault=access:9:panic,delay=3ms,reorder=0,validate";
        assert_eq!((layers.to_string(), text.parse()), (text.to_string(), Ok(layers)));
        for text in [
            "0",
            "validate",
            "record=a/b=c.trunnion",
            "delay=1ms,record=x,reorder=3",
            "delay=2s",
            "delay=1500us",
            "fault=1:oom",
            "fault=read:18446744073709551615:late",
        ] {
            assert_eq!(text.parse::<Layers>().unwrap().to_string(), text);
        }
        assert_eq!(" validate , delay = 1us ".parse::<Layers>().unwrap().to_string(), "validate,delay=1us");
        for off in ["0", "off", "false", " off "] {
            assert_eq!(off.parse(), Ok(Layers::new()));
        }
    }

    #[test]
    fn every_operation_and_kind_has_a_name() {
        for operation in Operation::ALL {
            for kind in FaultKind::ALL {
                let text = alloc::format!("fault={operation}:1:{kind}");
                let plan = FaultPlan::new().fail_operation(operation, 1, kind);
                assert_eq!(text.parse(), Ok(Layers::new().with(Layer::Faults(plan))));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_valid() {
        for (text, item, says) in [
            ("", "", "`validate`"),
            ("validate,", "", "`delay=time`"),
            ("valdiate", "valdiate", "`validate`"),
            ("validate=1", "validate=1", "`reorder=seed`"),
            ("validate,fualt=1:lost", "fualt=1:lost", "`fault=[operation:]number:kind`"),
            ("fault=lunch:3:lost", "fault=lunch:3:lost", "there is no operation `lunch`; valid: reserve, write"),
            ("fault=0:lost", "fault=0:lost", "`0` counts no operation; valid: a whole number from 1"),
            ("fault=launch:-1:lost", "fault=launch:-1:lost", "`-1` counts no operation"),
            ("fault=3", "fault=3", "`operation:number:kind`"),
            ("fault=a:1:lost:b", "fault=a:1:lost:b", "`operation:number:kind`"),
            ("fault=3:gone", "fault=3:gone", "there is no kind `gone`; valid: oom, refused, late, never, lost, panic"),
            ("delay=200", "delay=200", "us, ms or s"),
            ("delay=", "delay=", "us, ms or s"),
            ("delay=1s,delay=2s", "delay=2s", "already"),
            ("reorder=x", "reorder=x", "a seed from 0 to 18446744073709551615"),
            ("reorder=1,reorder=1", "reorder=1", "already"),
            ("validate,0", "0", "`validate`"),
            ("record=", "record=", "`record=path`"),
            ("record", "record", "`record=path`"),
        ] {
            let error = text.parse::<Layers>().unwrap_err();
            assert_eq!(error.item, item, "{text}");
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }
}
