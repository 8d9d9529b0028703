//! The state of a device, as settings of a program, so that a reproducer says what it needs.

use crate::factory::Variant;
use crate::kernels::BROKEN;
use core::time::Duration;
use trunnion_server_layers::program::Program;

/// What the settings' names begin with.
const PREFIX: &str = "variant.";

/// Writes down how the device behaved. Limits a program cannot come near are left out.
pub fn set_variant(program: &mut Program, variant: &Variant) {
    program.config.retain(|(name, _)| !name.starts_with(PREFIX));
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let settings = [
        ("row_pitch", number(variant.row_pitch)),
        ("separate_memory", variant.separate_memory.then(|| "true".into())),
        ("delay_us", variant.delay.map(|delay| delay.as_micros().to_string())),
        ("reorder", number(variant.reorder)),
        ("fail_compile", variant.fail_compile.map(String::from)),
        ("memory_types", number(variant.memory_types.map(u64::from))),
        ("memory", number(variant.memory)),
        ("lose_after", number(variant.lose_after)),
        ("refuse_allocation", number(variant.refuse_allocation)),
        ("max_allocation", number(variant.max_allocation)),
    ];
    let given = settings.into_iter().filter_map(|(name, value)| Some((format!("{PREFIX}{name}"), value?)));
    program.config.extend(given);
}

/// How the device is to behave that a program is run on.
///
/// # Errors
/// A setting that is not known, or a value it cannot have.
pub fn variant_of(program: &Program) -> Result<Variant, String> {
    let mut variant = Variant::plain();
    for (name, value) in &program.config {
        let Some(setting) = name.strip_prefix(PREFIX) else { continue };
        let number = || value.parse::<u64>().map_err(|_| format!("setting `{name}`: `{value}` is no whole number"));
        match setting {
            "row_pitch" => variant.row_pitch = Some(number()?),
            "separate_memory" => variant.separate_memory = value == "true",
            "delay_us" => variant.delay = Some(Duration::from_micros(number()?)),
            "reorder" => variant.reorder = Some(number()?),
            "fail_compile" if value == BROKEN => variant.fail_compile = Some(BROKEN),
            "fail_compile" => return Err(format!("setting `{name}` can be `{BROKEN}`, not `{value}`")),
            "memory_types" => {
                let few = u32::try_from(number()?);
                variant.memory_types = Some(few.map_err(|_| format!("setting `{name}`: {value} is too many"))?);
            }
            "memory" => variant.memory = Some(number()?),
            "lose_after" => variant.lose_after = Some(number()?),
            "refuse_allocation" => variant.refuse_allocation = Some(number()?),
            "max_allocation" => variant.max_allocation = Some(number()?),
            _ => {
                let known = "row_pitch, separate_memory, delay_us, reorder, fail_compile, memory_types, memory, \
                             lose_after, refuse_allocation, max_allocation";
                return Err(format!("there is no setting `{name}`; behind `{PREFIX}` there are: {known}"));
            }
        }
    }
    Ok(variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_comes_back_from_the_settings() {
        let variants = [
            Variant::plain(),
            Variant::broken(),
            Variant::lost_after(7),
            Variant {
                row_pitch: Some(256),
                separate_memory: true,
                memory_types: Some(3),
                memory: Some(1 << 20),
                refuse_allocation: Some(2),
                max_allocation: Some(4096),
                ..Variant::late(Duration::from_micros(500), 9)
            },
        ];
        let mut program = Program { config: vec![("seed".into(), "1".into())], ..Program::default() };
        for variant in variants {
            set_variant(&mut program, &variant);
            assert_eq!(variant_of(&Program::parse(&program.to_string()).unwrap()), Ok(variant));
            assert_eq!(program.setting("seed"), Some("1"));
        }
    }

    #[test]
    fn a_setting_that_is_not_known_is_named_with_those_there_are() {
        for (name, value, says) in [
            ("variant.delay", "1", "there is no setting `variant.delay`; behind `variant.` there are: row_pitch"),
            ("variant.memory", "many", "`many` is no whole number"),
            ("variant.fail_compile", "other", "can be `does_not_compile`, not `other`"),
        ] {
            let program = Program { config: vec![(name.into(), value.into())], ..Program::default() };
            assert!(variant_of(&program).unwrap_err().contains(says));
        }
    }
}
