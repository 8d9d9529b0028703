//! Looking into SPIR-V before a driver does: that it is SPIR-V, that it has the kernel's entry point, with the kernel's workgroup size and
//! no bindings but the kernel's, and which specialisation constants it has.
//!
//! A driver may assume a valid module, and a module may come from anywhere. This reads what stands before the first function and checks
//! no more than that; what the code does is vouched for by whoever made the source.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use hashbrown::HashMap;

const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;

// Instructions and operands, by their names in the specification.
const OP_ENTRY_POINT: u32 = 15;
const OP_EXECUTION_MODE: u32 = 16;
const OP_TYPE_INT: u32 = 21;
const OP_TYPE_FLOAT: u32 = 22;
const OP_CONSTANT: u32 = 43;
const OP_CONSTANT_COMPOSITE: u32 = 44;
const OP_SPEC_CONSTANT_TRUE: u32 = 48;
const OP_SPEC_CONSTANT_FALSE: u32 = 49;
const OP_SPEC_CONSTANT: u32 = 50;
const OP_SPEC_CONSTANT_COMPOSITE: u32 = 51;
const OP_FUNCTION: u32 = 54;
const OP_DECORATE: u32 = 71;
const OP_EXECUTION_MODE_ID: u32 = 331;
const MODEL_GL_COMPUTE: u32 = 5;
const MODE_LOCAL_SIZE: u32 = 17;
const MODE_LOCAL_SIZE_ID: u32 = 38;
const DECORATION_SPEC_ID: u32 = 1;
const DECORATION_BUILT_IN: u32 = 11;
const DECORATION_BINDING: u32 = 33;
const DECORATION_DESCRIPTOR_SET: u32 = 34;
const BUILT_IN_WORKGROUP_SIZE: u32 = 25;

/// What stands before the functions of a module.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// The compute entry points, and the id of each.
    entries: Vec<(String, u32)>,
    sizes: HashMap<u32, [u32; 3]>,
    size_ids: HashMap<u32, [u32; 3]>,
    workgroup_constant: Option<u32>,
    kinds: HashMap<u32, Kind>,
    constants: HashMap<u32, Constant>,
    composites: HashMap<u32, Vec<u32>>,
    /// Specialisation constants: the id programs know, and the module's own.
    specs: BTreeMap<u32, u32>,
    bindings: Vec<(u32, u32)>,
    sets: Vec<(u32, u32)>,
}

/// The kind of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int { bits: u32, signed: bool },
    Float { bits: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Constant {
    kind: Kind,
    /// The low word of its value.
    word: u32,
}

/// Values for the specialisation constants of a module, as `VkSpecializationInfo` has them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Specialised {
    /// Id, offset and bytes of each.
    pub(crate) entries: Vec<(u32, u32, usize)>,
    /// The values.
    pub(crate) data: Vec<u8>,
}

/// What is wrong with a module.
pub(crate) type Wrong = String;

impl Head {
    /// Reads a module up to its first function.
    ///
    /// # Errors
    /// Why it is no SPIR-V.
    pub(crate) fn read(words: &[u32]) -> Result<Self, Wrong> {
        match words {
            [] => return Err("it has no words".into()),
            [first, ..] if *first == MAGIC.swap_bytes() => {
                return Err("its words have the other byte order".into());
            }
            [first, ..] if *first != MAGIC => {
                return Err(format!("it begins with {first:#010x}, SPIR-V with {MAGIC:#010x}"));
            }
            _ if words.len() < HEADER => {
                return Err(format!("it has {} words, a header alone {HEADER}", words.len()));
            }
            _ => {}
        }
        let mut head = Self::default();
        let mut at = HEADER;
        while let Some(first) = words.get(at) {
            let (length, code) = ((first >> 16) as usize, first & 0xFFFF);
            let Some([_, operands @ ..]) = words.get(at..at + length) else {
                return Err(format!(
                    "the instruction at word {at} has {length} words, and {} are left",
                    words.len() - at
                ));
            };
            if code == OP_FUNCTION {
                return Ok(head);
            }
            head.take(code, operands);
            at += length;
        }
        Err("it has no function".into())
    }

    fn take(&mut self, code: u32, operands: &[u32]) {
        match (code, operands) {
            (OP_ENTRY_POINT, [MODEL_GL_COMPUTE, id, name @ ..]) => self.entries.push((text(name), *id)),
            (OP_EXECUTION_MODE, [id, MODE_LOCAL_SIZE, x, y, z]) => {
                self.sizes.insert(*id, [*x, *y, *z]);
            }
            (OP_EXECUTION_MODE_ID, [id, MODE_LOCAL_SIZE_ID, x, y, z]) => {
                self.size_ids.insert(*id, [*x, *y, *z]);
            }
            (OP_TYPE_INT, [id, bits, signed]) => {
                self.kinds.insert(*id, Kind::Int { bits: *bits, signed: *signed != 0 });
            }
            (OP_TYPE_FLOAT, [id, bits, ..]) => {
                self.kinds.insert(*id, Kind::Float { bits: *bits });
            }
            (OP_CONSTANT | OP_SPEC_CONSTANT, [kind, id, word, ..]) => {
                if let Some(kind) = self.kinds.get(kind) {
                    self.constants.insert(*id, Constant { kind: *kind, word: *word });
                }
            }
            (OP_SPEC_CONSTANT_TRUE | OP_SPEC_CONSTANT_FALSE, [_, id, ..]) => {
                let word = u32::from(code == OP_SPEC_CONSTANT_TRUE);
                self.constants.insert(*id, Constant { kind: Kind::Bool, word });
            }
            (OP_CONSTANT_COMPOSITE | OP_SPEC_CONSTANT_COMPOSITE, [_, id, parts @ ..]) => {
                self.composites.insert(*id, parts.to_vec());
            }
            (OP_DECORATE, [id, DECORATION_SPEC_ID, spec]) => {
                self.specs.insert(*spec, *id);
            }
            (OP_DECORATE, [id, DECORATION_BUILT_IN, BUILT_IN_WORKGROUP_SIZE]) => self.workgroup_constant = Some(*id),
            (OP_DECORATE, [id, DECORATION_BINDING, binding]) => self.bindings.push((*id, *binding)),
            (OP_DECORATE, [id, DECORATION_DESCRIPTOR_SET, set]) => self.sets.push((*id, *set)),
            _ => {}
        }
    }

    /// Checks that the module has this compute entry point with this workgroup size, once its constants have these values, and binds
    /// nothing but set 0 up to `bindings`. The constants' values for the driver.
    ///
    /// # Errors
    /// What is missing or different.
    pub(crate) fn check(
        &self,
        entry: &str,
        workgroup: [u32; 3],
        bindings: u32,
        constants: &[(String, f64)],
    ) -> Result<Specialised, Wrong> {
        let Some((_, id)) = self.entries.iter().find(|(name, _)| name == entry) else {
            let names: Vec<_> = self.entries.iter().map(|(name, _)| format!("`{name}`")).collect();
            let known = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            return Err(format!("it has no compute entry point `{entry}`; it has: {known}"));
        };
        if let Some((_, set)) = self.sets.iter().find(|(_, set)| *set != 0) {
            return Err(format!("it binds descriptor set {set}; buffers are in set 0"));
        }
        if let Some((_, binding)) = self.bindings.iter().find(|(_, binding)| *binding >= bindings) {
            return Err(format!("it binds {binding}, and the interface has {bindings} bindings, parameters included"));
        }
        let (specialised, values) = self.specialise(constants)?;
        let found = self.workgroup(*id, &values)?;
        if found != workgroup {
            return Err(format!("its workgroup size is {found:?}, the kernel's {workgroup:?}"));
        }
        Ok(specialised)
    }

    /// The workgroup size of an entry point, where constants have these values.
    fn workgroup(&self, entry: u32, values: &HashMap<u32, u32>) -> Result<[u32; 3], Wrong> {
        let value = |id: &u32| {
            let known = values.get(id).copied().or_else(|| self.constants.get(id).map(|constant| constant.word));
            known
                .ok_or_else(|| format!("the constant {id} of its workgroup size is computed, which is not looked into"))
        };
        let of_ids =
            |ids: [u32; 3]| -> Result<[u32; 3], Wrong> { Ok([value(&ids[0])?, value(&ids[1])?, value(&ids[2])?]) };
        // The decorated constant counts, where there is one.
        if let Some(constant) = self.workgroup_constant {
            return match self.composites.get(&constant).map(Vec::as_slice) {
                Some([x, y, z]) => of_ids([*x, *y, *z]),
                _ => Err("its workgroup size is not a vector of three constants".into()),
            };
        }
        match (self.size_ids.get(&entry), self.sizes.get(&entry)) {
            (Some(ids), _) => of_ids(*ids),
            (None, Some(size)) => Ok(*size),
            (None, None) => Err("its entry point has no workgroup size".into()),
        }
    }

    /// The constants as the driver takes them, and the low words of their values by the module's ids.
    fn specialise(&self, constants: &[(String, f64)]) -> Result<(Specialised, HashMap<u32, u32>), Wrong> {
        let (mut specialised, mut values) = (Specialised::default(), HashMap::new());
        for (name, value) in constants {
            let spec = name.parse::<u32>().ok().and_then(|spec| Some((spec, *self.specs.get(&spec)?)));
            let constant = spec.and_then(|(spec, id)| Some((spec, id, self.constants.get(&id)?)));
            let Some((spec, id, constant)) = constant else {
                let known: Vec<_> = self.specs.keys().map(u32::to_string).collect();
                let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                return Err(format!("it has no specialisation constant `{name}`; it has, by id: {known}"));
            };
            let bytes = constant.kind.bytes(*value).ok_or_else(|| {
                format!("specialisation constant `{name}`: {value} is no value of {}", constant.kind.name())
            })?;
            let mut word = [0; 4];
            let low = bytes.len().min(4);
            word[..low].copy_from_slice(&bytes[..low]);
            values.insert(id, u32::from_ne_bytes(word));
            specialised.entries.push((spec, specialised.data.len() as u32, bytes.len()));
            specialised.data.extend_from_slice(&bytes);
        }
        Ok((specialised, values))
    }
}

impl Kind {
    fn name(self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Int { bits, signed } => format!("{}{bits}", if signed { 'i' } else { 'u' }),
            Self::Float { bits } => format!("f{bits}"),
        }
    }

    /// The value in the machine's byte order, where this kind has it.
    fn bytes(self, value: f64) -> Option<Vec<u8>> {
        match self {
            Self::Bool => match value {
                0.0 => Some(0_u32.to_ne_bytes().to_vec()),
                1.0 => Some(1_u32.to_ne_bytes().to_vec()),
                _ => None,
            },
            Self::Float { bits: 32 } => {
                let narrow = value as f32;
                (narrow.is_finite() || !value.is_finite()).then(|| narrow.to_ne_bytes().to_vec())
            }
            Self::Float { bits: 64 } => Some(value.to_ne_bytes().to_vec()),
            Self::Int { bits, signed } if [8, 16, 32, 64].contains(&bits) => {
                let whole = value as i128;
                // Conversion cuts off what it cannot hold, so the way back shows whether something was.
                let (low, high) = match signed {
                    true => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                    false => (0, (1_i128 << bits) - 1),
                };
                let fits = whole as f64 == value && (low..=high).contains(&whole);
                fits.then(|| match bits {
                    8 => (whole as u8).to_ne_bytes().to_vec(),
                    16 => (whole as u16).to_ne_bytes().to_vec(),
                    32 => (whole as u32).to_ne_bytes().to_vec(),
                    _ => (whole as u64).to_ne_bytes().to_vec(),
                })
            }
            Self::Float { .. } | Self::Int { .. } => None,
        }
    }
}

/// Text that ends with a zero byte, four bytes a word.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn instruction(code: u32, operands: &[u32]) -> Vec<u32> {
        let mut words = vec![((operands.len() as u32 + 1) << 16) | code];
        words.extend_from_slice(operands);
        words
    }

    fn module(instructions: &[Vec<u32>]) -> Vec<u32> {
        let mut words = vec![MAGIC, 0x0001_0300, 0, 100, 0];
        words.extend(instructions.iter().flatten());
        words.extend(instruction(OP_FUNCTION, &[1, 2, 0, 3]));
        words
    }

    /// `OpEntryPoint GLCompute %4 "go"`.
    fn entry() -> Vec<u32> {
        instruction(OP_ENTRY_POINT, &[MODEL_GL_COMPUTE, 4, u32::from_le_bytes(*b"go\0\0")])
    }

    fn sized() -> Vec<Vec<u32>> {
        vec![entry(), instruction(OP_EXECUTION_MODE, &[4, MODE_LOCAL_SIZE, 8, 2, 1])]
    }

    /// `override`s 7 (u32) and 9 (f32) and 11 (bool), the first of them the workgroup's x.
    fn specialisable() -> Vec<Vec<u32>> {
        vec![
            entry(),
            instruction(OP_DECORATE, &[20, DECORATION_SPEC_ID, 7]),
            instruction(OP_DECORATE, &[21, DECORATION_SPEC_ID, 9]),
            instruction(OP_DECORATE, &[22, DECORATION_SPEC_ID, 11]),
            instruction(OP_DECORATE, &[30, DECORATION_BUILT_IN, BUILT_IN_WORKGROUP_SIZE]),
            instruction(OP_TYPE_INT, &[10, 32, 0]),
            instruction(OP_TYPE_FLOAT, &[11, 32]),
            instruction(OP_SPEC_CONSTANT, &[10, 20, 64]),
            instruction(OP_SPEC_CONSTANT, &[11, 21, 0]),
            instruction(OP_SPEC_CONSTANT_FALSE, &[12, 22]),
            instruction(OP_CONSTANT, &[10, 23, 1]),
            instruction(OP_SPEC_CONSTANT_COMPOSITE, &[13, 30, 20, 23, 23]),
        ]
    }

    #[test]
    fn what_is_no_spirv_is_said_to_be_none() {
        for (words, why) in [
            (vec![], "no words"),
            (vec![0x1234, 0, 0, 0, 0], "begins with 0x00001234"),
            (vec![MAGIC.swap_bytes(); 5], "byte order"),
            (vec![MAGIC, 0x0001_0300], "has 2 words"),
            (vec![MAGIC, 0x0001_0300, 0, 9, 0], "no function"),
            ([vec![MAGIC, 0x0001_0300, 0, 9, 0], vec![0x0009_0011]].concat(), "word 5 has 9 words, and 1 are left"),
            ([vec![MAGIC, 0x0001_0300, 0, 9, 0], vec![0x0000_0011]].concat(), "word 5 has 0 words"),
        ] {
            let wrong = Head::read(&words).unwrap_err();
            assert!(wrong.contains(why), "{wrong}");
        }
    }

    #[test]
    fn the_entry_point_and_its_workgroup_size_must_be_the_kernels() {
        let head = Head::read(&module(&sized())).unwrap();
        assert_eq!(head.check("go", [8, 2, 1], 0, &[]), Ok(Specialised::default()));
        let wrong = head.check("stop", [8, 2, 1], 0, &[]).unwrap_err();
        assert!(wrong.contains("`stop`") && wrong.contains("`go`"), "{wrong}");
        let wrong = head.check("go", [8, 2, 2], 0, &[]).unwrap_err();
        assert!(wrong.contains("[8, 2, 1]") && wrong.contains("[8, 2, 2]"), "{wrong}");
        let wrong = Head::read(&module(&[entry()])).unwrap().check("go", [1; 3], 0, &[]).unwrap_err();
        assert!(wrong.contains("no workgroup size"), "{wrong}");
    }

    #[test]
    fn bindings_outside_the_interface_are_refused() {
        let with = |decoration, value| {
            let mut all = sized();
            all.push(instruction(OP_DECORATE, &[40, decoration, value]));
            Head::read(&module(&all)).unwrap()
        };
        assert!(with(DECORATION_BINDING, 2).check("go", [8, 2, 1], 3, &[]).is_ok());
        assert!(with(DECORATION_BINDING, 3).check("go", [8, 2, 1], 3, &[]).unwrap_err().contains("binds 3"));
        assert!(with(DECORATION_DESCRIPTOR_SET, 1).check("go", [8, 2, 1], 3, &[]).unwrap_err().contains("set 1"));
    }

    #[test]
    fn specialisation_constants_are_set_by_id_and_count_for_the_workgroup_size() {
        let head = Head::read(&module(&specialisable())).unwrap();
        assert!(head.check("go", [64, 1, 1], 0, &[]).is_ok());
        let constants = [("7".to_string(), 32.0), ("9".to_string(), 0.5), ("11".to_string(), 1.0)];
        let specialised = head.check("go", [32, 1, 1], 0, &constants).unwrap();
        assert_eq!(specialised.entries, [(7, 0, 4), (9, 4, 4), (11, 8, 4)]);
        let expected = [32_u32.to_ne_bytes(), 0.5_f32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat();
        assert_eq!(specialised.data, expected);
        assert!(head.check("go", [64, 1, 1], 0, &constants).unwrap_err().contains("[32, 1, 1]"));
    }

    #[test]
    fn a_constant_that_is_not_there_or_has_no_such_value_is_named() {
        let head = Head::read(&module(&specialisable())).unwrap();
        for (name, value, why) in [
            ("8", 1.0, "by id: 7, 9, 11"),
            ("width", 1.0, "`width`"),
            ("7", 0.5, "0.5 is no value of u32"),
            ("7", -1.0, "-1 is no value of u32"),
            ("7", 4_294_967_296.0, "no value of u32"),
            ("9", 1e300, "no value of f32"),
            ("11", 2.0, "2 is no value of bool"),
        ] {
            let wrong = head.check("go", [64, 1, 1], 0, &[(name.to_string(), value)]).unwrap_err();
            assert!(wrong.contains(why), "{wrong}");
        }
    }
}
