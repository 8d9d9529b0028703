//! What is to go wrong, as data and as text.

use crate::layers::ParseLayersError;
use crate::operation::Operation;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// How an operation fails.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// There is no memory for it: [`Error::OutOfMemory`](trunnion_runtime_core::error::Error::OutOfMemory) lies on what it would have
    /// written, and on all of a reservation, whatever is written there later.
    OutOfMemory,
    /// The driver refuses it: [`Error::Driver`](trunnion_runtime_core::error::Error::Driver).
    Refused,
    /// It is accepted, and turns out to have failed before its moment is done.
    Late,
    /// It never completes: its moment is not done until the device is shut down, and what comes after it waits.
    Never,
    /// The device is lost with it: everything pending and later answers the same
    /// [`Error::DeviceLost`](trunnion_runtime_core::error::Error::DeviceLost).
    Lost,
    /// The server panics in it. For programs that catch panics: a device's executor does so with the standard library.
    Panic,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::OutOfMemory, Self::Refused, Self::Late, Self::Never, Self::Lost, Self::Panic];

    /// What texts call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "oom",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::Never => "never",
            Self::Lost => "lost",
            Self::Panic => "panic",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Which operations are counted; all of them where it is `None`.
    pub operation: Option<Operation>,
    /// Which of those fails, from 1.
    pub number: u64,
    /// How.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(operation) => write!(f, "{operation}:{}:{}", self.number, self.kind),
            None => write!(f, "{}:{}", self.number, self.kind),
        }
    }
}

/// What a [`FaultInjector`](super::FaultInjector) does. Made by chaining; the empty plan does nothing.
///
/// ```
/// use trunnion_server_layers::{FaultKind, FaultPlan, Operation};
/// let plan = FaultPlan::new().fail(5, FaultKind::Refused).fail_operation(Operation::Launch, 3, FaultKind::Lost);
/// assert_eq!(plan.to_string(), "fault=5:refused,fault=launch:3:lost");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultPlan {
    faults: Vec<Fault>,
    delay: Option<Duration>,
    reorder: Option<u64>,
}

impl FaultPlan {
    /// How late completions are where they are only reordered.
    pub const REORDER_DELAY: Duration = Duration::from_micros(100);

    /// Nothing goes wrong.
    pub const fn new() -> Self {
        Self { faults: Vec::new(), delay: None, reorder: None }
    }

    /// The operation with this number among all, from 1, fails.
    pub fn fail(mut self, number: u64, kind: FaultKind) -> Self {
        self.faults.push(Fault { operation: None, number, kind });
        self
    }

    /// The operation with this number among those of one name, from 1, fails.
    pub fn fail_operation(mut self, operation: Operation, number: u64, kind: FaultKind) -> Self {
        self.faults.push(Fault { operation: Some(operation), number, kind });
        self
    }

    /// What is done is told only this long after it was found done.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// What is done on different streams is told in another order, drawn from this seed: each is up to twice as late as
    /// [`delay`](Self::delay) says, or as [`REORDER_DELAY`](Self::REORDER_DELAY). A stream's own order stays.
    pub fn reorder(mut self, seed: u64) -> Self {
        self.reorder = Some(seed);
        self
    }

    /// What fails.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Whether nothing goes wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.pace().is_none()
    }

    /// How late completions are told, and the seed their order is drawn from.
    pub(super) fn pace(&self) -> Option<(Duration, Option<u64>)> {
        match (self.delay, self.reorder) {
            (None, None) => None,
            (delay, seed) => Some((delay.unwrap_or(Self::REORDER_DELAY), seed)),
        }
    }

    /// Adds what `name=value` says; false where the name is none of a plan's.
    pub(crate) fn set(&mut self, item: &str, name: &str, value: &str) -> Result<bool, ParseLayersError> {
        let refuse = |why: String| Err(ParseLayersError { item: item.into(), why });
        match name {
            "fault" => match fault(value) {
                Ok(fault) => self.faults.push(fault),
                Err(why) => return refuse(why),
            },
            "delay" => match time(value) {
                Some(_) if self.delay.is_some() => return refuse("this layer has a delay already".into()),
                Some(delay) => self.delay = Some(delay),
                None => return refuse("valid: a whole number with us, ms or s".into()),
            },
            "reorder" => match value.parse() {
                Ok(_) if self.reorder.is_some() => return refuse("this layer has a seed already".into()),
                Ok(seed) => self.reorder = Some(seed),
                Err(_) => return refuse(format!("valid: a seed from 0 to {}", u64::MAX)),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for fault in &self.faults {
            write!(f, "{comma}fault={fault}")?;
            comma = ",";
        }
        if let Some(delay) = self.delay {
            let (seconds, micros) = (delay.as_secs(), delay.as_micros());
            match delay.subsec_micros() {
                0 => write!(f, "{comma}delay={seconds}s")?,
                part if part % 1000 == 0 => write!(f, "{comma}delay={}ms", micros / 1000)?,
                _ => write!(f, "{comma}delay={micros}us")?,
            }
            comma = ",";
        }
        if let Some(seed) = self.reorder {
            write!(f, "{comma}reorder={seed}")?;
        }
        Ok(())
    }
}

/// Reads `[operation:]number:kind`; an error says what is valid.
fn fault(text: &str) -> Result<Fault, String> {
    let mut parts = text.split(':');
    let (operation, number, kind) = match [parts.next(), parts.next(), parts.next(), parts.next()] {
        [Some(number), Some(kind), None, _] => (None, number, kind),
        [Some(operation), Some(number), Some(kind), None] => (Some(operation), number, kind),
        _ => return Err("valid: `number:kind` or `operation:number:kind`".into()),
    };
    let operation = match operation {
        None => None,
        Some(name) => {
            let names = Operation::ALL.map(Operation::name).join(", ");
            let named = Operation::named(name);
            Some(named.ok_or_else(|| format!("there is no operation `{name}`; valid: {names}"))?)
        }
    };
    let valid = |number: &u64| *number > 0;
    let count = || format!("`{number}` counts no operation; valid: a whole number from 1");
    let number = number.parse().ok().filter(valid).ok_or_else(count)?;
    let kinds = || FaultKind::ALL.map(FaultKind::name).join(", ");
    let kind = FaultKind::named(kind).ok_or_else(|| format!("there is no kind `{kind}`; valid: {}", kinds()))?;
    Ok(Fault { operation, number, kind })
}

/// A whole number with its unit.
fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number = text[..digits].parse().ok()?;
    match &text[digits..] {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}
