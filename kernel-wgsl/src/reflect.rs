//! What a text says of its kernel: entry point, buffers, parameters. Read from the declarations, before code that is not used is dropped.

use crate::explain::invalid;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use naga::proc::GlobalCtx;
use naga::valid::{FunctionInfo, GlobalUse};
use naga::{
    AddressSpace, ArraySize, Binding, EntryPoint, GlobalVariable, Handle, Module, ShaderStage, Type, TypeInner,
};
use trunnion_runtime_core::error::Result;

/// What a text declares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared {
    /// By place: bound at 0, 1, 2 and so on.
    pub(crate) buffers: Vec<Buffer>,
    /// Behind the buffers.
    pub(crate) parameters: Option<Uniform>,
}

/// A `var<storage>`.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    /// The fewest bytes with which everything that has a fixed place is inside; 0 for an array whose length is that of the buffer.
    pub(crate) min_size: u64,
    /// The fewest bytes with which there is an element to which an index out of bounds is moved.
    pub(crate) fewest: u64,
    /// Whether its elements are atomic.
    pub(crate) atomic: bool,
}

/// The `var<uniform>`.
#[derive(Clone, Debug)]
pub(crate) struct Uniform {
    pub(crate) name: String,
    pub(crate) bytes: u32,
}

impl Declared {
    /// # Errors
    /// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel) for what is no argument of a kernel, or is bound where
    /// arguments are not.
    pub(crate) fn of(kernel: &str, module: &Module) -> Result<Self> {
        let (mut buffers, mut uniforms) = (Vec::new(), Vec::new());
        for (_, variable) in module.global_variables.iter() {
            match (variable.space, &variable.binding) {
                (AddressSpace::Private | AddressSpace::WorkGroup, _) => {}
                (AddressSpace::Storage { .. }, Some(at)) if at.group == 0 => buffers.push((at.binding, variable)),
                (AddressSpace::Uniform, Some(at)) if at.group == 0 => uniforms.push((at.binding, variable)),
                (AddressSpace::Storage { .. } | AddressSpace::Uniform, Some(at)) => {
                    let (name, group) = (name(variable), at.group);
                    return Err(invalid(kernel, format!("`{name}` is in group {group}; arguments are in group 0")));
                }
                (space, _) => {
                    return Err(invalid(
                        kernel,
                        format!(
                            "`{}` is {}; a kernel's arguments are buffers, `var<storage>`, and behind them parameters, one `var<uniform>`",
                            name(variable),
                            kind(space, &module.types[variable.ty].inner)
                        ),
                    ));
                }
            }
        }
        if let [(_, first), (_, second), ..] = uniforms[..] {
            let (first, second) = (name(first), name(second));
            return Err(invalid(
                kernel,
                format!("`{first}` and `{second}` are both `var<uniform>`; parameters are one"),
            ));
        }
        buffers.sort_by_key(|(binding, _)| *binding);
        let uniform = uniforms.first();
        for (place, (binding, variable)) in buffers.iter().enumerate() {
            let (name, place) = (name(variable), place as u32);
            if *binding < place {
                let other = self::name(buffers[place as usize - 1].1);
                return Err(invalid(kernel, format!("`{other}` and `{name}` are both at binding {binding}")));
            }
            if *binding > place {
                // Parameters in front of buffers leave a gap too, and are told below.
                if uniform.is_none_or(|(uniform, _)| *uniform != place) {
                    return Err(invalid(
                        kernel,
                        format!(
                            "no buffer is at binding {place}, and `{name}` is at {binding}; buffers are bound from 0, without gaps, in the order of the arguments"
                        ),
                    ));
                }
                break;
            }
        }
        if let Some((binding, variable)) = uniform
            && *binding as usize != buffers.len()
        {
            let (name, count) = (name(variable), buffers.len());
            let why =
                format!("`{name}`, the parameters, is at binding {binding}; its place is {count}, behind the buffers");
            return Err(invalid(kernel, why));
        }
        let context = module.to_ctx();
        let parameters = uniform.map(|(_, variable)| {
            let bytes = module.types[variable.ty].inner.try_size(context).unwrap_or(u32::MAX);
            Uniform { name: name(variable).into(), bytes }
        });
        Ok(Self {
            buffers: buffers.iter().map(|(_, variable)| buffer(module, context, variable)).collect(),
            parameters,
        })
    }
}

/// What the code of an entry point does, after its constants have their values.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    /// Whether it reads and whether it writes each buffer, by place.
    pub(crate) buffers: Vec<(bool, bool)>,
    /// Bytes of workgroup memory.
    pub(crate) shared: u32,
}

impl Used {
    /// `buffers` are as many as the text declares.
    pub(crate) fn of(module: &Module, entry: &FunctionInfo, buffers: usize) -> Self {
        let mut used = Self { buffers: alloc::vec![(false, false); buffers], shared: 0 };
        for (handle, variable) in module.global_variables.iter() {
            let does = entry[handle];
            match (variable.space, &variable.binding) {
                (AddressSpace::Storage { .. }, Some(at)) => {
                    if let Some(buffer) = used.buffers.get_mut(at.binding as usize) {
                        *buffer = (does.contains(GlobalUse::READ), does.contains(GlobalUse::WRITE));
                    }
                }
                (AddressSpace::WorkGroup, _) if !does.is_empty() => {
                    let size = module.types[variable.ty].inner.try_size(module.to_ctx());
                    let size = size.and_then(|size| size.checked_next_multiple_of(4)).unwrap_or(u32::MAX);
                    used.shared = used.shared.saturating_add(size);
                }
                _ => {}
            }
        }
        used
    }
}

/// The one entry point there is.
///
/// # Errors
/// [`Error::InvalidKernel`](trunnion_runtime_core::error::Error::InvalidKernel) where there is none, or another one.
pub(crate) fn entry_point<'a>(kernel: &str, module: &'a Module) -> Result<&'a EntryPoint> {
    match &module.entry_points[..] {
        [entry] if entry.name == kernel && entry.stage == ShaderStage::Compute => {
            let mut arguments = entry.function.arguments.iter();
            match arguments.find(|argument| !is_built_in(module, argument.ty, argument.binding.as_ref())) {
                Some(argument) => {
                    let name = argument.name.as_deref().unwrap_or("an argument");
                    let why = format!("`{name}` of its entry point is no `@builtin`; arguments are bound as buffers");
                    Err(invalid(kernel, why))
                }
                None => Ok(entry),
            }
        }
        [entry] if entry.name == kernel => {
            Err(invalid(kernel, format!("its entry point is `@{}`, and a kernel's is `@compute`", stage(entry.stage))))
        }
        [] => {
            Err(invalid(kernel, format!("its text has no entry point; a kernel's is `@compute`, here `fn {kernel}`")))
        }
        [entry] => Err(invalid(
            kernel,
            format!("the entry point of its text is `{}`; it has to have the kernel's name", entry.name),
        )),
        entries => {
            let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let why = format!("its text has {} entry points, {}; a kernel's has one", entries.len(), names.join(", "));
            Err(invalid(kernel, why))
        }
    }
}

/// Whether an argument of an entry point is a value that each invocation has anyway, or a struct of such.
fn is_built_in(module: &Module, ty: Handle<Type>, binding: Option<&Binding>) -> bool {
    match (binding, &module.types[ty].inner) {
        (Some(binding), _) => matches!(binding, Binding::BuiltIn(_)),
        (None, TypeInner::Struct { members, .. }) => {
            members.iter().all(|member| is_built_in(module, member.ty, member.binding.as_ref()))
        }
        (None, _) => false,
    }
}

fn buffer(module: &Module, context: GlobalCtx<'_>, variable: &GlobalVariable) -> Buffer {
    let inner = &module.types[variable.ty].inner;
    let (min_size, fewest) = match *inner {
        TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => (0, stride),
        TypeInner::Struct { ref members, span } => match members.last() {
            Some(last) => match module.types[last.ty].inner {
                TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => {
                    let with_one = last.offset.saturating_add(stride);
                    (with_one, with_one)
                }
                _ => (span, span),
            },
            None => (span, span),
        },
        ref sized => {
            let size = sized.try_size(context).unwrap_or(u32::MAX);
            (size, size)
        }
    };
    let element = match *inner {
        TypeInner::Array { base, .. } => &module.types[base].inner,
        ref other => other,
    };
    Buffer {
        name: name(variable).into(),
        min_size: min_size.into(),
        fewest: fewest.into(),
        atomic: matches!(element, TypeInner::Atomic(_)),
    }
}

fn name(variable: &GlobalVariable) -> &str {
    variable.name.as_deref().unwrap_or("a variable without a name")
}

/// What a variable that is no argument is called.
fn kind(space: AddressSpace, inner: &TypeInner) -> String {
    match (space, inner) {
        (AddressSpace::Handle, TypeInner::Image { .. }) => "a texture".into(),
        (AddressSpace::Handle, TypeInner::Sampler { .. }) => "a sampler".into(),
        (AddressSpace::Handle, TypeInner::AccelerationStructure { .. }) => "an acceleration structure".into(),
        (AddressSpace::Immediate, _) => "`var<immediate>`".into(),
        (AddressSpace::Storage { .. } | AddressSpace::Uniform, _) => "not bound anywhere".into(),
        (other, _) => format!("in the address space {other:?}").to_string(),
    }
}

fn stage(stage: ShaderStage) -> &'static str {
    match stage {
        ShaderStage::Vertex => "vertex",
        ShaderStage::Fragment => "fragment",
        ShaderStage::Compute => "compute",
        ShaderStage::Task => "task",
        ShaderStage::Mesh => "mesh",
        ShaderStage::RayGeneration => "ray_generation",
        ShaderStage::AnyHit => "any_hit",
        ShaderStage::ClosestHit => "closest_hit",
        ShaderStage::Miss => "miss",
    }
}
