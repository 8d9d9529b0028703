//! A program that uses everything the backend asks of a driver, and what came of it.

use std::time::Duration;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::kernel::{Interface, KernelHandle, Source, SourceKernel};

/// `y[i] = a * x[i] + b`, as the compiler would write it for
/// `scale(const unsigned *x, unsigned *y, struct { unsigned a, b; } p, unsigned long long bytes_x, unsigned long long bytes_y)`.
const SCALE: &str = "
.version 8.0
.target sm_75
.address_size 64
.visible .entry scale(
    .param .u64 scale_param_0,
    .param .u64 scale_param_1,
    .param .align 4 .b8 scale_param_2[8],
    .param .u64 scale_param_3,
    .param .u64 scale_param_4
)
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<11>;
    ld.param.u64 %rd1, [scale_param_0];
    ld.param.u64 %rd2, [scale_param_1];
    ld.param.u32 %r1, [scale_param_2];
    ld.param.u32 %r2, [scale_param_2+4];
    ld.param.u64 %rd3, [scale_param_3];
    ld.param.u64 %rd4, [scale_param_4];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    mul.wide.u32 %rd5, %r6, 4;
    setp.ge.u64 %p1, %rd5, %rd3;
    @%p1 bra DONE;
    setp.ge.u64 %p2, %rd5, %rd4;
    @%p2 bra DONE;
    cvta.to.global.u64 %rd6, %rd1;
    add.s64 %rd7, %rd6, %rd5;
    ld.global.u32 %r7, [%rd7];
    mad.lo.s32 %r8, %r7, %r1, %r2;
    cvta.to.global.u64 %rd8, %rd2;
    add.s64 %rd9, %rd8, %rd5;
    st.global.u32 [%rd9], %r8;
DONE:
    ret;
}
";

/// What came of a program.
#[derive(Debug, Default)]
pub struct Came {
    /// What was read, by name.
    pub reads: Vec<(&'static str, Result<Vec<u8>, Error>)>,
    /// What calls answered that were not reads.
    pub errors: Vec<Error>,
}

impl Came {
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn read(&mut self, name: &'static str, client: &Client, handle: Option<&Handle>) {
        let Some(handle) = handle else { return };
        let bytes = client.read_one(handle);
        self.reads.push((name, bytes.and_then(|bytes| Ok(bytes.as_slice()?.to_vec()))));
    }

    /// Every error, in words.
    pub fn said(&self) -> String {
        let reads = self.reads.iter().filter_map(|(_, read)| read.as_ref().err());
        reads.chain(&self.errors).map(|error| format!("{error}; {error:?}\n")).collect()
    }

    pub fn is_lost(&self) -> bool {
        let reads = self.reads.iter().filter_map(|(_, read)| read.as_ref().err());
        reads.chain(&self.errors).any(Error::is_device_lost)
    }

    /// What was read is what a run without failures reads, or an error.
    pub fn assert_right(&self, what: &str) {
        for (name, read) in &self.reads {
            if let Ok(bytes) = read {
                assert!(*bytes == expected(name), "{what}: {name} is {:?}, …", &bytes[..bytes.len().min(8)]);
            }
        }
    }

    /// Nothing failed.
    pub fn assert_whole(&self, what: &str) {
        self.assert_right(what);
        assert!(self.errors.is_empty() && self.reads.iter().all(|(_, read)| read.is_ok()), "{what}: {}", self.said());
        assert_eq!(self.reads.len(), NAMES.len(), "{what}");
    }
}

const NAMES: [&str; 8] = ["scaled", "counted", "copied", "filled", "pinned", "elsewhere", "large", "words"];

fn scaled(bytes: &[u8], a: u32, b: u32) -> Vec<u8> {
    let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
    words.flat_map(|x| (a.wrapping_mul(x).wrapping_add(b)).to_ne_bytes()).collect()
}

fn source() -> Vec<u8> {
    (0..4096).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn expected(name: &str) -> Vec<u8> {
    match name {
        "copied" | "pinned" => source(),
        "scaled" => scaled(&source(), 3, 5),
        "counted" => scaled(&scaled(&source(), 3, 5), 2, 1),
        "filled" => [1, 2, 3, 4, 5, 6, 7, 8].repeat(384),
        "elsewhere" => source().into_iter().zip(0..).map(|(byte, i)| if i < 2048 { byte } else { 0 }).collect(),
        "large" => vec![1; 16 << 10],
        "words" => [1, 2, 3, 4].repeat(64),
        other => panic!("{other}"),
    }
}

/// Runs the program, whatever fails.
pub fn run(client: &Client) -> Came {
    let mut came = Came::default();
    // SAFETY: it touches what lies within both buffers.
    let source_of_scale = unsafe { Source::ptx(SCALE) };
    let interface = Interface::new().read().partition(256).parameters(8);
    let kernel = SourceKernel::new("scale", interface).workgroup_size([64, 1, 1]).source(source_of_scale);
    let kernel = came.note(client.prepare(kernel));
    let counts: Vec<u8> = [16_u32, 1, 1].iter().flat_map(|count| count.to_ne_bytes()).collect();
    let counts = came.note(client.create_from_slice(&counts));
    let [scaled, counted] = std::array::from_fn(|_| came.note(client.empty(4096)));
    let x = came.note(client.create_from_slice(&source()));
    let pinned = came.note(client.create_from_slice_pinned(&source()));
    let copied = came.note(client.empty(4096));
    let filled = came.note(client.empty(3072));
    let words = came.note(client.empty(256));
    // As large as what is mapped, of which a part is used.
    let whole = came.note(client.empty(2 << 20));
    let large = whole.as_ref().and_then(|whole| whole.slice(..16 << 10).ok());
    let elsewhere = came.note(client.zeros(4096));

    came.launch(client, kernel.as_ref(), Grid::x(16), [x.as_ref(), scaled.as_ref()], [3, 5]);
    if let Some(counts) = counts {
        came.launch(client, kernel.as_ref(), Grid::Dynamic(counts), [scaled.as_ref(), counted.as_ref()], [2, 1]);
    }
    if let (Some(x), Some(copied)) = (&x, &copied) {
        came.note(client.copy(x, copied));
    }
    let patterns = [(&filled, &[1, 2, 3, 4, 5, 6, 7, 8][..]), (&large, &[1]), (&words, &[1, 2, 3, 4])];
    for (handle, pattern) in patterns {
        if let Some(handle) = handle {
            came.note(client.fill(handle, pattern));
        }
    }
    // Another stream, which waits for this one.
    let mut other = client.clone();
    other.set_stream(StreamId::new());
    if let (Some(copied), Some(elsewhere)) = (&copied, &elsewhere) {
        came.note(copied.slice(..2048).and_then(|from| other.copy(&from, &elsewhere.slice(..2048)?)));
    }
    came.read("elsewhere", &other, elsewhere.as_ref());
    let ours = [
        ("scaled", &scaled),
        ("counted", &counted),
        ("copied", &copied),
        ("filled", &filled),
        ("pinned", &pinned),
        ("words", &words),
        ("large", &large),
    ];
    for (name, handle) in ours {
        came.read(name, client, handle.as_ref());
    }
    let done = client.sync_timeout(Duration::from_secs(20));
    came.note(done);
    drop((x, pinned, copied, filled, words, elsewhere, scaled, counted, large, whole));
    let memory = client.memory_usage();
    came.note(memory);
    came
}

impl Came {
    fn launch(
        &mut self,
        client: &Client,
        kernel: Option<&KernelHandle>,
        grid: Grid,
        buffers: [Option<&Handle>; 2],
        parameters: [u32; 2],
    ) {
        if let (Some(kernel), [Some(from), Some(to)]) = (kernel, buffers) {
            self.note(client.launch(kernel, grid, ([from, to], &parameters)));
        }
    }
}
